"""Reads backward or of every n-th element: from aligned vectors, where sizes and addresses allow these."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

from fusewright import DataType, FusionDefinition, ParamsError, PointwiseParams
from fusewright.torch_compile import decompositions, from_fx
from tests.schedulers import proposals as p

Tensor = torch.Tensor
BFLOAT16, FLOAT, BYTES, DOUBLE = torch.bfloat16, torch.float32, torch.uint8, torch.float64
COMPLEX, LONG = torch.complex64, torch.int64


def definition(function: Callable[[Tensor], Tensor], x: Tensor) -> FusionDefinition:
    return from_fx(make_fx(function, decompositions(), tracing_mode="fake")(x)).definitions[0]


def values(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.randint(0, 100, shape, device=device).to(dtype)


def pool(x: Tensor) -> Tensor:
    return torch.maximum(torch.maximum(x[:, ::2, ::2], x[:, ::2, 1::2]), x[:, 1::2, 1::2])


@pytest.mark.parametrize(
    "function, shape, dtype, width, loads",
    [
        (lambda x: x.flip(-1), (6, 64), BFLOAT16, 8, 1),
        (lambda x: x.flip(-1), (6, 64), FLOAT, 4, 1),
        (lambda x: x.flip(-1), (6, 64), BYTES, 16, 1),
        (lambda x: x.flip(-1), (6, 64), DOUBLE, 2, 1),
        (lambda x: x.flip(0, -1), (6, 64), BFLOAT16, 8, 1),
        (lambda x: x.flip(-1) - x, (6, 64), FLOAT, 4, 1),
        (lambda x: x[:, 8:40].flip(-1), (6, 64), BFLOAT16, 8, 1),
        (lambda x: x.flip(0), (256,), BFLOAT16, 8, 1),
        (lambda x: x[:, ::2] * 3, (6, 64), BFLOAT16, 8, 2),
        (lambda x: x[:, 1::2] * 3, (6, 64), FLOAT, 4, 2),
        (lambda x: x[:, ::2] - x[:, 1::2], (6, 64), BFLOAT16, 8, 2),
        (lambda x: x[:, 2::3] * 3, (6, 96), BFLOAT16, 8, 3),
        (lambda x: x[:, 3::4] * 3, (6, 128), BYTES, 16, 4),
        (lambda x: x[:, 3::4] * 3, (6, 96), DOUBLE, 2, 4),  # the offset is more than a vector
        (lambda x: x[:, 0] - x[:, 1], (192, 2), FLOAT, 4, 2),
        (lambda x: x[:, 2] * 3, (192, 3), BFLOAT16, 8, 3),
        (lambda x: x[:, 2] * 3, (192, 3), DOUBLE, 2, 3),
        (lambda x: x[:, 0] * 2, (100, 3), BFLOAT16, 4, 3),  # rows of no 8 elements
        (lambda x: x[:, 2:44:3] * 2, (32, 48), FLOAT, 2, 3),
        (lambda x: x[:, 1] + x[:, 2], (192, 3), LONG, 2, 3),
        (lambda x: x[:, 2::3] * 2, (12, 48), COMPLEX, 2, 3),
        (lambda x: x[:, 0] / 255, (1008, 3), BYTES, 4, 3),  # beside floats
        (pool, (3, 12, 64), BFLOAT16, 8, 4),
        (lambda x: F.pad(x.flip(-1), (0, 0, 1, 2)), (6, 64), BFLOAT16, 8, 1),
    ],
)
def test_elements_are_taken_from_vectors(
    function: Callable[[Tensor], Tensor],
    shape: tuple[int, ...],
    dtype: torch.dtype,
    width: int,
    loads: int,
    target: torch.device,
) -> None:
    x = values(shape, dtype, target)
    fd = definition(function, x)
    [kernel] = fd.kernels_for([x])
    assert isinstance(kernel.params, PointwiseParams)
    assert (kernel.params.vectorization_factor, kernel.params.picked_inputs) == (width, (0,))
    blocks = [line for line in kernel.cuda_text.splitlines() if "_block" in line and "fw::load" in line]
    assert len(blocks) == loads
    (made,) = fd.execute([x])
    assert torch.equal(made, function(x))


@pytest.mark.parametrize(
    "function, shape",
    [
        (lambda x: x.flip(-1) * 2, (6, 63)),
        (lambda x: x[:, 3:35].flip(-1) * 2, (6, 64)),  # ends beside a vector
        (lambda x: x[:, ::2] * 2, (6, 65)),
        (lambda x: x[:, 2::2] * 2, (6, 66)),  # starts beside a block
        (lambda x: x[:, ::16] * 2, (6, 256)),  # each element lies in another sector
        (lambda x: x[::2] * 2, (6, 64)),  # the rows are every second one
    ],
)
def test_other_elements_are_read_as_before(
    function: Callable[[Tensor], Tensor], shape: tuple[int, ...], target: torch.device
) -> None:
    x = values(shape, BFLOAT16, target)
    fd = definition(function, x)
    [kernel] = fd.kernels_for([x])
    assert isinstance(kernel.params, PointwiseParams) and kernel.params.picked_inputs == ()
    (made,) = fd.execute([x])
    assert torch.equal(made, function(x))


def test_weights_that_lie_side_by_side_for_each_channel_are_taken_from_vectors(target: torch.device) -> None:
    """They come from the caches, so what they allow is no limit for the vectors of the rows."""

    def convolved(x: Tensor, weights: Tensor) -> Tensor:
        padded = F.pad(x, (0, 0, 3, 0))
        return sum(padded[i : i + len(x)] * weights[:, i] for i in range(4))  # type: ignore[return-value]

    inputs = (values((80, 64), BFLOAT16, target), values((64, 4), BFLOAT16, target))
    fd = p.definition(convolved, *inputs)
    [kernel] = fd.kernels_for(inputs)
    assert (kernel.params.vectorization_factor, kernel.params.picked_inputs) == (8, (1,))
    assert "fw::load<8>(&T1" not in kernel.cuda_text and "T1[" not in kernel.cuda_text.replace("&T1[", "")
    (made,) = fd.execute(inputs)
    torch.testing.assert_close(made, convolved(*inputs), atol=0.5, rtol=2e-2)


def flipped(static: bool) -> FusionDefinition:
    with FusionDefinition() as fd:
        x = fd.define_tensor([6, 64] if static else [-1, -1], True, DataType.Float)
        fd.add_output(fd.ops.flip(x, [1]))
    return fd


@pytest.mark.parametrize("static", [True, False])
def test_addresses_and_sizes_of_a_call_decide(static: bool, target: torch.device) -> None:
    """Each kernel serves what it was made for, whichever call comes first."""
    fd, memory = flipped(static), values((400,), FLOAT, target)
    given = [memory[:384].view(6, 64), memory[1:385].view(6, 64), memory[2:386].view(6, 64)]
    given += [] if static else [memory[:378].view(6, 63), memory[:372].view(6, 62)]
    for x in (*given, *given[::-1]):
        (made,) = fd.execute([x])
        assert torch.equal(made, x.flip(1))
    widths = [fd.kernels_for([x])[0].params.vectorization_factor for x in given]
    assert widths[0] == 4 and fd.kernels_for([given[0]])[0].params.picked_inputs == (0,)
    assert fd.kernels_for([given[1]])[0].params.picked_inputs == ()


def test_rows_that_are_parts_of_longer_ones(target: torch.device) -> None:
    """Strides have to be multiples of a vector, where blocks of several are read, too."""

    def flipped(x: Tensor) -> Tensor:
        return x.flip(-1) + 1

    def every_second(x: Tensor) -> Tensor:
        return x[:, ::2] + 1

    for length, picked in ((72, (0,)), (68, (0,)), (70, ())):
        x = values((6, length), FLOAT, target)[:, :64]
        for function in (flipped, every_second):
            fd = definition(function, x)
            assert fd.kernels_for([x])[0].params.picked_inputs == picked
            (made,) = fd.execute([x])
            assert torch.equal(made, function(x))


def test_an_input_that_is_written_is_read_by_element(target: torch.device) -> None:
    """Other threads may write the elements of a vector that this one does not take."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([6, 64], True, DataType.Float)
        fd.add_output(fd.ops.where(x > 50.0, fd.ops.flip(x, [1]), x), alias_input=x)
    x = values((6, 64), FLOAT, target)
    expected = torch.where(x > 50, x.flip(1), x)
    picked = [kernel.params.picked_inputs for kernel in fd.kernels_for([x]) if kernel.params is not None]
    fd.execute([x])
    assert torch.equal(x, expected)
    assert picked == [()]


@pytest.mark.parametrize("width", [2, 4, 8])
@pytest.mark.parametrize(
    "function, shape",
    [
        (lambda x: x.flip(-1) * 2, (6, 64)),
        (lambda x: x[:, 1::3] * 2, (6, 96)),
        (lambda x: x[:, 3::4] * 2, (6, 128)),
    ],
)
def test_widths_that_a_user_states(
    function: Callable[[Tensor], Tensor], shape: tuple[int, ...], width: int, target: torch.device
) -> None:
    x = values(shape, BFLOAT16, target)
    fd = definition(function, x)
    (made,) = fd.execute([x], schedules={0: {"vectorization_factor": width, "picked_inputs": (0,)}})
    assert torch.equal(made, function(x))
    assert "_block" in fd.last_cuda_code()


def test_a_vector_that_is_no_single_access_is_loaded_by_element(target: torch.device) -> None:
    x = values((6, 64), DOUBLE, target)
    fd = definition(lambda x: x.flip(-1) * 2, x)
    (made,) = fd.execute([x], schedules={0: {"vectorization_factor": 4, "picked_inputs": (0,)}})
    assert torch.equal(made, x.flip(-1) * 2)
    assert "_block" not in fd.last_cuda_code()


def test_another_input_decides_the_width(target: torch.device) -> None:
    """Vectors are as narrow as its address allows."""

    def function(x: Tensor, y: Tensor) -> Tensor:
        return x[:, 1::3] + y

    x, y = values((6, 96), BFLOAT16, target), values((6 * 32 + 4,), BFLOAT16, target)[4:].view(6, 32)
    [fd] = from_fx(make_fx(function, decompositions(), tracing_mode="fake")(x, y)).definitions
    params = fd.kernels_for([x, y])[0].params
    assert (params.vectorization_factor, params.picked_inputs) == (4, (0,))
    (made,) = fd.execute([x, y])
    assert torch.equal(made, function(x, y))


def test_vectors_of_one_input_are_picked_and_start_anywhere(target: torch.device) -> None:
    def function(x: Tensor) -> Tensor:
        return x[:, 1:1025] + x[:, 1024:].flip(-1)

    x = values((6, 2048), FLOAT, target)
    fd = definition(function, x)
    [kernel] = fd.kernels_for([x])
    assert isinstance(kernel.params, PointwiseParams)
    assert kernel.params.picked_inputs == kernel.params.unaligned_inputs == (0,)
    assert "_block" in kernel.cuda_text and "_around" in kernel.cuda_text
    (made,) = fd.execute([x])
    assert torch.equal(made, function(x))


@pytest.mark.parametrize("same", [True, False], ids=["of the same input", "of another input"])
def test_other_reads_beside_picked_ones_are_by_element(same: bool, target: torch.device) -> None:
    """They limit vectors, whichever input they are of."""

    def function(x: Tensor, *others: Tensor) -> Tensor:
        return x.flip(-1) + (others[0] if others else x).T.flip(0)

    inputs = [values((64, 64), BFLOAT16, target) for _ in range(1 if same else 2)]
    [fd] = from_fx(make_fx(function, decompositions(), tracing_mode="fake")(*inputs)).definitions
    params = fd.kernels_for(inputs)[0].params
    assert (params.vectorization_factor, params.picked_inputs) == (4, (0,))
    (made,) = fd.execute(inputs)
    assert torch.equal(made, function(*inputs))


def test_components_of_any_number_of_points(target: torch.device) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, 3], True, DataType.Float)
        fd.add_output(fd.ops.select(x, 2, 1) * 2.0)
    widths = []
    for count in (64, 66, 1024, 65):
        points = values((count, 3), FLOAT, target)
        params = fd.kernels_for([points])[0].params
        widths.append(params.vectorization_factor if params.picked_inputs else 1)
        assert torch.equal(fd.execute([points])[0], points[:, 2] * 2)
    assert widths[0] == widths[2] == 4 and widths[3] == 1


@pytest.mark.parametrize(
    "position, what", [(1, "an input tensor"), (0, "read backward or every n-th element")]
)
def test_other_inputs_are_refused(position: int, what: str) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([6, 64], True, DataType.Float)
        fd.add_output(fd.ops.neg(x))
    x = torch.zeros(6, 64)
    edit = {0: {"picked_inputs": (position,)}}
    with pytest.raises(ParamsError, match=what):
        fd.execute([x], schedules=edit)
