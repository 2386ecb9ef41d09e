"""Operations that change shape or find elements by index, against torch, with sizes known and not.

Each row has work before and after the operation, so that it is fused with both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fusewright import FusionDefinition

INDEX = torch.tensor([7, 0, 3])
GATHERED = torch.arange(96).reshape(4, 3, 8) * 7 % 6
TAKEN = torch.arange(24).reshape(4, 6, 1) * 5 % 8
TOKENS = torch.tensor([[0, 3, 1], [2, 5, 5]])

#: name -> (the operation, torch's, further inputs); the first input is x, of sizes (4, 6, 8)
ROWS: dict[str, tuple[Callable[..., Any], Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]] = {
    "reshape_merge": (lambda o, x: o.reshape(x, [4, -1]), lambda x: x.reshape(4, -1), ()),
    "reshape_split": (lambda o, x: o.reshape(x, [4, 3, 2, 2, 4]), lambda x: x.reshape(4, 3, 2, 2, 4), ()),
    "reshape_across": (lambda o, x: o.reshape(x, [8, -1, 6]), lambda x: x.reshape(8, -1, 6), ()),
    "reshape_ones": (lambda o, x: o.reshape(x, [1, 24, 1, 8]), lambda x: x.reshape(1, 24, 1, 8), ()),
    "reshape_permuted": (
        lambda o, x: o.reshape(o.permute(x, [2, 0, 1]), [8, 24]),
        lambda x: x.permute(2, 0, 1).reshape(8, 24),
        (),
    ),
    "heads": (
        lambda o, x: o.permute(o.reshape(x, [4, 6, 2, 4]), [0, 2, 1, 3]),
        lambda x: x.reshape(4, 6, 2, 4).permute(0, 2, 1, 3),
        (),
    ),
    "flatten": (lambda o, x: o.flatten(x, 1), lambda x: x.flatten(1), ()),
    "slice": (lambda o, x: o.slice(x, [1, 0, 2], [3, 6, 7]), lambda x: x[1:3, 0:6, 2:7], ()),
    "slice_steps": (
        lambda o, x: o.slice(x, [1, 0, 2], [9, 6, 7], [1, 2, 3]),
        lambda x: x[1:9, 0:6:2, 2:7:3],
        (),
    ),
    "slice_empty": (lambda o, x: o.slice(x, [0, 7, 0], [4, 9, 8]), lambda x: x[:, 7:9], ()),
    "chunk": (lambda o, x: o.slice(x, [0, 0, 4], [4, 6, 8]), lambda x: x.chunk(2, 2)[1], ()),
    "split": (lambda o, x: o.split(x, [2, 1, 3], 1)[2], lambda x: x.split([2, 1, 3], 1)[2], ()),
    "pad": (lambda o, x: o.pad(x, [1, 2, 0, 3]), lambda x: F.pad(x, (1, 2, 0, 3)), ()),
    "pad_and_crop": (lambda o, x: o.pad(x, [-2, 4], 3.0), lambda x: F.pad(x, (-2, 4), value=3.0), ()),
    "pad_twice": (
        lambda o, x: o.pad(o.pad(x, [1, 1], 2.0), [2, -1], -1.0),
        lambda x: F.pad(F.pad(x, (1, 1), value=2.0), (2, -1), value=-1.0),
        (),
    ),
    "pad_away": (
        lambda o, x: o.pad(o.slice(x, [0, 0, 0], [4, 1, 8]), [0, 2, -1, 3], 5.0),
        lambda x: F.pad(x[:, :1], (0, 2, -1, 3), value=5.0),
        (),
    ),
    "cat_rows": (lambda o, x: o.cat([x, o.exp(x), x], 1), lambda x: torch.cat([x, x.exp(), x], 1), ()),
    "cat_columns": (lambda o, x: o.cat([x, o.exp(x)], -1), lambda x: torch.cat([x, x.exp()], -1), ()),
    "cat_odd": (
        lambda o, x: o.cat([o.slice(x, [0, 0, 0], [4, 6, 3]), x], -1),
        lambda x: torch.cat([x[..., :3], x], -1),
        (),
    ),
    "stack": (lambda o, x: o.stack([x, o.exp(x)], 2), lambda x: torch.stack([x, x.exp()], 2), ()),
    "flip": (lambda o, x: x + o.flip(x, [0, -1]), lambda x: x + x.flip(0, -1), ()),
    "roll": (lambda o, x: o.roll(x, [3, -20], [0, 2]), lambda x: x.roll((3, -20), (0, 2)), ()),
    "unfold": (lambda o, x: o.unfold(o.exp(x), 1, 4, 1), lambda x: x.exp().unfold(1, 4, 1), ()),
    "unfold_sum": (lambda o, x: o.sum(o.unfold(x, -1, 5, 3), [-1]), lambda x: x.unfold(-1, 5, 3).sum(-1), ()),
    "repeat": (lambda o, x: o.repeat(x, [2, 1, 3, 2]), lambda x: x.repeat(2, 1, 3, 2), ()),
    "repeat_interleave": (
        lambda o, x: o.repeat_interleave(x, 3, 1),
        lambda x: x.repeat_interleave(3, 1),
        (),
    ),
    "select": (lambda o, x: o.select(x, -1, 1), lambda x: x.select(1, -1), ()),
    "index_select": (lambda o, x, i: o.index_select(x, i, 2), lambda x, i: x.index_select(2, i), (INDEX,)),
    "gather": (lambda o, x, i: o.gather(x, i, 1), lambda x, i: x.gather(1, i), (GATHERED,)),
    "take_along_axis": (
        lambda o, x, i: o.take_along_axis(x, i, 2),
        lambda x, i: torch.take_along_dim(x, i, 2),
        (TAKEN,),
    ),
    "gather_of_pad": (
        lambda o, x, i: o.take_along_axis(o.pad(x, [2, 2], 5.0), i, 2),
        lambda x, i: torch.take_along_dim(F.pad(x, (2, 2), value=5.0), i, 2),
        (TAKEN,),
    ),
    "embedding": (
        lambda o, x, i: o.embedding_fwd(i, o.select(x, 0, 0)),
        lambda x, i: F.embedding(i, x[0]),
        (TOKENS,),
    ),
    "triu": (lambda o, x: o.triu(x, 1), lambda x: x.triu(1), ()),
    "tril": (lambda o, x: o.tril(o.reshape(x, [6, 32]), -2), lambda x: x.reshape(6, 32).tril(-2), ()),
    "rotary": (
        lambda o, x: x + o.cat([-o.slice(x, [0, 0, 4], [4, 6, 8]), o.slice(x, [0, 0, 0], [4, 6, 4])], 2),
        lambda x: x + torch.cat([-x[..., 4:], x[..., :4]], -1),
        (),
    ),
}


@pytest.mark.sampled(0.5, "name")
@pytest.mark.parametrize("static", [True, False], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", ROWS)
def test_shape_operation_is_torchs_in_one_kernel(target, name: str, static: bool):
    build, reference, more = ROWS[name]
    inputs = [t.to(target) for t in (torch.randn(4, 6, 8), *more)]
    with FusionDefinition() as fd:
        x, *others = (fd.from_pytorch(t, static_sizes=static) for t in inputs)
        fd.add_output(build(fd.ops, fd.ops.neg(x), *others) * 2.0)
    [out] = fd.execute(inputs, profile=True)
    expected = reference(-inputs[0], *inputs[1:]) * 2.0
    torch.testing.assert_close(out, expected)
    assert out.stride() == expected.contiguous().stride() or not out.numel()
    assert fd.profile().segments == bool(out.numel())


@pytest.mark.parametrize("bad", [-1, 8, 2**40, -(2**33)])
def test_index_out_of_range_finds_zero(target, bad: int):
    x, index = torch.randn(8, 4, device=target), torch.tensor([3, bad], device=target)
    with FusionDefinition() as fd:
        out = fd.ops.index_select(fd.from_pytorch(x), fd.from_pytorch(index), 0)
        fd.add_output(out)
    [rows] = fd.execute([x, index])
    assert torch.equal(rows[0], x[3])
    assert torch.equal(rows[1], torch.zeros_like(x[0]))
