"""What `--user-dir rskip` brings to fairseq: Transformers whose residual connections are chosen by name.

The only package that imports fairseq.
"""

from rskip.fairseq_plugin import architectures, criterion, model, one_line_errors, task

__all__ = ["architectures", "criterion", "model", "task"]

one_line_errors.install()
