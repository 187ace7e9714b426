"""Arguments of kernels keep their targets alive, and refuse tensors that a kernel would misread."""

from __future__ import annotations

import ctypes
import gc
import weakref

import pytest
import torch

from rskip.cpu.structures import Attention, Linear, Operation, Operations, Seen, addresses


def test_arguments_hold_what_they_point_to():
    """Tests tensors, nested structures, and the structures in a table of operations."""
    place, x, weight = torch.zeros(3, dtype=torch.int32), torch.zeros(4), torch.zeros(5, dtype=torch.uint8)
    expected = place.data_ptr(), x.data_ptr()
    held = [weakref.ref(each) for each in (place, x, weight)]
    attention, linear = Attention(seen=Seen(place=place)), Linear(x=x, weight=weight)
    operations = Operations([Operation(arguments=attention, kernel=0), Operation(arguments=linear, kernel=2)])
    del place, x, weight, attention, linear
    gc.collect()
    assert all(each() is not None for each in held)
    table = (Operation * 2).from_address(operations.operations)
    seen = Seen.from_address(Attention.from_address(table[0].arguments).seen)
    assert (seen.place, Linear.from_address(table[1].arguments).x) == expected
    del operations
    gc.collect()
    assert all(each() is None for each in held)


def test_parameters_may_get_another_storage():
    """`Module.to` may replace the storage while a program waits for its next run."""
    parameter = torch.nn.Parameter(torch.arange(3.0))
    arguments, array = Linear(x=parameter), addresses([parameter])
    parameter.data = torch.zeros(3)
    gc.collect()
    for address in (arguments.x, array[0]):
        assert list((ctypes.c_float * 3).from_address(address)) == [0, 1, 2]


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        ("x", torch.zeros(3, dtype=torch.float64), "x has the type float64: expected float32"),
        ("x", torch.zeros(3, dtype=torch.int32), "x has the type int32"),
        ("weight", torch.zeros(3), "weight has the type float32: expected uint8"),
        ("x", torch.zeros(3, 3).T, "contiguous and on the CPU"),
        ("x", torch.zeros(3, device="meta"), "contiguous and on the CPU"),
    ],
)
def test_a_tensor_that_the_kernel_would_misread_is_refused(name, tensor, message):
    with pytest.raises(TypeError, match=message):
        Linear(**{name: tensor})


def test_all_rows_have_one_type():
    arguments = Linear(x=torch.zeros(3, dtype=torch.bfloat16))
    assert arguments.type == 1
    with pytest.raises(TypeError, match="bias has the type float32: expected bfloat16"):
        arguments.point("bias", torch.zeros(3))
