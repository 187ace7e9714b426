"""fairseq's Adam with few GPU kernels, without apex: `--optimizer rskip_adam`.

Flags, formula and checkpoints are those of `--optimizer adam`. On a CPU it runs fairseq's own code.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from fairseq import optim
from fairseq.optim import FairseqOptimizer, adam, register_optimizer
from torch import Tensor
from torch.optim.adamw import adamw

from fairseq_compat.one_line_errors import UsageError

NAME = "rskip_adam"
HALF = (torch.float16, torch.bfloat16)
_BUCKET = 2**24  # number of half-precision values that have a float32 copy at the same time


class FusedAdam(adam.Adam):
    """fairseq's Adam over lists of tensors: on a GPU one fused update for all parameters of the same age.

    Parameters in half precision (--memory-efficient-fp16, --memory-efficient-bf16) are updated in float32, as in
    fairseq, one bucket at a time.
    """

    @property
    def on_gpu(self) -> bool:
        """Whether all parameters are on GPUs."""
        return all(parameter.is_cuda for group in self.param_groups for parameter in group["params"])

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates all parameters that have a gradient."""
        if not self.on_gpu:
            return super().step(closure)
        loss = None if closure is None else closure()
        for group in self.param_groups:
            ages: defaultdict[tuple[int, torch.device, torch.dtype], list[Tensor]] = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    age = self._grow(parameter)
                    ages[age, parameter.device, parameter.dtype].append(parameter)
            for (age, _, dtype), parameters in ages.items():
                for bucket in _buckets(parameters) if dtype in HALF else [parameters]:
                    self._update(bucket, group, age)
        return loss

    def _grow(self, parameter: Tensor) -> int:
        """Counts the update in the parameter's state, which has fairseq's format, and returns the count."""
        state = self.state[parameter]
        if not state:
            state["step"] = 0
        for name in ("exp_avg", "exp_avg_sq"):
            if name not in state:
                state[name] = torch.zeros_like(parameter, dtype=torch.float32)
            elif state[name].device != parameter.device or state[name].dtype != torch.float32:  # from a checkpoint
                state[name] = state[name].to(parameter.device, torch.float32)
        state["step"] += 1
        return int(state["step"])

    def _update(self, parameters: list[Tensor], group: dict[str, Any], age: int) -> None:
        half = parameters[0].dtype in HALF
        values, gradients = parameters, [parameter.grad for parameter in parameters if parameter.grad is not None]
        if half:
            values, gradients = _float_copies(parameters), _float_copies(gradients)
        beta1, beta2 = group["betas"]
        steps = torch.full((len(parameters),), age - 1.0, device=parameters[0].device)
        adamw(
            values,
            gradients,
            [self.state[parameter]["exp_avg"] for parameter in parameters],
            [self.state[parameter]["exp_avg_sq"] for parameter in parameters],
            [],
            list(steps.unbind()),
            fused=True,
            amsgrad=False,
            maximize=False,
            lr=group["lr"],
            beta1=beta1,
            beta2=beta2,
            weight_decay=group["weight_decay"],
            # fairseq adds epsilon before the correction of the second moment's bias, PyTorch after it
            eps=group["eps"] / math.sqrt(1 - beta2**age),
        )
        if half:
            torch._foreach_copy_(parameters, values)


def _buckets(parameters: list[Tensor]) -> Iterator[list[Tensor]]:
    """The parameters in order, in lists of at most _BUCKET numbers or of one tensor."""
    bucket: list[Tensor] = []
    for parameter in parameters:
        if bucket and sum(each.numel() for each in bucket) + parameter.numel() > _BUCKET:
            yield bucket
            bucket = []
        bucket.append(parameter)
    yield bucket


def _float_copies(tensors: Sequence[Tensor]) -> list[Tensor]:
    flat = torch.empty(sum(each.numel() for each in tensors), dtype=torch.float32, device=tensors[0].device)
    copies = _views(flat, tensors)
    torch._foreach_copy_(copies, list(tensors))
    return copies


def _views(flat: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
    """`flat` split into parts with the tensors' shapes."""
    parts = flat.split([each.numel() for each in tensors])
    return [part.view(each.shape) for part, each in zip(parts, tensors, strict=True)]


@register_optimizer(NAME, dataclass=adam.FairseqAdamConfig)
class FairseqAdam(adam.FairseqAdam):
    """`FusedAdam`, with scaling and norm of gradients computed over lists of tensors.

    It has the name of fairseq's class, because a checkpoint stores it and resumes only with the same name.
    """

    def __init__(self, cfg: adam.FairseqAdamConfig, params: Any) -> None:
        FairseqOptimizer.__init__(self, cfg)
        for flag in ("use_old_adam", "fp16_adam_stats", "tpu"):
            if getattr(cfg, flag, False):
                name = "--" + flag.replace("_", "-")
                raise UsageError(f"{name} is not supported by --optimizer {NAME}: use --optimizer adam")
        self._optimizer = FusedAdam(params, **self.optimizer_config)

    def _gradients(self) -> list[Tensor]:
        return [parameter.grad for parameter in self.params if parameter.grad is not None]

    @torch.no_grad()
    def multiply_grads(self, c: float | Tensor) -> None:
        """Multiplies all gradients by `c`."""
        if not self._optimizer.on_gpu:
            super().multiply_grads(c)
            return
        if isinstance(c, Tensor) and not c.is_cpu:
            c = c.to(torch.float32)
        if gradients := self._gradients():
            torch._foreach_mul_(gradients, c)

    @torch.no_grad()
    def clip_grad_norm(self, max_norm: float, aggregate_norm_fn: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """Norm of all gradients before clipping, in float32 on the host, because the trainer checks that it is finite.

        This is the update's only synchronisation; fairseq's own update has three to five.
        """
        gradients = self._gradients()
        if not gradients:
            return torch.tensor(0.0)
        norms = torch._foreach_norm(gradients, 2, dtype=torch.float32)
        norm = norms[0] if len(norms) == 1 else torch.linalg.vector_norm(torch.stack(norms))
        if aggregate_norm_fn is not None:
            norm = aggregate_norm_fn(norm)
        norm = norm.cpu()
        if max_norm > 0:
            coefficient = (float(max_norm) / (norm + 1e-6)).clamp_(max=1)
            if coefficient != 1:
                self.multiply_grads(coefficient)
        return norm


class FP16Optimizer(optim.FP16Optimizer):
    """fairseq's wrapper for --fp16 and --bf16, which copies all gradients at once and all parameters at once.

    The float32 master copies and checkpoints have fairseq's layout: one flat tensor with --fp16, one tensor per
    parameter with --bf16 or --fp16-no-flatten-grads. Its name is fairseq's for the same reason as `FairseqAdam`'s.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.has_flat_params:
            (flat,) = self.fp32_params.values()
            self._masters = _views(flat.data, self.fp16_params)
            self._master_gradients = _views(flat.grad, self.fp16_params)
        else:
            self._masters = [master.data for master in self.fp32_params]
            self._master_gradients = [master.grad for master in self.fp32_params]

    def zero_grad(self) -> None:
        """Drops the model's gradients. The next copy replaces the master copies' gradients."""
        for parameter in self.fp16_params:
            parameter.grad = None
        self._needs_sync = True
        if self.scaler is not None:
            self._multiply_factor = 1.0 / float(self.scaler.loss_scale)

    def clip_grad_norm(self, max_norm: float, aggregate_norm_fn: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """Like fairseq's, but on the host: with several processes the factor, the sample size, is on the GPU."""
        self._multiply_factor = float(self._multiply_factor)
        return super().clip_grad_norm(max_norm, aggregate_norm_fn)

    @torch.no_grad()
    def _sync_fp16_grads_to_fp32(self) -> None:
        if not self._needs_sync:
            return
        self._needs_sync = False
        pairs = list(zip(self._master_gradients, (each.grad for each in self.fp16_params), strict=True))
        if unset := [master for master, gradient in pairs if gradient is None]:
            torch._foreach_zero_(unset)
        if found := [(master, gradient) for master, gradient in pairs if gradient is not None]:
            torch._foreach_copy_([master for master, _ in found], [gradient for _, gradient in found])

    @torch.no_grad()
    def _sync_fp32_params_to_fp16(self) -> None:
        torch._foreach_copy_([each.data for each in self.fp16_params], self._masters)
