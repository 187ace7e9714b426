"""A batch that memory doesn't suffice for is named, and what to lower, before fairseq skips it or ends."""

from __future__ import annotations

import functools
import logging
from typing import Any

from fairseq.tasks import FairseqTask

from rskip.machine.torch_errors import out_of_memory

logger = logging.getLogger(__name__)


def advice(sample: dict[str, Any]) -> str:
    """What fairseq's lines on memory leave out. sample: a batch of a translation or captioning task."""
    inputs = sample["net_input"]
    sentences, length = inputs["prev_output_tokens"].shape
    source = f"{inputs['src_tokens'].size(1)} source and " if "src_tokens" in inputs else ""
    return (
        f"out of memory on a batch of {sentences} sentences of up to {source}{length} target tokens: "
        "lower --max-tokens or --batch-size, and raise --update-freq by as much"
    )


def install() -> None:
    """Wraps the forward and backward pass of fairseq's tasks. The error goes on: on a GPU fairseq skips the batch."""
    original = FairseqTask.train_step
    if getattr(original, "names_the_batch", False):
        return

    @functools.wraps(original)
    def train_step(self: FairseqTask, sample: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return original(self, sample, *args, **kwargs)
        except (RuntimeError, MemoryError) as error:
            if out_of_memory(error) and "prev_output_tokens" in sample.get("net_input", {}):
                logger.warning(advice(sample))
            raise

    train_step.names_the_batch = True  # type: ignore[attr-defined]
    FairseqTask.train_step = train_step
