"""Joins whose pieces are stored where they are computed: when, and what is computed."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence

import pytest
import torch
import torch.nn.functional as F

from fusewright import DataType, FusionCache, FusionDefinition
from fusewright.core.options import Options
from fusewright.core.tracing import Tracer
from fusewright.ir import Join
from fusewright.segment import decision
from fusewright.segment.state import State, is_better
from tests.segment.test_few_elements import definition

Tensor = torch.Tensor


def norm(x: Tensor) -> Tensor:
    return (x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def grouped(x: Tensor) -> Tensor:
    return F.silu(F.group_norm(x.float(), 4)).to(x.dtype)


def with_mean(x: Tensor) -> Tensor:
    return torch.cat([x, x.float().mean(-1, keepdim=True).to(x.dtype)], -1)


def centered(x: Tensor) -> Tensor:
    return torch.cat([x, x - x.float().mean(-1, keepdim=True).to(x.dtype)], -1)


def beside(x: Tensor, y: Tensor) -> Tensor:
    return torch.cat([norm(x), y], -1)


def both(x: Tensor, y: Tensor) -> Tensor:
    return torch.cat([norm(x), norm(y)], 0)


def padded(x: Tensor) -> Tensor:
    return F.pad(norm(x), (3, 1, 0, 2), value=2.0)


def partial_rotation(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    n = norm(x)
    turned = torch.cat([-n[..., 4:8], n[..., :4]], -1)
    return torch.cat([n[..., :8] * cos[:, None] + turned * sin[:, None], n[..., 8:]], -1)


@pytest.mark.parametrize(
    ("function", "shapes", "schedulers"),
    [
        (with_mean, [(24576, 504)], ["reduction"]),
        (centered, [(8192, 1024)], ["inner_persistent"]),
        (beside, [(8192, 2048), (8192, 64)], ["inner_persistent", "pointwise"]),
        (both, [(8192, 2048), (4096, 2048)], ["horizontal"]),
        (partial_rotation, [(4096, 32, 128), (4096, 8), (4096, 8)], ["inner_persistent"]),
        # To store the rows and the mean would take two kernels, the second one to read all inputs again.
        (lambda x: torch.cat([x, x * 2], -1), [(4096, 4096)], ["pointwise"]),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_each_element_is_moved_once(
    function: Callable[..., Tensor], shapes: Sequence[tuple[int, ...]], schedulers: list[str]
) -> None:
    inputs = [torch.empty(shape, dtype=torch.bfloat16, device="meta") for shape in shapes]
    kernels = definition(function, *inputs).kernels_for(inputs, device="cuda")
    assert sorted(kernel.scheduler for kernel in kernels) == sorted(schedulers)
    moved = sum(kernel.bytes_read + kernel.bytes_written for kernel in kernels)
    least = sum(2 * t.numel() for t in (*inputs, function(*inputs)))
    assert moved < 1.01 * least


@pytest.fixture
def in_pieces(monkeypatch: pytest.MonkeyPatch) -> list[State]:
    """Joins are in pieces wherever kernels can store these, at sizes at which that does not pay, too. Returns
    the partitions that have pieces.
    """
    found: list[State] = []

    def has_more_joins(before: State, after: State, least_gain: float = 0.0, saved: float = 0.0) -> bool:
        count_before, count = (
            [_is_join(s.nodes[0]) for s in t.segments].count(True) for t in (before, after)
        )
        if count > count_before:
            found.append(after)
        return count > count_before or (count == count_before and is_better(before, after, least_gain, saved))

    monkeypatch.setattr(decision, "is_better", has_more_joins)
    FusionCache.reset()
    return found


def _is_join(node: object) -> bool:
    return isinstance(node, Join)


CASES: list[tuple[Callable[..., Tensor], list[tuple[int, ...]], torch.dtype]] = [
    (with_mean, [(9, 33)], torch.bfloat16),
    (centered, [(7, 40)], torch.float16),
    (beside, [(6, 64), (6, 5)], torch.bfloat16),
    (beside, [(6, 64), (6, 1)], torch.float32),
    (both, [(5, 48), (3, 48)], torch.bfloat16),
    (padded, [(5, 37)], torch.float32),
    (padded, [(4, 64)], torch.float16),
    (lambda x: F.pad(norm(x), (0, 3), value=0.1), [(4, 64)], torch.bfloat16),
    (lambda x: torch.cat([norm(x), *(x[:, i : i + 1] * 2 for i in range(40))], 1), [(4, 64)], torch.float32),
    (lambda x, y: torch.cat([grouped(x), y], 1), [(2, 8, 4, 8), (2, 3, 4, 8)], torch.float32),
    (lambda x, y: torch.stack([norm(x), norm(y)], 1), [(5, 40), (5, 40)], torch.float32),
    (lambda x: torch.cat([norm(x), norm(x)], 1), [(5, 40)], torch.float32),
    (lambda x, y, z: torch.cat([norm(x), y, norm(z)], 1), [(5, 40), (5, 9), (5, 16)], torch.float32),
    (lambda x, y: torch.cat([norm(x), y.expand(5, 16)], 1), [(5, 40), (1, 16)], torch.float32),
    (lambda x, y: torch.cat([norm(x), y], 1).exp().to(torch.float16), [(5, 40), (5, 8)], torch.float32),
    (lambda x: torch.cat([x > x.mean(-1, keepdim=True), x > 0], -1), [(5, 40)], torch.float32),
    (
        lambda x, y: torch.cat([norm(x), y], 1) @ torch.ones(48, 2, device=x.device),
        [(5, 40), (5, 8)],
        torch.float32,
    ),
    (lambda x, y: torch.cat([torch.cat([norm(x), y], 1), x * 2], 1), [(5, 40), (5, 8)], torch.float32),
]


#: Nothing is reduced, a part has no elements, what is joined is not stored.
OTHERS: list[tuple[Callable[..., Tensor], list[tuple[int, ...]], torch.dtype]] = [
    (with_mean, [(3, 1)], torch.float32),
    (beside, [(6, 64), (6, 0)], torch.float32),
    (both, [(0, 48), (3, 48)], torch.bfloat16),
    (lambda x, y: torch.cat([norm(x), y], 1).sum(0), [(5, 40), (5, 8)], torch.float32),
    (lambda x: torch.cat([norm(x), *(x[:, i : i + 1] * 2 for i in range(70))], 1), [(4, 80)], torch.float32),
]


@pytest.mark.parametrize(("function", "shapes", "dtype"), CASES + OTHERS)
@pytest.mark.sampled(0.5)
def test_what_pieces_hold(
    function: Callable[..., Tensor],
    shapes: Sequence[tuple[int, ...]],
    dtype: torch.dtype,
    target: torch.device,
    in_pieces: list[State],
) -> None:
    torch.manual_seed(1)
    inputs = [torch.randn(shape, dtype=dtype, device=target) for shape in shapes]
    [found] = definition(function, *inputs).execute(inputs)
    expected = function(*inputs)
    assert found.stride() == expected.stride() or not found.numel()
    torch.testing.assert_close(found, expected)
    assert bool(in_pieces) is ((function, shapes, dtype) in CASES)


def test_pieces_of_any_size(target: torch.device, in_pieces: list[State]) -> None:
    """One definition, called with several sizes; both pieces lie in the memory of the output."""
    with FusionDefinition() as fd:
        x, y = (fd.define_tensor([-1, -1], True, DataType.BFloat16) for _ in range(2))
        total = fd.ops.sum(fd.ops.cast(x, DataType.Float), dims=[1], keepdim=True)
        rows = fd.ops.cast(fd.ops.cast(x, DataType.Float) / total, DataType.BFloat16)
        fd.add_output(fd.ops.cat([rows, y], 1))
    for columns, others in ((40, 8), (41, 3), (64, 64), (1, 7)):
        inputs = [torch.rand(6, n, dtype=torch.bfloat16, device=target) + 0.5 for n in (columns, others)]
        [found] = fd.execute(inputs)
        wide = inputs[0].float()
        expected = torch.cat([(wide / wide.sum(1, keepdim=True)).bfloat16(), inputs[1]], 1)
        torch.testing.assert_close(found, expected)
    assert in_pieces


def test_pieces_in_another_memory_order(target: torch.device, in_pieces: list[State]) -> None:
    def joined(x: Tensor, y: Tensor) -> Tensor:
        return torch.cat([x * torch.sigmoid(x.mean((2, 3), keepdim=True)), y], 1)

    made = [torch.randn(2, channels, 6, 8, device=target) for channels in (16, 8)]
    inputs = [t.contiguous(memory_format=torch.channels_last) for t in made]
    [found] = definition(joined, *inputs).execute(inputs)
    torch.testing.assert_close(found, joined(*inputs))
    assert found.is_contiguous(memory_format=torch.channels_last) and in_pieces


def test_a_join_that_is_written_into_an_input_is_none_of_pieces(
    target: torch.device, in_pieces: list[State]
) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([8, 6], True)
        first, rest = fd.ops.slice(x, [0, 0], [8, 3]), fd.ops.slice(x, [0, 3], [8, 6])
        largest = fd.ops.max(first, 1, keepdim=True)
        fd.add_output(fd.ops.cat([first - largest, rest], 1), x)
    given = torch.randn(8, 6, device=target)
    expected = torch.cat([given[:, :3] - given[:, :3].amax(1, keepdim=True), given[:, 3:]], 1)
    fd.execute([given])
    torch.testing.assert_close(given, expected)
    assert not in_pieces


def test_the_program_allocates_the_whole_once() -> None:
    inputs = [torch.randn(2048, 512), torch.randn(2048, 64)]
    stream = io.StringIO()
    with FusionDefinition() as fd:
        x, y = (fd.define_tensor([-1, -1], True) for _ in range(2))
        fd.add_output(fd.ops.cat([x - fd.ops.max(x, 1, keepdim=True), y], 1))
    executor = fd._finished().executor
    executor.execute(inputs, tracer=Tracer(Options(dump=(("host", ()),)), stream))
    program = stream.getvalue().split("def ")[0]
    assert program.count("allocate output") == 1 and program.count(" = memory of ") == 2
    assert "by torch" not in program
