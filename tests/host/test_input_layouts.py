"""What the strides of a call show of inputs whose strides the definition leaves open."""

from __future__ import annotations

import re

import pytest
import torch

from fusewright.core.options import Options
from tests.host.fusions import Definition

ROWS, COLUMNS, GAP = 6, 72, 8
OPEN = {"contiguity": False}
DECLARED = {
    "by default": OPEN,
    "by row": {"contiguity": False, "stride_order": [1, 0]},
    "rows without gaps": {"contiguity": [False, True]},
}


def softmax(**declared):
    d = Definition()
    x = d.tensor(**declared)
    e = d.exp(d.sub(x, d.reduced("max", x)))
    d.output(d.div(e, d.reduced("sum", e)))
    return d.executor()


def doubled(**declared):
    d = Definition()
    d.output(d.add(x := d.tensor(**declared), x))
    return d.executor()


def rows(gap: int = 0, start: int = 0, device: torch.device | None = None) -> torch.Tensor:
    return torch.randn(ROWS, COLUMNS + gap).to(device)[:, start : start + COLUMNS]


@pytest.mark.parametrize("declared", DECLARED.values(), ids=DECLARED)
@pytest.mark.parametrize("make", [softmax, doubled])
def test_a_dense_input_has_the_kernels_of_one_that_is_defined_so(make, declared):
    kernels, expected = (make(**d).compile([rows()]).kernels for d in (declared, {"contiguity": True}))
    assert [k.code().text for k in kernels] == [k.code().text for k in expected]


@pytest.mark.parametrize(
    ("make", "x", "schedulers"),
    [
        (softmax, rows(GAP), ["inner_persistent"]),
        (softmax, torch.randn(COLUMNS, ROWS).t(), ["outer_persistent"]),
        (doubled, rows(GAP), ["pointwise"]),
        (doubled, torch.randn(64, 64).t(), ["transpose"]),
    ],
    ids=["gaps between rows", "columns, softmax", "gaps, elementwise", "columns, elementwise"],
)
def test_vectors_go_along_memory(make, x, schedulers, target):
    executor = make(**OPEN)
    kernels = executor.compile([x.to(target)]).kernels
    assert [kernel.scheduler for kernel in kernels] == schedulers
    assert all(re.search(r"load(_or)?<[24]>", kernel.code().text) for kernel in kernels)
    (found,) = executor.execute([x.to(target)])
    torch.testing.assert_close(found.cpu(), torch.softmax(x, 1) if make is softmax else x + x)


def test_one_definition_serves_layouts_in_turn(target):
    d = Definition()
    x, y = d.tensor((-1, -1, -1), False), d.tensor((-1, -1, -1), False)
    d.output(d.add(x, y), x)
    d.output(d.add(d.reduced("sum", x, [1]), y))
    executor = d.executor()
    base = torch.randn(4, 6, 8)
    views = [
        base,
        torch.randn(8, 6, 4).permute(2, 1, 0),
        torch.randn(6, 4, 9)[..., 1:].permute(1, 0, 2),
        torch.randn(4, 1, 8),
        torch.randn(1, 6, 1),
        torch.randn(6, 8).expand(4, 6, 8),
        torch.randn(0, 6, 8),
    ]
    for first in views:
        for second in (base, first):
            if second.shape != first.shape:
                second = torch.randn(first.shape)
            x = torch.empty_strided(first.shape, first.stride()) if 0 not in first.stride() else first.clone()
            x = x.copy_(first).to(target)
            (found,) = executor.execute([x, y := second.to(target)])
            torch.testing.assert_close(x.cpu(), first + second)
            torch.testing.assert_close(found, first.to(target).sum(1, keepdim=True) + y)


def test_a_layout_of_its_own_is_of_the_call_alone(target):
    executor = doubled(**OPEN)
    dense, sliced = rows(device=target), rows(GAP, 3, target)
    for x in (dense, sliced, dense):
        torch.testing.assert_close(executor.execute([x])[0], x + x)
    texts = {executor.kernels_for([x])[0].code().text for x in (dense, sliced)}
    assert len(texts) == 2
    assert executor.segments_for([dense], options=Options())
