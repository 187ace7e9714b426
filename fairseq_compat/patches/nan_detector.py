"""Makes a training whose gradient is not finite end with a message that says so.

fairseq repeats the update with hooks that look for the first module whose values are not finite. PyTorch's backward
hooks need a tensor in a module's output, but an encoder returns a dictionary of lists.
"""

from __future__ import annotations

from typing import Any

from fairseq_compat.patch import Patch, wraps


def skip_encoders(module: Any) -> None:
    """Makes `NanDetector` register no backward hook on encoders. Their submodules still have hooks."""

    @wraps(module.NanDetector, "add_hooks")
    def add_hooks(original: Any, self: Any, watched: Any) -> None:
        from fairseq.models import FairseqEncoder

        backward = self.backward
        self.backward = backward and not isinstance(watched, FairseqEncoder)
        original(self, watched)
        self.backward = backward


NAN_DETECTOR = Patch(
    name="nan-detector",
    symptom="a training run whose gradient is not finite: StopIteration",
    after={"fairseq.nan_detector": skip_encoders},
)
