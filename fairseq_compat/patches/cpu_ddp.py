"""Makes DistributedDataParallel work on CPU.

fairseq's default `--ddp-backend pytorch_ddp` always passes `device_ids`. PyTorch refuses them for a module with
parameters on the CPU (gloo), so this patch omits them there.
"""

from __future__ import annotations

from typing import Any

from fairseq_compat.patch import Patch


def drop_device_ids_on_cpu(module: Any) -> None:
    """Replaces the class that fairseq wraps models in by a subclass."""

    class DistributedDataParallel(module.DistributedDataParallel):
        def __init__(self, module: Any, device_ids: Any = None, output_device: Any = None, **kwargs: Any) -> None:
            if all(parameter.device.type == "cpu" for parameter in module.parameters()):
                device_ids = output_device = None
            super().__init__(module, device_ids=device_ids, output_device=output_device, **kwargs)

    module.DistributedDataParallel = DistributedDataParallel


CPU_DDP = Patch(
    name="cpu-ddp",
    symptom="torchrun on CPU: ValueError: DistributedDataParallel device_ids and output_device arguments ...",
    after={"fairseq.models.distributed_fairseq_model": drop_device_ids_on_cpu},
)
