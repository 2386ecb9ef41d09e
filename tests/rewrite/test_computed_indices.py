"""Reads at indices that are computed of positions become index maps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fusewright import DataType, FusionDefinition
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Indexed
from fusewright.rewrite import canonicalize
from fusewright.rewrite.candidate import computed_indices
from tests.integration.tolerance import assert_close
from tests.schedulers.proposals import definition

#: What is computed of positions along a row, in the definition and by torch.
Index = Callable[[Any, Any], Any]

ROWS, COLUMNS = 5, 32


def reading(index: Index, length: int = COLUMNS, extra: bool = False) -> FusionDefinition:
    """The elements of rows at an index; `extra`: and of those that an input names."""
    with FusionDefinition() as fd:
        x = fd.from_pytorch(torch.empty(ROWS, COLUMNS), static_sizes=True)
        y = fd.ops.index_select(x, index(fd, fd.ops.iota(length, 0, 1, DataType.Int)), 1)
        if extra:
            rows = fd.define_tensor([ROWS], dtype=DataType.Int)
            y = fd.ops.index_select(y, rows, 0)
        fd.add_output(y * 2.0)
    return fd


def reads(fd: FusionDefinition) -> list[Indexed]:
    fusion: Fusion
    fusion, _ = fd._finished().fusion.clone()
    canonicalize(fusion)
    return [node for node in fusion.ordered_nodes() if isinstance(node, Indexed)]


def reflected(shift: int) -> Index:
    last = COLUMNS - 1

    def index(fd: Any, i: Any) -> Any:
        from_start = fd.ops.abs(i - shift)
        return last - fd.ops.abs(last - from_start)

    return index


CASES: dict[str, tuple[Index, Callable[[torch.Tensor], torch.Tensor]]] = {
    "reflected at the start": (reflected(2), lambda i: (i - 2).abs()),
    "reflected at the end": (reflected(-1), lambda i: 31 - (31 - (i + 1)).abs()),
    "replicated": (
        lambda fd, i: fd.ops.minimum(fd.ops.maximum(i - 3, 0), 28),
        lambda i: (i - 3).clamp(0, 28),
    ),
    "chosen": (lambda fd, i: fd.ops.where(i < 0, i + COLUMNS, i), lambda i: i),
    "backward": (lambda fd, i: -i + 31, lambda i: 31 - i),
    "repeated": (lambda fd, i: fd.ops.div(i * 3 + 1, 5), lambda i: (i * 3 + 1) // 5),
    "around": (lambda fd, i: fd.ops.remainder(i * 3, 7), lambda i: i * 3 % 7),
    "every second": (lambda fd, i: fd.ops.minimum(i * 2, 31), lambda i: (i * 2).clamp(max=31)),
}


@pytest.mark.parametrize("name", CASES)
def test_computed_indices_are_maps(name: str) -> None:
    index, wanted = CASES[name]
    fd = reading(index)
    assert all(not node.index_tensors for node in reads(fd))
    x = torch.randn(ROWS, COLUMNS)
    (made,) = fd.execute([x])
    assert_close(made, x.double()[:, wanted(torch.arange(COLUMNS))] * 2)


def test_what_has_one_element_along_an_index_is_read_without_it() -> None:
    """A column of numbers has none of the rows that another index names."""
    with FusionDefinition() as fd:
        x = fd.from_pytorch(torch.empty(ROWS, COLUMNS), static_sizes=True)
        i, j = (fd.define_tensor([n], contiguity=True, dtype=DataType.Int) for n in (4, 9))
        column = fd.ops.broadcast(fd.ops.iota(COLUMNS, 0, 1, DataType.Int), [True, False])
        kept = fd.ops.where(column < 7, x, 0.0)
        fd.add_output(fd.ops.index_select(fd.ops.index_select(kept, j, 1), i, 0) * 2.0)
    data, rows, columns = torch.randn(ROWS, COLUMNS), torch.tensor([3, 0, 4, 1]), torch.arange(9) * 2
    (made,) = fd.execute([data, rows, columns])
    wanted = torch.where(torch.arange(COLUMNS) < 7, data.double(), 0.0)[rows][:, columns] * 2
    assert_close(made, wanted)


@pytest.mark.parametrize("mode", ["replicate", "reflect"])
@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_pad_of_what_follows_from_a_pad_reads_no_indices(mode: str, times: int) -> None:
    """Slopes of slopes: whatever is known of the outer index is an index into the inner one."""

    def slopes(x: torch.Tensor) -> torch.Tensor:
        for _ in range(times):
            around = F.pad(x[:, None], (1, 2), mode=mode)[:, 0]
            x = around[:, 3:] - around[:, :-3]
        return x

    x = torch.randn(ROWS, COLUMNS)
    fd = definition(slopes, x)
    [kernel] = fd.kernels_for([x])
    assert "index" not in kernel.cuda_text
    (made,) = fd.execute([x])
    assert_close(made, slopes(x.double()))


@pytest.mark.parametrize("mode", ["replicate", "reflect"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    "second",
    [
        lambda left, x, right: left + right - 2 * x,
        lambda left, x, right: left - 2 * x,
        lambda left, x, right: x * right,
        lambda left, x, right: left * right,
    ],
)
def test_vectors_that_start_where_memory_does_are_whole_only_between_the_ends(
    second: Callable[..., torch.Tensor], dtype: torch.dtype, mode: str, target: torch.device
) -> None:
    """The right neighbour of the left one is the element itself, except for the first."""

    def neighbours(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        around = F.pad(x[:, None], (1, 1), mode=mode)[:, 0]
        return around[:, :-2], x, around[:, 2:]

    def twice(x: torch.Tensor) -> torch.Tensor:
        left, middle, right = neighbours(x)
        return second(*neighbours(left + right - 2 * middle))

    x = torch.randint(-8, 8, (64, 256), device=target).to(dtype)
    fd = definition(twice, x)
    [kernel] = fd.kernels_for([x])
    assert kernel.params.vectorization_factor > 1
    (made,) = fd.execute([x])
    assert_close(made, twice(x.double()))


def test_indices_of_indices_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each follows from two that are the same: pointers to pointers."""
    looked: list[Indexed] = []
    read = computed_indices._read

    def noted(node: Indexed, *rest: Any) -> Any:
        looked.append(node)
        return read(node, *rest)

    def followed(v: torch.Tensor) -> torch.Tensor:
        for _ in range(8):
            v = torch.gather(v, 0, v)
        return v

    v = torch.randperm(64)
    fd = definition(followed, v)
    monkeypatch.setattr(computed_indices, "_read", noted)
    (made,) = fd.execute([v])
    assert torch.equal(made, followed(v)) and len(looked) < 1000


@pytest.mark.parametrize("fill", [0, 5])
def test_an_index_that_a_pad_fills_stays_an_index(fill: int) -> None:
    """Its fill is no position, whether or not it lies inside."""
    with FusionDefinition() as fd:
        x = fd.from_pytorch(torch.empty(ROWS, COLUMNS), static_sizes=True)
        places = fd.ops.iota(COLUMNS - 2, 1, 1, DataType.Int)
        index = fd.ops.pad(places, [1, 1], fill)
        fd.add_output(fd.ops.index_select(x, index, 1) * 2.0)
    data = torch.randn(ROWS, COLUMNS)
    wanted = F.pad(torch.arange(1, COLUMNS - 1), (1, 1), value=fill)
    (made,) = fd.execute([data])
    assert_close(made, data.double()[:, wanted] * 2)


def test_indices_of_inputs_stay() -> None:
    fd = reading(reflected(1), extra=True)
    assert [len(node.index_tensors) for node in reads(fd)] == [1]
    x, rows = torch.randn(ROWS, COLUMNS), torch.tensor([3, 0, 4, 4, 1])
    (made,) = fd.execute([x, rows])
    assert_close(made, x.double()[rows][:, (torch.arange(COLUMNS) - 1).abs()] * 2)


@pytest.mark.parametrize(
    "index",
    [lambda fd, i: i + 1, lambda fd, i: i - 1, lambda fd, i: i * i, lambda fd, i: i * 2**60],
    ids=["beyond", "before", "squared", "wraps"],
)
def test_what_may_lie_outside_stays_an_index(index: Index) -> None:
    assert any(node.index_tensors for node in reads(reading(index)))
