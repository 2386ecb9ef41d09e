"""Inputs that a kernel would read across their memory: from a copy where that pays, and what is computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from fusewright import FusionCache
from fusewright.ir import Fusion
from fusewright.ops.build_elementwise import apply_to_tensor
from fusewright.ops.build_inputs import add_output, define_tensor
from fusewright.segment.decision import Decision
from fusewright.segment.input_order import orders_beside
from tests.segment.test_few_elements import definition

Tensor = torch.Tensor


def joined(*parts: Tensor) -> Tensor:
    return torch.cat(parts, 1) * 2.0


def inputs(rows: int, columns: int, count: int, columnwise: int) -> list[Tensor]:
    """Inputs without memory that start at odd elements, and some that lie column by column."""
    odd = [torch.empty(rows * columns + 1, device="meta")[1:].view(rows, columns) for _ in range(count)]
    return [*odd, *(torch.empty(columns, rows, device="meta").t() for _ in range(columnwise))]


@pytest.mark.parametrize(
    ("arguments", "schedulers"),
    [
        (inputs(16384, 256, 14, 2), ["horizontal", "pointwise"]),
        (inputs(16384, 256, 16, 0), ["pointwise"]),
        (inputs(4096, 256, 5, 1), ["transpose"]),  # a copy would gain little
    ],
    ids=["two of many", "none", "one of few"],
)
def test_some_of_many_are_copied_before_all_are_joined(
    arguments: Sequence[Tensor], schedulers: list[str]
) -> None:
    kernels = definition(joined, *arguments).kernels_for(arguments, device="cuda")
    assert [kernel.scheduler for kernel in kernels] == schedulers


def divergence(x: Tensor, y: Tensor) -> Tensor:
    shares = torch.softmax(y, -1)
    return (shares * (shares.log() - torch.log_softmax(x, -1))).sum()


def test_kernels_that_read_an_input_share_its_copy() -> None:
    arguments = [torch.empty(4096, 8192, device="meta").t(), torch.empty(8192, 4096, device="meta")]
    kernels = definition(divergence, *arguments).kernels_for(arguments, device="cuda")
    assert [kernel.scheduler for kernel in kernels][:2] == ["transpose", "inner_persistent"]
    assert sum(kernel.bytes_read for kernel in kernels) < 3.1 * 4 * 8192 * 4096


def test_what_kernels_of_a_shared_copy_compute(target: torch.device) -> None:
    arguments = [torch.randn(2048, 1024, device=target).t(), torch.randn(1024, 2048, device=target)]
    made = definition(divergence, *arguments)
    assert made.kernels_for(arguments)[0].scheduler == "transpose"
    torch.testing.assert_close(made.execute(arguments)[0], divergence(*arguments))


@pytest.mark.parametrize(("parts", "by_element"), [(3, False), (16, True)])
def test_many_parts_that_start_at_odd_elements_are_loaded_by_element(parts: int, by_element: bool) -> None:
    """By vectors a thread would have code, and registers, for two vectors of each part."""
    arguments = inputs(16384, 256, parts, 0)
    [kernel] = definition(joined, *arguments).kernels_for(arguments, device="cuda")
    assert (kernel.params.vectorization_factor == 1) is by_element
    assert bool(kernel.params.unaligned_inputs) is not by_element


def masked_rows(x: Tensor) -> Tensor:
    """Softmax of rows below the diagonal; the result lies row by row, as the mask does."""
    mask = torch.arange(x.shape[1], device=x.device) <= torch.arange(x.shape[0], device=x.device)[:, None]
    return torch.softmax(torch.where(mask, x.float() * 0.125, -30000.0), 1).to(x.dtype)


def test_a_copy_is_handed_on_instead_of_wider_results() -> None:
    x = torch.empty(8192, 4096, device="meta", dtype=torch.float16).t()
    kernels = definition(masked_rows, x).kernels_for([x], device="cuda")
    assert [kernel.scheduler for kernel in kernels] == ["transpose", "inner_persistent"]
    assert sum(kernel.bytes_read + kernel.bytes_written for kernel in kernels) == 4 * 2 * x.numel()


def test_what_is_computed_from_the_copy(target: torch.device) -> None:
    x = torch.randn(520, 260, device=target).half().t()
    [result] = definition(masked_rows, x).execute([x])
    torch.testing.assert_close(result, masked_rows(x), rtol=2e-3, atol=1e-5)


def column_order(x: Tensor, y: Tensor) -> Tensor:
    """The output lies as x does, column by column; y is the only input that does not."""
    total = (x.float() + y.float()) * 0.5
    return (total + torch.softmax(total, 1) - total.mean(1, keepdim=True)).to(x.dtype)


def test_inputs_are_copied_into_the_order_of_outputs() -> None:
    x = torch.empty(1024, 32768, device="meta", dtype=torch.bfloat16).t()
    y = torch.empty(32768, 1024, device="meta", dtype=torch.bfloat16)
    kernels = definition(column_order, x, y).kernels_for([x, y], device="cuda")
    assert [kernel.scheduler for kernel in kernels] == ["transpose", "outer_persistent"]
    assert sum(kernel.bytes_read + kernel.bytes_written for kernel in kernels) == 5 * 2 * x.numel()


def test_what_is_computed_in_the_order_of_outputs(target: torch.device) -> None:
    x, y = torch.randn(256, 512, device=target).t(), torch.randn(512, 256, device=target)
    [result] = definition(column_order, x, y).execute([x, y])
    assert result.stride() == x.stride()
    torch.testing.assert_close(result, column_order(x, y), rtol=1e-5, atol=1e-5)


def test_copies_that_share_a_launch_cost_one() -> None:
    """Six parts of a join, each of which would take a launch."""
    arguments = inputs(1304, 256, 10, 6)
    kernels = definition(joined, *arguments).kernels_for(arguments, device="cuda")
    assert [kernel.scheduler for kernel in kernels] == ["horizontal", "pointwise"]


def turned_halves(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """A partial rotary embedding; x and the result lie feature by feature, as one of the tables."""
    turned, rest = x.chunk(2, -1)
    first, second = turned.chunk(2, -1)
    return torch.cat([turned * cosines + torch.cat([-second, first], -1) * sines, rest], -1)


def heads_last(rows: int, heads: int, places: int, size: int, device: str) -> list[Tensor]:
    x = torch.empty(rows, size, heads, places, device=device).permute(0, 2, 3, 1)
    return [
        x,
        torch.empty(places, size // 2, device=device),
        torch.empty(size // 2, places, device=device).t(),
    ]


def test_a_table_is_copied_into_the_order_of_the_result() -> None:
    """Dimensions correspond through slices and joins, of tensors of fewer dimensions too."""
    inputs = [each.half() for each in heads_last(4, 45, 509, 192, "meta")]
    kernels = definition(turned_halves, *inputs).kernels_for(inputs, device="cuda")
    assert [kernel.scheduler for kernel in kernels] == ["transpose", "pointwise"]
    read = 2 * inputs[0].numel() + 3 * 2 * inputs[1].numel()
    assert sum(kernel.bytes_read for kernel in kernels) == read


def test_what_is_computed_with_the_copied_table(target: torch.device) -> None:
    inputs = [torch.randn_like(each) for each in heads_last(2, 45, 509, 192, str(target))]
    made = definition(turned_halves, *inputs)
    assert len(made.kernels_for(inputs)) == 2
    [result] = made.execute(inputs)
    torch.testing.assert_close(result, turned_halves(*inputs))
    assert result.stride() == inputs[0].stride()


def products(x: Tensor, y: Tensor) -> Tensor:
    return (x.float() * y.float()).sum(-1)


def in_two_orders(rows: int, places: int, heads: int, size: int, device: str) -> list[Tensor]:
    x = torch.randn(size, rows, places, heads, device=device).permute(1, 2, 3, 0)
    return [x, torch.randn(heads, rows, size, places, device=device).permute(1, 3, 0, 2)]


def test_one_of_two_inputs_is_copied_into_the_order_of_the_other() -> None:
    inputs = [each.bfloat16() for each in in_two_orders(4, 512, 32, 72, "meta")]
    kernels = definition(products, *inputs).kernels_for(inputs, device="cuda")
    assert [kernel.scheduler for kernel in kernels] == ["transpose", "reduction"]


def test_of_several_orders_one_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of them, too, would be better than none."""
    FusionCache.reset()
    found: list[tuple[str, bool]] = []
    note = Decision._note

    def noted(self: Decision, change: str, before: Any, after: Any, kept: bool) -> None:
        found.append((change, kept))
        note(self, change, before, after, kept)

    monkeypatch.setattr(Decision, "_note", noted)
    inputs = [each.bfloat16() for each in in_two_orders(4, 512, 32, 64, "meta")]
    kernels = definition(products, *inputs).kernels_for(inputs, device="cuda")
    orders = [(change, kept) for change, kept in found if "inputs in the order of" in change]
    assert len(orders) == len(dict(orders)) == 3 and sum(dict(orders).values()) == 1
    assert len(kernels) == 2


def test_what_is_reduced_of_the_copy(target: torch.device) -> None:
    inputs = in_two_orders(4, 256, 32, 72, str(target))
    made = definition(products, *inputs)
    assert len(made.kernels_for(inputs)) == 2
    torch.testing.assert_close(made.execute(inputs)[0], products(*inputs))


def moving_average(y: Tensor, x: Tensor) -> Tensor:
    """Of 13 along the dimension before the last, of what lies along that one; the result lies as y does."""
    padded = torch.nn.functional.pad(x, (0, 0, 6, 6))
    parts = [padded[:, i : i + x.shape[1]] for i in range(13)]
    return y - sum(parts[1:], parts[0]) / 13


def test_windows_are_not_read_by_threads_across_memory() -> None:
    """Each of the 13 loads of a warp would look up 32 lines of the L1 cache."""
    y, x = torch.empty(64, 1440, 112, device="meta"), torch.empty(64, 112, 1440, device="meta").mT
    kernels = definition(moving_average, y, x).kernels_for([y, x], device="cuda")
    assert next(kernel.scheduler for kernel in kernels) == "transpose" and len(kernels) == 2


def test_what_windows_of_a_copy_compute(target: torch.device) -> None:
    y, x = torch.randn(3, 130, 40, device=target), torch.randn(3, 40, 130, device=target).mT
    [result] = definition(moving_average, y, x).execute([y, x])
    torch.testing.assert_close(result, moving_average(y, x), rtol=1e-5, atol=1e-5)


def test_what_all_threads_of_a_warp_load_looks_up_one_line() -> None:
    """A scale for each row, which lie column by column: no copy of them is worth a kernel."""
    x = torch.empty(8, 32, 512, 512, device="meta", dtype=torch.bfloat16)
    largest = torch.empty(8, 512, 32, device="meta").transpose(1, 2)

    def exponentials(x: Tensor, largest: Tensor) -> Tensor:
        return (x.float() - largest[..., None]).exp().to(x.dtype)

    kernels = definition(exponentials, x, largest).kernels_for([x, largest], device="cuda")
    assert [kernel.scheduler for kernel in kernels] == ["pointwise"]


def test_equal_orders_are_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of dimensions and of outputs."""
    FusionCache.reset()
    found: list[str] = []
    note = Decision._note

    def noted(self: Decision, change: str, *states: Any) -> None:
        found.append(change)
        note(self, change, *states)

    monkeypatch.setattr(Decision, "_note", noted)
    inputs = [torch.empty(8191, 4095, device="meta"), torch.empty(4095, 8191, device="meta").t()]
    inputs = [tensor.bfloat16() for tensor in inputs]
    assert definition(torch.add, *inputs).kernels_for(inputs, device="cuda")[0].scheduler == "transpose"
    # That of dimensions is the output's, too; the other one is the second input's.
    assert sum("inputs in the order of" in change for change in found) == 2


def test_the_place_of_one_element_is_no_order() -> None:
    fusion = Fusion()
    x = define_tensor(fusion, [5, 1, 7], True, stride_order=[1, 2, 0])
    y = define_tensor(fusion, [5, 1, 7], True)
    out = apply_to_tensor(fusion, "add", x, y)
    add_output(fusion, out)
    assert x.allocation != x.logical
    assert orders_beside(list(fusion.nodes), {out}) == []


def trusted(p: Tensor, g: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """A step whose length two norms of whole tensors decide; its first result lies as v."""
    second = 0.999 * v + 0.001 * g * g
    update = g / (second.sqrt() + 1e-6) + 0.01 * p
    return second, p - 1e-3 * (p.norm() / update.norm()) * update


def of_columns(rows: int, columns: int, device: str | torch.device) -> list[Tensor]:
    v = torch.rand(columns, rows, device=device).t()
    return [torch.randn(rows, columns, device=device), torch.randn(rows, columns, device=device), v]


def test_results_are_copied_into_their_own_order() -> None:
    """By elements, each stored one would take a sector."""
    arguments = of_columns(1024, 2051, "meta")
    kernels = definition(trusted, *arguments).kernels_for(arguments, device="cuda")
    assert [kernel.scheduler for kernel in kernels] == ["transpose", "inner_persistent", "transpose"]
    (copied,) = (t for t in kernels[-1].tensors if t.is_written)
    assert tuple(copied.shape) == (1024, 2051)


def test_what_is_computed_for_such_results(target: torch.device) -> None:
    arguments = of_columns(600, 1031, target)
    made = definition(trusted, *arguments)
    assert [kernel.scheduler for kernel in made.kernels_for(arguments)][-1] == "transpose"
    for ours, theirs in zip(made.execute(arguments), trusted(*arguments)):
        assert ours.stride() == theirs.stride()
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
