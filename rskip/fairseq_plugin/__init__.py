"""What `--user-dir rskip` brings to fairseq: Transformers whose residual connections are chosen by name.

The only package that imports fairseq.
"""

from rskip.fairseq_plugin import (
    adam,
    architectures,
    captioning_task,
    criterion,
    initialise,
    loading_thread,
    model,
    one_line_errors,
    out_of_memory,
    resume,
    run_lock,
    self_critical_criterion,
    task,
)

__all__ = ["adam", "architectures", "captioning_task", "criterion", "model", "self_critical_criterion", "task"]

adam.install()
initialise.install()
loading_thread.install()
one_line_errors.install()
out_of_memory.install()
resume.install()
run_lock.install()
