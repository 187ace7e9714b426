"""The fairseq plug-in behind `--user-dir rskip`: Transformers whose residual connections are chosen by name.

Importing this package is the only way to register rskip with fairseq. The `user-dir` patch of fairseq_compat imports it
for `--user-dir rskip`; your own user-dir or Python program imports it itself. Only this package,
rskip/captioning/fairseq/ and rskip/language_modeling/fairseq/ import fairseq.
"""

from fairseq_compat.one_line_errors import add_ending
from fairseq_compat.registry import add_patches
from fairseq_compat.startup import register
from rskip.captioning.fairseq import self_critical
from rskip.captioning.fairseq import task as captioning_task
from rskip.fairseq_plugin import adam, architectures, criterion, endings, model, task
from rskip.fairseq_plugin.patches import PATCHES
from rskip.language_modeling.fairseq import model as language_model
from rskip.tasks.process import DIVERGED

__all__ = ["adam", "architectures", "captioning_task", "criterion", "language_model", "model", "self_critical", "task"]

add_ending(endings.diverged, status=DIVERGED)
add_ending(endings.lost)
register()
add_patches(PATCHES)
