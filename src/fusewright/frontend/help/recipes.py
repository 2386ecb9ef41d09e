"""How to write operations of torch that Fusewright lacks: a few lines of existing operations.

A row of `RECIPES` is Python text over a definition `fd`. It computes `out` from tensors x, y, z and from the
numbers that torch's function takes, under torch's names. When an operation is added, its row is removed.
"""

from __future__ import annotations

RECIPES: dict[str, str] = {
    # ---- the same by another name
    "absolute": "out = fd.ops.abs(x)",
    "addmm": "out = x + fd.ops.matmul(y, z)",
    "amax": "out = fd.ops.max(x, dim)",
    "amin": "out = fd.ops.min(x, dim)",
    "baddbmm": "out = x + fd.ops.matmul(y, z)",
    "bfloat16": "out = fd.ops.cast(x, DataType.BFloat16)",
    "bmm": "out = fd.ops.matmul(x, y)",
    "clip": "out = fd.ops.clamp(x, min, max)",
    "clone": "out = fd.ops.set(x)",
    "concat": "out = fd.ops.cat([x, y], dim)",
    "concatenate": "out = fd.ops.cat([x, y], dim)",
    "contiguous": "out = fd.ops.set(x)",
    "divide": "out = fd.ops.truediv(x, y)",
    "dot": "out = fd.ops.sum(x * y)",
    "double": "out = fd.ops.cast(x, DataType.Double)",
    "float": "out = fd.ops.cast(x, DataType.Float)",
    "greater": "out = fd.ops.gt(x, y)",
    "greater_equal": "out = fd.ops.ge(x, y)",
    "half": "out = fd.ops.cast(x, DataType.Half)",
    "less": "out = fd.ops.lt(x, y)",
    "less_equal": "out = fd.ops.le(x, y)",
    "long": "out = fd.ops.cast(x, DataType.Int)",
    "mm": "out = fd.ops.matmul(x, y)",
    "multiply": "out = x * y",
    "narrow": """\
ends = [start + length if i == dim else x.size(i) for i in range(x.ndim)]
out = fd.ops.slice(x, [start if i == dim else 0 for i in range(x.ndim)], ends)""",
    "negative": "out = -x",
    "not_equal": "out = fd.ops.ne(x, y)",
    "outer": "out = fd.ops.broadcast(x, [False, True]) * fd.ops.broadcast(y, [True, False])",
    "rsub": "out = y - x",
    "scaled_dot_product_attention": "out = fd.ops.sdpfa_fwd(x, y, z)[0]",
    "subtract": "out = x - y",
    "swapaxes": """\
dims = list(range(x.ndim))
dims[axis0], dims[axis1] = dims[axis1], dims[axis0]
out = fd.ops.permute(x, dims)""",
    "t": "out = fd.ops.permute(x, [1, 0])",
    "tile": "out = fd.ops.repeat(x, dims)",
    "to": "out = fd.ops.cast(x, dtype)",
    "transpose": """\
dims = list(range(x.ndim))
dims[dim0], dims[dim1] = dims[dim1], dims[dim0]
out = fd.ops.permute(x, dims)""",
    "true_divide": "out = fd.ops.truediv(x, y)",
    "type_as": "out = fd.ops.cast(x, y.dtype)",
    "unsqueeze": "out = fd.ops.broadcast(x, [i == dim for i in range(x.ndim + 1)])",
    "view": "out = fd.ops.reshape(x, shape)",
    # ---- activations
    "celu": "out = fd.ops.where(x > 0.0, x, alpha * fd.ops.expm1(x / alpha))",
    "elu": "out = fd.ops.where(x > 0.0, x, alpha * fd.ops.expm1(x))",
    "glu": """\
half = x.size(dim) / 2
sizes = [half if i == dim else x.size(i) for i in range(x.ndim)]
starts = [half if i == dim else 0 for i in range(x.ndim)]
ends = [half + half if i == dim else x.size(i) for i in range(x.ndim)]
out = fd.ops.slice(x, [0] * x.ndim, sizes) * fd.ops.sigmoid(fd.ops.slice(x, starts, ends))""",
    "hardsigmoid": "out = fd.ops.clamp(x / 6.0 + 0.5, 0.0, 1.0)",
    "hardswish": "out = x * fd.ops.clamp(x + 3.0, 0.0, 6.0) / 6.0",
    "hardtanh": "out = fd.ops.clamp(x, min_val, max_val)",
    "leaky_relu": "out = fd.ops.where(x > 0.0, x, negative_slope * x)",
    "logsigmoid": "out = fd.ops.minimum(x, 0.0) - fd.ops.log1p(fd.ops.exp(-fd.ops.abs(x)))",
    "mish": """\
softplus = fd.ops.maximum(x, 0.0) + fd.ops.log1p(fd.ops.exp(-fd.ops.abs(x)))
out = x * fd.ops.tanh(softplus)""",
    "relu6": "out = fd.ops.clamp(x, 0.0, 6.0)",
    "selu": """\
alpha, scale = 1.6732632423543772, 1.0507009873554805
out = scale * fd.ops.where(x > 0.0, x, alpha * fd.ops.expm1(x))""",
    "softplus": "out = fd.ops.maximum(x, 0.0) + fd.ops.log1p(fd.ops.exp(-fd.ops.abs(x)))",
    "softsign": "out = x / (1.0 + fd.ops.abs(x))",
    "tanhshrink": "out = x - fd.ops.tanh(x)",
    # ---- arithmetic
    "addcdiv": "out = x + value * y / z",
    "copysign": "out = fd.ops.where(fd.ops.signbit(y), -fd.ops.abs(x), fd.ops.abs(x))",
    "deg2rad": "out = x * 0.017453292519943295",
    "floor_divide": "out = fd.ops.floor(fd.ops.truediv(x, y))",
    "hypot": "out = fd.ops.sqrt(x * x + y * y)",
    "logaddexp": """\
high = fd.ops.maximum(x, y)
out = high + fd.ops.log1p(fd.ops.exp(-fd.ops.abs(x - y)))""",
    "logical_xor": "out = fd.ops.ne(fd.ops.cast(x, DataType.Bool), fd.ops.cast(y, DataType.Bool))",
    "logit": "out = fd.ops.log(x / (1.0 - x))",
    "nan_to_num": """\
out = fd.ops.where(fd.ops.isnan(x), nan, x)
out = fd.ops.where(fd.ops.isposinf(x), posinf, fd.ops.where(fd.ops.isneginf(x), neginf, out))""",
    "rad2deg": "out = x * 57.29577951308232",
    "square": "out = x * x",
    "xlogy": "out = fd.ops.where(fd.ops.eq(x, 0.0), 0.0, x * fd.ops.log(y))",
    # ---- reductions
    "count_nonzero": "out = fd.ops.sum(fd.ops.cast(fd.ops.ne(x, 0), DataType.Int), dim)",
    "dist": "out = fd.ops.sqrt(fd.ops.sum((x - y) * (x - y)))",
    "l1_loss": "out = fd.ops.mean(fd.ops.abs(x - y), list(range(x.ndim)))",
    "mse_loss": "out = fd.ops.mean((x - y) * (x - y), list(range(x.ndim)))",
    "nansum": "out = fd.ops.sum(fd.ops.where(fd.ops.isnan(x), 0.0, x), dim)",
    "norm": "out = fd.ops.sqrt(fd.ops.sum(x * x))",
    "normalize": """\
norm = fd.ops.sqrt(fd.ops.sum(x * x, dim, keepdim=True))
out = x / fd.ops.maximum(norm, eps)""",
    "softmin": """\
e = fd.ops.exp(fd.ops.min(x, dim, keepdim=True) - x)
out = e / fd.ops.sum(e, dim, keepdim=True)""",
}  # fmt: skip
