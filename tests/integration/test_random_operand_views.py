"""Random chains of views of a product, of open sizes, that another product reads, against torch."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from fusewright import FusionDefinition

INNER, COLUMNS = 8, 24
#: A view: its kind, its dimension, and what else says which one it is.
Step = tuple[str, int, Any]
#: Sizes, of which -1 is open.
Sizes = list[int]


def _step(choose: random.Random, sizes: Sizes) -> Step | None:
    """A view of a tensor of these sizes, which become those of the view; None if the kind does not suit."""
    kind = choose.choice(["divide", "merge", "permute", "select", "slice", "insert"])
    if kind == "permute":
        order = choose.sample(range(len(sizes)), len(sizes))
        sizes[:] = [sizes[dim] for dim in order]
        return kind, 0, order
    if kind == "insert":
        dim = choose.randrange(len(sizes) + 1)
        sizes.insert(dim, 1)
        return kind, dim, None
    if kind == "merge":
        dim = choose.randrange(len(sizes) - 1)
        product = -1 if -1 in sizes[dim : dim + 2] else sizes[dim] * sizes[dim + 1]
        sizes[dim : dim + 2] = [product]
        return (kind, dim, None) if len(sizes) > 1 else None
    dims = [dim for dim, size in enumerate(sizes) if size > 3]
    if not dims:
        return None
    dim = choose.choice(dims)
    size = sizes[dim]
    if kind == "divide":
        factor = choose.choice([each for each in range(2, size + 1) if size % each == 0])
        sizes[dim : dim + 1] = [factor, size // factor]
        return kind, dim, factor
    if kind == "select":
        del sizes[dim]
        return kind, dim, choose.randrange(size)
    start = choose.randrange(size - 2)
    sizes[dim] = choose.randint(1, size - start)
    return kind, dim, (start, start + sizes[dim])


def _chain(seed: int) -> list[Step]:
    choose = random.Random(seed)
    while True:
        sizes, steps = [-1, COLUMNS], []
        for _ in range(choose.randint(2, 6)):
            if len(sizes) > 1 and (step := _step(choose, sizes)) is not None:
                steps.append(step)
        if 2 <= len(sizes) <= 3:
            return steps


def _of_torch(x: torch.Tensor, steps: list[Step]) -> torch.Tensor:
    for kind, dim, what in steps:
        shape = list(x.shape)
        if kind == "divide":
            x = x.reshape(*shape[:dim], what, shape[dim] // what, *shape[dim + 1 :])
        elif kind == "merge":
            x = x.reshape(*shape[:dim], shape[dim] * shape[dim + 1], *shape[dim + 2 :])
        elif kind == "permute":
            x = x.permute(what)
        elif kind == "select":
            x = x.select(dim, what)
        else:
            x = x.unsqueeze(dim) if kind == "insert" else x.narrow(dim, what[0], what[1] - what[0])
    return x


def _of_definition(o: Any, x: Any, steps: list[Step]) -> Any:
    sizes: Sizes = [-1, COLUMNS]
    for kind, dim, what in steps:
        if kind == "divide":
            sizes[dim : dim + 1] = [what, sizes[dim] // what]
            x = o.reshape(x, sizes)
        elif kind == "merge":
            sizes[dim : dim + 2] = [-1 if -1 in sizes[dim : dim + 2] else sizes[dim] * sizes[dim + 1]]
            x = o.reshape(x, sizes)
        elif kind == "permute":
            sizes = [sizes[each] for each in what]
            x = o.permute(x, what)
        elif kind == "select":
            del sizes[dim]
            x = o.select(x, what, dim)
        elif kind == "insert":
            sizes.insert(dim, 1)
            x = o.broadcast(x, [each == dim for each in range(len(sizes))])
        else:
            bounds = [(0, 1 << 30 if size < 0 else size) for size in sizes]
            bounds[dim] = what
            sizes[dim] = what[1] - what[0]
            x = o.slice(x, [start for start, _ in bounds], [end for _, end in bounds])
    return x


@pytest.mark.parametrize("seed", range(40))
def test_views_of_a_product(seed: int, target: torch.device) -> None:
    steps = _chain(seed)
    with FusionDefinition() as fd:
        x, w = fd.define_tensor([-1, INNER], True), fd.define_tensor([INNER, COLUMNS], True)
        shown = _of_definition(fd.ops, fd.ops.matmul(x, w), steps)
        fd.add_output(fd.ops.matmul(shown, fd.define_tensor([-1], True)))
    for rows in (4, 1, 7, 0):
        a, b = torch.randn(rows, INNER, device=target), torch.randn(INNER, COLUMNS, device=target)
        expected = _of_torch(a @ b, steps)
        vector = torch.randn(expected.shape[-1], device=target)
        torch.testing.assert_close(fd.execute([a, b, vector])[0], expected @ vector, rtol=1e-4, atol=1e-4)
