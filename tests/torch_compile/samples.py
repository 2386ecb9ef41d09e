"""Arguments for each row of the table of ATen operators that is not made from an operation's own row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

generator = torch.Generator().manual_seed(0)


def _floats(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=generator).to(dtype)


X = _floats(3, 4)
HALF = _floats(3, 4, dtype=torch.bfloat16)
CUBE = _floats(2, 3, 4)
INTS = torch.arange(12).reshape(3, 4) - 5
BOOLS = X > 0
PLACES = torch.tensor([2, 0, -1])
INDICES = torch.tensor([[1, 0, 2, 2], [0, 0, 1, 2], [2, 1, 1, 0]])
F32, I64 = torch.float32, torch.int64

#: Positional arguments by row; several calls where a row does different things.
SAMPLES: Mapping[str, list[tuple[Any, ...]]] = {
    "aten.rsub.Tensor": [(X, X + 1)],
    "aten.rsub.Scalar": [(X, 2.0), (INTS, 2, 3)],
    "aten.div.Tensor_mode": [(INTS, INTS.abs() + 1), (X, X + 5)],
    "aten.div.Scalar_mode": [(X, 0.5)],
    "aten.clamp.Tensor": [(X, X - 0.5, X.flip(0)), (X, None, X.flip(0))],
    "aten.clamp_min.default": [(X, 0.5)],
    "aten.clamp_min.Tensor": [(X, X.flip(0))],
    "aten.clamp_max.default": [(X, 0.5)],
    "aten.clamp_max.Tensor": [(X, X.flip(0))],
    "aten.logical_xor.default": [(X, BOOLS)],
    "aten.__lshift__.Scalar": [(INTS, 2)],
    "aten.__lshift__.Tensor": [(INTS, INTS.abs())],
    "aten.__rshift__.Scalar": [(INTS, 2)],
    "aten.__rshift__.Tensor": [(INTS, INTS.abs())],
    "aten.masked_fill.Scalar": [(X, BOOLS, 2.0)],
    "aten.masked_fill.Tensor": [(X, BOOLS, torch.tensor(2.0))],
    "aten.gelu.default": [(X,), (HALF,)],
    "aten.square.default": [(X,), (HALF,)],
    "aten.addcdiv.default": [(X, X, X + 9)],
    "aten.view.default": [(CUBE, [6, 4]), (CUBE, [2, -1])],
    "aten._unsafe_view.default": [(CUBE, [6, 4])],
    "aten.as_strided.default": [(CUBE, [6, 4], [4, 1]), (CUBE, [2, 1, 12], [12, 12, 1])],
    "aten.as_strided_copy.default": [(CUBE, [6, 4], [4, 1])],
    "aten.view_copy.default": [(CUBE, [6, 4])],
    "aten.reshape.default": [(CUBE, [4, 6])],
    "aten._reshape_copy.default": [(CUBE, [4, 6])],
    "aten.expand.default": [(X, [2, -1, 4]), (_floats(3, 1), [3, 4])],
    "aten.expand_copy.default": [(X, [2, 3, 4])],
    "aten.permute.default": [(CUBE, [2, 0, 1])],
    "aten.permute_copy.default": [(CUBE, [2, 0, 1])],
    "aten.transpose.int": [(CUBE, 0, -1)],
    "aten.transpose_copy.int": [(CUBE, 0, -1)],
    "aten.t.default": [(X,)],
    "aten.t_copy.default": [(X,)],
    "aten.unsqueeze.default": [(X, -1)],
    "aten.unsqueeze_copy.default": [(X, 0)],
    "aten.squeeze.default": [(_floats(1, 3, 1),)],
    "aten.squeeze.dim": [(_floats(1, 3, 1), 0), (X, 0)],
    "aten.squeeze.dims": [(_floats(1, 3, 1), [0, 2])],
    "aten.squeeze_copy.default": [(_floats(1, 3, 1),)],
    "aten.squeeze_copy.dim": [(_floats(1, 3, 1), 0)],
    "aten.squeeze_copy.dims": [(_floats(1, 3, 1), [0, 2])],
    "aten.slice.Tensor": [(X, 1, 1, 9223372036854775807), (X, 0, -2, -1), (X, 1, 0, 4, 2), (X, 1, 3, 1)],
    "aten.slice_copy.Tensor": [(X, 1, 1, 3)],
    "aten.select.int": [(CUBE, 1, -1)],
    "aten.select_copy.int": [(CUBE, 1, 0)],
    "aten.split.Tensor": [(X, 3, 1)],
    "aten.split_copy.Tensor": [(X, 3, 1)],
    "aten.split_with_sizes.default": [(X, [1, 3], 1)],
    "aten.split_with_sizes_copy.default": [(X, [1, 3], 1)],
    "aten.unbind.int": [(X, 1)],
    "aten.unbind_copy.int": [(X, 0)],
    "aten.alias.default": [(X,)],
    "aten.detach.default": [(X,)],
    "aten.alias_copy.default": [(X,)],
    "aten.detach_copy.default": [(X,)],
    "aten.lift_fresh_copy.default": [(X,)],
    "aten.clone.default": [(X,)],
    "aten.copy.default": [(X, HALF), (X, INTS[0])],
    "aten._to_copy.default": [(X,)],
    "prims.convert_element_type.default": [(X, torch.bfloat16)],
    "aten.cat.default": [([X, HALF], 0), ([X, torch.empty(0), X], 1)],
    "aten.stack.default": [([X, X], 1)],
    "aten.constant_pad_nd.default": [(X, [1, 2, 0, 1], 3.0), (INTS, [1, 1], 2)],
    "aten.flip.default": [(X, [1])],
    "aten.roll.default": [(X, [1], [0])],
    "aten.repeat.default": [(X, [2, 1, 3])],
    "aten.tril.default": [(X, 1)],
    "aten.triu.default": [(X,)],
    "aten.index_select.default": [(X, 0, INDICES[0])],
    "aten.gather.default": [(X, 0, INDICES)],
    "aten.embedding.default": [(X, INDICES)],
    "aten.embedding_dense_backward.default": [(_floats(3, 4, 5), INDICES, 3, -1, False)],
    "aten.index.Tensor": [(X, [PLACES]), (CUBE, [None, INDICES]), (X, [None, torch.tensor(-1)])],
    "aten.scatter.src": [(X, 0, torch.tensor([[1, 0, 2, 2]]), _floats(1, 4))],
    "aten.scatter.value": [(X, 0, torch.tensor([[1, 0, 2, 2]]), 5.0)],
    "aten.full.default": [([2, 3], 1.5)],
    "aten.full_like.default": [(X, 2.5)],
    "aten.new_full.default": [(X, [2], 2.5)],
    "aten.scalar_tensor.default": [(2.5,)],
    "aten.zeros.default": [([2, 3],)],
    "aten.zeros_like.default": [(HALF,)],
    "aten.new_zeros.default": [(X, [3])],
    "aten.empty.memory_format": [([2, 0],)],
    "aten.empty_like.default": [(X[:0],)],
    "aten.new_empty.default": [(X, [0])],
    "aten.ones.default": [([2],)],
    "aten.ones_like.default": [(X,)],
    "aten.new_ones.default": [(X, [3])],
    "aten.fill.Scalar": [(X, 3)],
    "aten.fill.Tensor": [(X, torch.tensor(3.0))],
    "aten.arange.default": [(5,), (4.0,)],
    "aten.arange.start": [(2, 5)],
    "aten.arange.start_step": [(2, 9, 3)],
    "aten.rand.default": [([5],)],
    "aten.rand_like.default": [(X,)],
    "aten.randn.default": [([5],)],
    "aten.randn_like.default": [(HALF,)],
    "aten.bernoulli.p": [(X, 0.3)],
    "aten.native_dropout.default": [(X, 0.3, True), (X, 0.3, False)],
    "aten.sum.default": [(X,), (BOOLS,), (HALF,)],
    "aten.sum.dim_IntList": [(CUBE, [0, 2]), (CUBE, None, True), (HALF, [1])],
    "aten.mean.default": [(X,)],
    "aten.mean.dim": [(HALF, [1], True)],
    "aten.prod.default": [(X,)],
    "aten.prod.dim_int": [(X, 1)],
    "aten.amax.default": [(X, [1])],
    "aten.amin.default": [(HALF, [], True)],
    "aten.max.default": [(X,)],
    "aten.min.default": [(INTS,)],
    "aten.max.dim": [(X, 1)],
    "aten.min.dim": [(X, 0, True)],
    "aten.argmax.default": [(X,), (X, 1, True)],
    "aten.argmin.default": [(X, 0)],
    "aten.any.default": [(BOOLS,)],
    "aten.any.dim": [(INTS, 1)],
    "aten.any.dims": [(CUBE > 1, [0, 2])],
    "aten.all.default": [(BOOLS,)],
    "aten.all.dim": [(INTS, 1, True)],
    "aten.all.dims": [(CUBE > 1, [0, 2])],
    "aten.var.correction": [(X, [1])],
    "aten.std.correction": [(X, [0])],
    "aten.var_mean.correction": [(X, [1]), (HALF, None)],
    "aten.logsumexp.default": [(X, [1])],
    "aten.cumsum.default": [(X, 1), (INTS, 0)],
    "aten.cumprod.default": [(X, 1)],
    "aten._softmax.default": [(X, 1, False), (HALF, -1, False)],
    "aten._log_softmax.default": [(X, 1, False)],
    "aten.sort.default": [(X, 1, True)],
    "aten.sort.stable": [(X,)],
    "aten.topk.default": [(X, 2)],
    "aten.mm.default": [(X, X.T.contiguous())],
    "aten.bmm.default": [(CUBE, CUBE.mT)],
}

#: Keyword arguments that go with the samples of a row.
KEYWORDS: Mapping[str, dict[str, Any]] = {
    "aten.div.Tensor_mode": {"rounding_mode": "trunc"},
    "aten.div.Scalar_mode": {"rounding_mode": "trunc"},
    "aten.addcdiv.default": {"value": 0.5},
    "aten._to_copy.default": {"dtype": torch.bfloat16},
    "aten.full.default": {"dtype": F32},
    "aten.arange.start_step": {"dtype": F32},
    "aten.var.correction": {"correction": 0},
    "aten.var_mean.correction": {"correction": 1},
    "aten.std.correction": {"correction": 1, "keepdim": True},
    "aten.sort.stable": {"stable": True},
}
#: Rows whose results are not the same in torch.
RANDOM = frozenset(
    {
        "aten.rand.default",
        "aten.rand_like.default",
        "aten.randn.default",
        "aten.randn_like.default",
        "aten.bernoulli.p",
        "aten.native_dropout.default",
    }
)
