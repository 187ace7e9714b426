"""Refuses `--fp16` on a CPU.

fairseq stores the float32 copy of all parameters under the number of the current GPU, even with `--cpu`. Without a GPU
it fails with PyTorch's message about a missing driver. With a GPU it trains with zero gradients. `--bf16` and
`--memory-efficient-fp16` do not use such a copy, so they work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairseq_compat.one_line_errors import UsageError
from fairseq_compat.patch import Patch


def on_cpu(parameters: Sequence[Any]) -> bool:
    """Whether any parameter is on the CPU."""
    return any(parameter.device.type == "cpu" for parameter in parameters)


def ask_for_gpu(module: Any) -> None:
    """Wraps `build_fp32_params` of the wrapper that --fp16 and --bf16 put around an optimizer."""
    mixin = module._FP16OptimizerMixin
    original = mixin.build_fp32_params.__func__

    def build_fp32_params(cls: Any, args: Any, params: Any, flatten: bool = True) -> Any:
        params = list(params)
        if flatten and on_cpu(params):
            raise UsageError("--fp16 needs a GPU, but training runs on the CPU: use --bf16, or leave --fp16 out")
        return original(cls, args, params, flatten)

    mixin.build_fp32_params = classmethod(build_fp32_params)


FP16_ON_CPU = Patch(
    name="fp16-on-cpu",
    symptom="--fp16 --cpu: RuntimeError: Found no NVIDIA driver on your system",
    after={"fairseq.optim.fp16_optimizer": ask_for_gpu},
)
