"""A pretend GPU for machines without one: tensors that say `cuda:0`, compute on the CPU, and have their calls counted.

    with emulated_cuda() as counts:
        model.cuda()(tokens.cuda())
    counts.calls.total(), counts.synchronisations

Mixing devices raises, as on a GPU. It can't see kernels and their types, CUDA's rounding, several GPUs or streams.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import torch._dynamo  # which the first operator within a mode imports, and which wants torch.cuda as it is
from torch import Tensor
from torch.optim.optimizer import _foreach_supported_types as _optimised_together
from torch.utils._foreach_utils import _foreach_supported_types as _computed_together
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map

DEVICE = torch.device("cuda", 0)

_SYNCHRONISING = {
    "_local_scalar_dense", "nonzero", "masked_select", "equal", "_unique", "_unique2", "unique_dim",
    "unique_consecutive", "bincount",
}  # fmt: skip
_INDEXING = {"index", "_unsafe_index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put"}
_COPIES = {"copy_", "_to_copy", "_foreach_copy_"}
# what a GPU has no kernel to run for, beside views
_FREE = {
    "empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided", "lift_fresh", "_unsafe_view", "resize_",
    "set_", "record_stream", "is_pinned",
}  # fmt: skip
_TORCH = str(Path(torch.__file__).parent)


@dataclass
class Counts:
    """What a device was asked for. A fused or foreach operator is one call, as on a GPU; views are none.

    calls: of each operator. traffic: bytes that each read and wrote. synchronisations: where the host waited for the
    device, "place: operator". host: where values are computed.
    """

    calls: Counter[str] = field(default_factory=Counter)
    traffic: Counter[str] = field(default_factory=Counter)
    synchronisations: Counter[str] = field(default_factory=Counter)
    host: str = "cpu"

    def clear(self) -> None:
        """Begins at 0 again."""
        for each in (self.calls, self.traffic, self.synchronisations):
            each.clear()


@contextmanager
def emulated_cuda(*, values: bool = True) -> Iterator[Counts]:
    """Within the block there is a GPU, `cuda:0`. What lies on it stays usable within the block alone.

    :param values: whether anything is computed; without, models of any size are counted in no time.
    """
    counts = Counts(host="cpu" if values else "meta")
    mode = _Mode(counts)
    before = torch._C._only_lift_cpu_tensors()
    # how PyTorch's own FakeTensor does without a GPU: torch.tensor(..., device="cuda") makes its copy within the mode
    torch._C._ensureCUDADeviceGuardSet()
    torch._C._set_only_lift_cpu_tensors(True)
    try:
        with (
            mock.patch.multiple(torch.cuda, **_cuda(counts)),
            mock.patch.multiple(torch, Generator=_Generator),
            mock.patch.multiple(Tensor, pin_memory=lambda self, *_: self),
            torch.autograd.set_multithreading_enabled(False),
            mode,
        ):
            yield counts
    finally:
        torch._C._set_only_lift_cpu_tensors(before)


class DeviceTensor(torch.Tensor):
    """A tensor on the pretend GPU. host: its values. C++ sees a meta tensor: autograd would ask CUDA for streams."""

    host: Tensor
    device = property(lambda self: DEVICE)  # type: ignore[assignment]
    is_cuda, is_cpu, is_meta = True, False, False

    @staticmethod
    def __new__(cls, host: Tensor, counts: Counts) -> DeviceTensor:
        return torch.Tensor._make_wrapper_subclass(
            cls, host.size(), strides=host.stride(), storage_offset=host.storage_offset(), dtype=host.dtype,
            device="meta",
        )  # fmt: skip

    def __init__(self, host: Tensor, counts: Counts) -> None:
        self.host, self.counts = host, counts

    def __repr__(self) -> str:
        return f"DeviceTensor({self.host})"

    def __tensor_flatten__(self) -> tuple[list[str], Counts]:  # so that Module.to keeps parameters' identity
        return ["host"], self.counts

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], counts: Counts, *_: Any) -> DeviceTensor:
        return DeviceTensor(inner["host"], counts)

    def __reduce_ex__(self, protocol: Any) -> Any:  # a file of it holds its values
        return self.host.__reduce_ex__(protocol)

    def get_device(self) -> int:
        return 0

    def cuda(self, *_: Any, **__: Any) -> DeviceTensor:
        return self

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def numpy(self, **_: Any) -> Any:
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first")

    def to(self, *args: Any, **kwargs: Any) -> Tensor:
        copy = kwargs.pop("copy", False)
        other = args[0] if args and isinstance(args[0], Tensor) else None
        if other is not None:
            args = (other.device, other.dtype, *args[1:])
        device, dtype, asynchronous, memory_format = torch._C._nn._parse_to(*args, **kwargs)
        stays = (device is None or device.type == "cuda") and dtype in (None, self.dtype) and not copy
        if stays and (memory_format is None or self.is_contiguous(memory_format=memory_format)):
            return self
        return torch.ops.aten._to_copy(
            self, dtype=dtype, device=device or DEVICE, non_blocking=asynchronous, memory_format=memory_format
        )

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = getattr(function, "__name__", ""), kwargs or {}
        if torch.is_autocast_enabled("cuda"):
            args, kwargs = _autocast(name, args, kwargs)
        with torch._C.DisableTorchFunctionSubclass():
            return _AS_ON_A_GPU.get(name, function)(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        first = next(each for each in tree_leaves((args, kwargs)) if isinstance(each, DeviceTensor))
        return _run(first.counts, function, args, kwargs or {})


for _types in _optimised_together, _computed_together:
    _types.append(DeviceTensor)  # type: ignore[arg-type]


class _Mode(TorchDispatchMode):
    def __init__(self, counts: Counts) -> None:
        super().__init__()
        self.counts = counts

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.is_inference_mode_enabled():  # where operators come here before they are taken apart
            with self:
                result = function.decompose(*args, **(kwargs or {}))
            if result is not NotImplemented:
                return result
        return _run(self.counts, function, args, kwargs or {})


class _Generator(torch.Generator):
    def __new__(cls, device: Any = "cpu") -> _Generator:
        return super().__new__(cls, "cpu")


def _run(counts: Counts, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """An operator, computed by the CPU on the tensors' values."""
    name = function._schema.name.partition("::")[2]
    tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
    on_device = [each for each in tensors if isinstance(each, DeviceTensor)]
    elsewhere = [each for each in tensors if not isinstance(each, DeviceTensor)]
    device = kwargs.get("device")
    to_device = bool(on_device) if device is None else torch.device(device).type in ("cuda", "meta")
    if not on_device and not to_device:
        kwargs.pop("pin_memory", None)
        return function(*args, **kwargs)
    if device is not None and (torch.device(device).index or 0) > 0:
        raise RuntimeError("CUDA error: invalid device ordinal")
    if name not in _COPIES:
        _refuse_mixed(name, args, on_device, elsewhere)
    if _synchronises(name, args, kwargs, to_device=to_device):
        counts.synchronisations[f"{_place()}: {name}"] += 1

    host_args, host_kwargs = tree_map(
        lambda each: each.host if isinstance(each, DeviceTensor) else each, (args, kwargs)
    )
    if device is not None:
        host_kwargs["device"] = counts.host if to_device else "cpu"
    host_kwargs.pop("pin_memory", None)
    if name == "_to_copy":  # not a view of what it copies
        host_kwargs.pop("non_blocking", None)
    if name == "_local_scalar_dense" and counts.host == "meta":
        return 0  # a value that there is not
    result = function(*host_args, **host_kwargs)
    if name not in _FREE and not function.is_view:
        read = tree_leaves((args, {key: each for key, each in kwargs.items() if key != "out"}))
        _count(counts, name, [*read, *tree_leaves(result)])

    written = [each for each in function._schema.arguments if each.alias_info is not None and each.alias_info.is_write]
    if written and isinstance(result, Tensor):
        names = [each.name for each in function._schema.arguments]
        place = names.index(written[0].name)
        given = args[place] if place < len(args) else kwargs[written[0].name]
        return given
    if not to_device:
        return result
    inference = torch.is_inference_mode_enabled()
    if function.is_view and on_device:  # of an ordinary tensor an ordinary one, also within inference mode
        inference = on_device[0].is_inference()
    with torch.inference_mode(inference):
        return tree_map(lambda each: DeviceTensor(each, counts) if isinstance(each, Tensor) else each, result)


# Where a GPU runs one kernel, and C++ decides for several by the device that it sees.
def _dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    return torch.native_dropout(x, p, True)[0] if training and p else x


def _rms_norm(x: Tensor, shape: Any, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    return torch.ops.aten._fused_rms_norm(x, list(shape), weight, eps)[0]


class _Attention(torch.autograd.Function):
    """Attention as one call forward and one backward, by PyTorch's plain formula."""

    @staticmethod
    def forward(
        ctx: Any, query: DeviceTensor, key: Tensor, value: Tensor, mask: Tensor | None, *options: Any
    ) -> Tensor:
        if mask is not None and mask.dtype not in (torch.bool, query.dtype):
            raise RuntimeError(f"attn_mask is of {mask.dtype} and query of {query.dtype}, at {_place()}")
        with torch.enable_grad(), _disable_current_modes():
            inputs = [each.host.detach().requires_grad_() for each in (query, key, value)]
            ctx.result = torch._scaled_dot_product_attention_math(
                *inputs, None if mask is None else mask.host, *options, enable_gqa=key.size(1) != query.size(1)
            )[0]
        ctx.inputs, ctx.counts = inputs, query.counts
        y = DeviceTensor(ctx.result.detach(), query.counts)
        _count(query.counts, "scaled_dot_product_attention", [query, key, value, mask, y])
        return y

    @staticmethod
    def backward(ctx: Any, gradient: DeviceTensor) -> Any:
        with _disable_current_modes():
            gradients = torch.autograd.grad(ctx.result, ctx.inputs, gradient.host)
        _count(ctx.counts, "scaled_dot_product_attention_backward", [*ctx.inputs, ctx.result, gradient, *gradients])
        return *(DeviceTensor(each, ctx.counts) for each in gradients), None, None, None


def _attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    assert enable_gqa or key.size(1) == query.size(1)
    return _Attention.apply(query, key, value, attn_mask, dropout_p, is_causal)


def _new(x: Tensor, *size: Any) -> Tensor:
    return torch.empty(*size, dtype=x.dtype, device=DEVICE)


def _new_tensor(x: Tensor, data: Any) -> Tensor:
    return torch.tensor(data, dtype=x.dtype, device=DEVICE)


_AS_ON_A_GPU: dict[str, Any] = {
    "dropout": _dropout, "rms_norm": _rms_norm, "scaled_dot_product_attention": _attention, "new": _new,
    "new_tensor": _new_tensor,
}  # fmt: skip

# The types of torch.autocast("cuda"), https://docs.pytorch.org/docs/stable/amp.html#cuda-op-specific-behavior
_LOW = {"conv1d", "conv2d", "conv3d", "addmm", "matmul", "__matmul__", "einsum", "mm", "mv", "linear", "addbmm",
        "baddbmm", "bmm", "scaled_dot_product_attention"}  # fmt: skip
_FLOAT32 = {"exp", "log", "log2", "log1p", "reciprocal", "rsqrt", "pow", "__pow__", "softplus", "layer_norm",
            "group_norm", "nll_loss", "kl_div", "mse_loss", "softmax", "log_softmax", "cumprod", "cumsum", "sum",
            "cross_entropy", "binary_cross_entropy_with_logits", "norm", "logsumexp"}  # fmt: skip


def _autocast(name: str, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    if name not in _LOW | _FLOAT32:
        return args, kwargs
    dtype = torch.get_autocast_dtype("cuda") if name in _LOW else torch.float32

    def cast(each: Any) -> Any:
        castable = isinstance(each, DeviceTensor) and each.is_floating_point() and each.dtype != torch.float64
        return each.to(dtype) if castable else each

    return tree_map(cast, (tuple(args), kwargs))


def _count(counts: Counts, name: str, tensors: Any) -> None:
    counts.calls[name] += 1
    counts.traffic[name] += _nbytes(tensors)


def _refuse_mixed(name: str, args: Any, on_device: list[DeviceTensor], elsewhere: list[Tensor]) -> None:
    """Numbers may be on the CPU, and indices into a tensor on the device."""
    if not on_device:
        return
    wrong = [each for each in elsewhere if each.dim()]
    if name in _INDEXING and isinstance(args[0], DeviceTensor):
        wrong = [each for each in wrong if all(each is not index for index in args[1])]
    if wrong or (name.endswith("_") and not isinstance(tree_leaves(args[0])[0], DeviceTensor)):
        shapes = ", ".join(str(tuple(each.shape)) for each in elsewhere)
        raise RuntimeError(
            f"Expected all tensors to be on the same device: {name} at {_place()} got some on {DEVICE} and some of "
            f"shape {shapes} on the CPU"
        )


def _synchronises(name: str, args: Any, kwargs: dict[str, Any], *, to_device: bool) -> bool:
    if name in _COPIES:
        source = tree_leaves(args[0] if name == "_to_copy" else args[1])[0]
        target = to_device if name == "_to_copy" else isinstance(tree_leaves(args[0])[0], DeviceTensor)
        from_device = isinstance(source, DeviceTensor)
        if from_device == target:
            return False
        asynchronous = kwargs.get("non_blocking") or (name == "copy_" and len(args) > 2 and args[2])
        return not asynchronous  # which is taken to be from or to pinned memory
    if name in _INDEXING:
        masks = [each for each in args[1] if each is not None and each.dtype in (torch.bool, torch.uint8)]
        filled = name.startswith("index_put") and args[2].numel() == 1  # becomes masked_fill
        uploaded = any(each is not None and each.dim() and not isinstance(each, DeviceTensor) for each in args[1])
        return uploaded or (bool(masks) and not filled)
    if name == "repeat_interleave":
        return kwargs.get("output_size") is None
    return name in _SYNCHRONISING


def _nbytes(values: Any) -> int:
    """Of the tensors' elements, those that an expanded one repeats counted once."""
    total = 0
    for each in values:
        if isinstance(each, Tensor):
            count = each.element_size()
            for size, stride in zip(each.shape, each.stride(), strict=True):
                count *= size if stride else min(size, 1)
            total += count
    return total


def _place() -> str:
    """The innermost line outside PyTorch that is being executed."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if file != __file__ and not file.startswith((_TORCH, "<")):
            return f"{'/'.join(Path(file).parts[-3:])}:{frame.f_lineno}"
        frame = frame.f_back
    return "?"


def _cuda(counts: Counts) -> dict[str, Any]:
    """What torch.cuda says and does while there is the pretend GPU."""

    def synchronize(device: Any = None) -> None:
        counts.synchronisations[f"{_place()}: synchronize"] += 1

    def nothing(*_: Any, **__: Any) -> None:
        pass

    properties = SimpleNamespace(name="emulated", major=9, minor=0, total_memory=80 * 2**30, multi_processor_count=1)
    return {
        "_lazy_init": nothing, "is_available": lambda: True, "is_initialized": lambda: True,
        "is_bf16_supported": lambda *_, **__: True, "device_count": lambda: 1, "current_device": lambda: 0,
        "set_device": nothing, "get_device_name": lambda *_: properties.name,
        "get_device_properties": lambda *_: properties,
        "get_device_capability": lambda *_: (properties.major, properties.minor), "synchronize": synchronize,
        "Event": lambda **_: SimpleNamespace(record=nothing, synchronize=synchronize),
        "current_stream": lambda *_: SimpleNamespace(synchronize=synchronize), "empty_cache": nothing,
        "reset_peak_memory_stats": nothing, "max_memory_allocated": lambda *_: 0,
        "memory_summary": lambda *_, **__: "", "manual_seed": nothing, "manual_seed_all": nothing,
        "get_rng_state": lambda *_: torch.get_rng_state(),
        "set_rng_state": lambda state, *_: torch.set_rng_state(state),
    }  # fmt: skip
