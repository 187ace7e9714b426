"""Lets several processes resume from a checkpoint.

The first rank reads the checkpoint and sends its content to the others with torch.save and torch.load. Since PyTorch
2.6, torch.load refuses the omegaconf configuration that fairseq builds from the checkpoint's settings. With this patch
the ranks use PyTorch's `broadcast_object_list`. The file itself is still read with `weights_only` on.
"""

from __future__ import annotations

from typing import Any

from fairseq_compat.patch import Patch, wraps


def send_by_torch(module: Any) -> None:
    """Replaces `fairseq.distributed.utils._broadcast_object_slow`, except for groups of TPUs, which are tuples."""

    @wraps(module, "_broadcast_object_slow")
    def _broadcast_object_slow(original: Any, obj: Any, src_rank: int, group: Any, dist_device: Any) -> Any:
        if isinstance(group, tuple):
            return original(obj, src_rank, group, dist_device)
        import torch

        objects = [obj]
        torch.distributed.broadcast_object_list(objects, src=src_rank, group=group, device=dist_device)
        return objects[0]


BROADCAST_OBJECT = Patch(
    name="broadcast-object",
    symptom="resuming in several processes: Weights only load failed (omegaconf.dictconfig.DictConfig)",
    after={"fairseq.distributed.utils": send_by_torch},
)
