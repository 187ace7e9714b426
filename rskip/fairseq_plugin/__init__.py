"""What `--user-dir rskip` brings to fairseq: Transformers whose residual connections are chosen by name.

With rskip/captioning/fairseq/, the only package that imports fairseq.
"""

from rskip.captioning.fairseq import self_critical
from rskip.captioning.fairseq import task as captioning_task
from rskip.fairseq_plugin import (
    adam,
    architectures,
    criterion,
    initialise,
    loading_thread,
    model,
    one_line_errors,
    out_of_memory,
    resume,
    run_lock,
    task,
)

__all__ = ["adam", "architectures", "captioning_task", "criterion", "model", "self_critical", "task"]

adam.install()
initialise.install()
loading_thread.install()
one_line_errors.install()
out_of_memory.install()
resume.install()
run_lock.install()
