"""How each operation is called in the matrix: one row an operation, for any shape and type that it takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fusewright import DataType
from tests.fuzz.functions import FUNCTIONS, TESTS
from tests.fuzz.programs import Call, Output, Ref

#: The inputs of every cell, of which it has those that it uses: two tensors of its type; bools; indices into
#: the last dimension, of its shape; indices into the first, one for each; for each row a class; and factors
#: for the last dimension, and for the channels.
X, Y, MASK, INDEX, ROWS_INDEX, TARGET, LAST, CHANNELS = map(Ref, range(8))


@dataclass
class Cell:
    """A fusion that is being written: calls on tensors of one shape and type."""

    shape: tuple[int, ...]
    dtype: DataType
    calls: list[Call] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    values: int = 8

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_empty(self) -> bool:
        return 0 in self.shape

    @property
    def channel(self) -> int:
        """The dimension of classes and channels."""
        return min(1, self.rank - 1)

    @property
    def last(self) -> int:
        return self.shape[-1] if self.shape else 0

    def call(self, op: str, *args: Any, results: int = 1, **kwargs: Any) -> Ref:
        """The first result of a call."""
        self.calls.append(Call(op, args, tuple(kwargs.items()), results))
        self.values += results
        return Ref(self.values - results)

    def add(self, op: str, *args: Any, results: int = 1, **kwargs: Any) -> None:
        """A call of which all results are outputs."""
        first = self.call(op, *args, results=results, **kwargs).index
        self.outputs += [Output(first + i) for i in range(results)]


Row = Callable[[Cell], None]


def _calls(
    *calls: Sequence[Any], ranks: range = range(9), full: bool = False, results: int = 1
) -> Callable[[str], Row]:
    """A row of calls with these arguments, for tensors of these ranks. full: and of at least one element."""

    def of(op: str) -> Row:
        def row(cell: Cell) -> None:
            if cell.rank in ranks and not (full and cell.is_empty):
                for args in calls:
                    cell.add(op, *args, results=results)

        return row

    return of


def _each(arguments: Callable[[Cell], Sequence[Sequence[Any]]], **conditions: Any) -> Callable[[str], Row]:
    """A row of calls with arguments that depend on the cell."""

    def of(op: str) -> Row:
        return lambda cell: _calls(*arguments(cell), **conditions)(op)(cell)

    return of


def _rows(names: str, make: Callable[[str], Row]) -> dict[str, Row]:
    return {name: make(name) for name in names.split()}


SOME = range(1, 9)
BELOW_LIMIT = range(8)

# ---- elementwise -------------------------------------------------------------------------------------------


def _number(cell: Cell) -> Any:
    return True if cell.dtype is DataType.Bool else 2


def _away_from_roots(cell: Cell) -> None:
    """Where a function is 0 its value is all error: of |x| + 3."""
    if cell.dtype is not DataType.UInt64:  # which has no arithmetic
        cell.add("lgamma", cell.call("add", cell.call("abs", X), 3))


def _shifts(op: str) -> Row:
    return lambda cell: cell.add(op, X, cell.call("abs", Y))


def _casts(cell: Cell) -> None:
    for dtype in (DataType.Float, DataType.Half, DataType.Double, DataType.Int, DataType.Bool):
        if not cell.dtype.is_complex and dtype is not cell.dtype:
            cell.add("cast", X, dtype)
    cell.add("cast", X, DataType.ComplexDouble)


def _bitcasts(cell: Cell) -> None:
    """To an integer, whose bits any value is, and back."""
    types = {1: DataType.UInt8, 2: DataType.Int16, 4: DataType.Int32, 8: DataType.Int}
    cell.add("bitcast", cell.call("bitcast", X, types.get(cell.dtype.size, DataType.Int)), cell.dtype)


# ---- reductions --------------------------------------------------------------------------------------------


def _reductions(op: str) -> Row:
    def row(cell: Cell) -> None:
        if cell.rank:
            cell.add(op, X, (cell.rank - 1,), keepdim=True)
            cell.add(op, X, (0,))
        cell.add(op, X, tuple(range(cell.rank)))

    return row


def _moments(op: str) -> Row:
    results = 2 if op == "var_mean" else 1

    def row(cell: Cell) -> None:
        if cell.rank:
            cell.add(op, X, (cell.rank - 1,), 0, keepdim=True, results=results)
            cell.add(op, X, (0,), 1, results=results)

    return row


def _welford(cell: Cell) -> None:
    if cell.rank:
        average = cell.call("welford", X, (cell.rank - 1,), results=3).index
        cell.outputs += [Output(average), Output(average + 1)]
        cell.add("cast", Ref(average + 2), DataType.Int)


def _max_sum_exp(cell: Cell) -> None:
    if cell.rank:
        for dims in ((cell.rank - 1,), tuple(range(cell.rank))):
            top = cell.call("max_sum_exp", X, dims, results=2).index
            cell.outputs += [Output(top), Output(top + 1)]


def _positions(op: str) -> Row:
    def row(cell: Cell) -> None:
        if cell.rank and not cell.is_empty:
            cell.add(op, X, cell.rank - 1, keepdim=True)
            cell.add(op, X, 0)
        if not cell.is_empty:
            cell.add(op, X, None)

    return row


# ---- sorting and products ----------------------------------------------------------------------------------


def _sort(op: str) -> Row:
    def row(cell: Cell) -> None:
        cell.add(op, X, -1, descending=True, stable=True, results=2 if op == "sort" else 1)
        if cell.rank:
            cell.add(op, X, 0, results=2 if op == "sort" else 1)

    return row


def _topk(cell: Cell) -> None:
    if cell.rank:
        cell.add("topk", X, min(2, cell.last), -1, True, True, results=2)
        cell.add("topk", X, cell.shape[0], 0, False, True, results=2)


def _turned(cell: Cell, x: Ref) -> Ref:
    """x with its last two dimensions exchanged."""
    places = (*range(cell.rank - 2), cell.rank - 1, cell.rank - 2)
    return cell.call("permute", x, places)


def _matmul(cell: Cell) -> None:
    if cell.rank == 1:
        cell.add("matmul", X, Y)
    elif cell.rank > 1:
        cell.add("matmul", X, _turned(cell, Y))
        cell.add("matmul", X, LAST)


def _linear(cell: Cell) -> None:
    if not cell.rank:
        return
    cell.add("linear", X, cell.call("stack", [LAST, LAST], 0))
    if cell.rank == 2:
        cell.add("linear", X, Y)
        cell.add("linear", X, Y, cell.call("select", X, 0, 1) if cell.last else CHANNELS)


def _attention(op: str) -> Row:
    """Of what has four dimensions, or is given them."""

    def row(cell: Cell) -> None:
        if not 2 <= cell.rank <= 4 or cell.is_empty:
            return
        flags = [i < 4 - cell.rank for i in range(4)]
        q, k = (t if cell.rank == 4 else cell.call("broadcast", t, flags) for t in (X, Y))
        for options in ({}, {"is_causal": True, "scale": 0.5}):
            first = cell.call("sdpfa_fwd", q, k, q, results=4, **options).index
            out, logsumexp, seed, offset = (Ref(first + i) for i in range(4))
            if op == "sdpfa_fwd":
                cell.outputs += [Output(out.index), Output(logsumexp.index)]
                continue
            more = (None, options.get("is_causal"), seed, offset, options.get("scale"))
            cell.add("sdpfa_bwd", k, q, k, q, out, logsumexp, *more, results=3)

    return row


def _grouped_mm(cell: Cell) -> None:
    """Groups of rows, of what is summed over, and of columns."""
    if cell.rank != 2 or cell.is_empty:
        return
    ends = [cell.call("iota", 2, n // 2, n - n // 2, DataType.Int32) for n in cell.shape]
    x, y = _turned(cell, X), _turned(cell, Y)
    forms = [
        (X, cell.call("stack", [x, y], 0), ends[0], 2),
        (X, y, ends[1], 3),
        (cell.call("stack", [X, Y], 0), y, ends[0], 2),
    ]
    for a, b, offsets, rank in forms:
        if cell.dtype.size > 1:
            cell.add("grouped_mm", a, b, offsets)
        ranks = (max(rank, 3) if m not in (X, y) else rank for m in (a, b))
        scales = [cell.call("full", (1,) * n, 0.5, DataType.Float) for n in ranks]
        first = cell.call("grouped_mm", a, b, offsets, *scales, dtype=DataType.Float, results=3)
        cell.outputs.append(Output(first.index))


def _scaled_mm(cell: Cell) -> None:
    if cell.rank == 2:
        scales = [cell.call("full", (1, 1), value, DataType.Float) for value in (0.5, 0.25)]
        for dtype in (DataType.BFloat16, DataType.Float):
            first = cell.call("scaled_mm", X, _turned(cell, Y), *scales, dtype=dtype, results=3)
            cell.outputs.append(Output(first.index))


# ---- shapes ------------------------------------------------------------------------------------------------


def _every(cell: Cell) -> tuple[int, ...]:
    return tuple(range(cell.rank))


MOVES: dict[str, Row] = {
    **_rows("broadcast", _each(
        lambda c: [(X, [False] * c.rank + [True]), (X, [True] + [False] * c.rank)], ranks=BELOW_LIMIT
    )),
    **_rows("expand", _each(lambda c: [(X, (3, *c.shape))], ranks=BELOW_LIMIT)),
    **_rows("permute stride_order", _each(lambda c: [(X, _every(c)[::-1])])),
    **_rows("reshape", _each(lambda c: [(X, c.shape[::-1]), (X, (1, *c.shape, 1))])),
    **_rows("flatten", _calls((X, 0, -1))),
    **_rows("flip", _each(lambda c: [(X, _every(c)), (X, c.rank - 1)], ranks=SOME)),
    **_rows("roll", _each(lambda c: [(X, (3,) * c.rank, _every(c))], ranks=SOME)),
    **_rows("unfold", _each(lambda c: [(X, 0, 2, 1), (X, c.rank - 1, 3, 2)], ranks=SOME)),
    **_rows("repeat", _each(lambda c: [(X, (2, *(1,) * (c.rank - 2), 3)[-max(c.rank, 1) :])])),
    **_rows("repeat_interleave", _each(lambda c: [(X, 3, 0), (X, 2, c.rank - 1)], ranks=SOME)),
    **_rows("slice", _each(lambda c: [
        (X, (1,) * c.rank, (5,) * c.rank, (2,) * c.rank), (X, (0,) * c.rank, (2**40,) * c.rank)
    ])),
    **_rows("pad", _each(lambda c: [(X, (1, 2)), (X, (-1, 3) if c.last else (0, 3))], ranks=SOME)),
    **_rows("broadcast_in_dim", _each(lambda c: [(X, (2, *c.shape), tuple(range(1, c.rank + 1)))])),
}  # fmt: skip


def _squeeze(cell: Cell) -> None:
    cell.add("squeeze", cell.call("broadcast", X, [True, *(False for _ in cell.shape)]), (0,))


def _joins(op: str) -> Row:
    def row(cell: Cell) -> None:
        if cell.rank:
            cell.add(op, [X, Y, X], 0)
            cell.add(op, [Y, X], -1)

    return row


def _parts(op: str) -> Row:
    """Of a dimension whose size is known: of x beside itself."""

    def row(cell: Cell) -> None:
        if cell.rank < 8:
            cell.add(op, cell.call("stack", [X, Y, X], 0), 2, 0, results=2)

    return row


def _sizes(op: str) -> Row:
    """What has the size, or the shape, of another tensor."""

    def row(cell: Cell) -> None:
        if op in ("shape", "tensor_sizes"):
            cell.add("full", cell.call(op, X), 1.0, DataType.Float)
        elif cell.rank:
            n = cell.call("size", X, 0) if op == "size" else cell.call("at", cell.call("shape", X), -1)
            cell.add("full", (n, 2), 1.0, DataType.Float)

    return row


# ---- by index ----------------------------------------------------------------------------------------------


def _index_select(cell: Cell) -> None:
    if cell.rank and not cell.is_empty:
        cell.add("index_select", X, cell.call("flatten", INDEX), cell.rank - 1)
        cell.add("index_select", X, ROWS_INDEX, 0)


def _embedding(cell: Cell) -> None:
    if cell.rank and not cell.is_empty:
        cell.add("embedding_fwd", INDEX, cell.call("broadcast", LAST, [False, True]))
        cell.add("embedding_fwd", ROWS_INDEX, _flat(cell))


def _flat(cell: Cell) -> Ref:
    return cell.call("reshape", X, (cell.shape[0], -1))


def _embedding_bwd(cell: Cell) -> None:
    if cell.rank and not cell.is_empty:
        grad = _flat(cell)
        cell.add("embedding_bwd", grad, ROWS_INDEX, cell.shape[0])
        cell.add("embedding_bwd", grad, ROWS_INDEX, cell.shape[0] + 1, 0, True)


def _scatter(cell: Cell) -> None:
    if cell.rank and not cell.is_empty:
        cell.add("scatter", X, INDEX, Y, -1)
        cell.add("scatter", X, INDEX, 1, -1)


# ---- normalizations ----------------------------------------------------------------------------------------


def _batch_norm(cell: Cell) -> None:
    if cell.rank > 1:
        cell.add("batch_norm", X, CHANNELS, CHANNELS, None, None, 0.1, 1e-5, True, results=3)
        variance = cell.call("abs", CHANNELS)
        cell.add("batch_norm", X, None, None, CHANNELS, variance, 0.1, 0.25, False, results=3)


def _group_norm(cell: Cell) -> None:
    if cell.rank > 1 and cell.shape[1]:
        cell.add("group_norm", X, 1, CHANNELS, CHANNELS, results=3)
        if cell.shape[1] % 2 == 0:
            cell.add("group_norm", X, 2, results=3)


def _cross_entropy(cell: Cell) -> None:
    if not cell.rank or not cell.shape[cell.channel]:
        return
    weight = cell.call("abs", CHANNELS)
    for reduction in ("none", "mean", "sum"):
        cell.add("cross_entropy", X, TARGET, None, -100, reduction)
    cell.add("cross_entropy", X, TARGET, weight, 0, "none", 0.25)


def _quantize(cell: Cell) -> None:
    """Of rows that are made 16 times as long; both results are widened, which is exact."""
    if cell.rank:
        rows = cell.call("repeat_interleave", X, 16, cell.rank - 1)
        first = cell.call("nv_block_quantize", rows, results=2).index
        cell.add("cast", Ref(first), DataType.Float)
        cell.add("cast", Ref(first + 1), DataType.Float)


# ---- made of nothing ---------------------------------------------------------------------------------------


def _made(op: str) -> Row:
    def row(cell: Cell) -> None:
        more: tuple[Any, ...] = (2,) if op == "full" else ()
        cell.add(op, cell.shape, *more, cell.dtype)

    return row


def _iota(cell: Cell) -> None:
    start, step = (1.0, 2.0) if cell.dtype.is_floating else (1, 2)
    cell.add("iota", cell.last, start, step, cell.dtype)


def _drawn(op: str) -> Row:
    """With a state of their own, and with the generator's."""

    def row(cell: Cell) -> None:
        for state in ({"rng_seed": 5, "rng_offset": 8}, {}):
            if op in ("uniform", "normal"):
                cell.add(op, 0.25, 0.5, cell.shape, dtype=cell.dtype, **state)
            elif op == "dropout":
                cell.add(op, X, 0.25, results=2, **state)
            else:
                cell.add(op, X, **state)

    return row


#: name of a group of rows that share fusions -> its rows
GROUPS: dict[str, dict[str, Row]] = {
    "functions": {
        **_rows("exp exp2 expm1 tanh sigmoid sqrt log log1p log2 atan asinh sinh erf sin cos", _calls((X,))),
        **_rows(" ".join(name for name in sorted(FUNCTIONS) if name != "lgamma"), _calls((X,))),
        "lgamma": _away_from_roots,
        **_rows("gelu", _calls((X,), (X, "tanh"))),
    },
    "unary": {
        **_rows("floor ceil trunc round reciprocal rsqrt silu relu abs neg sign set real imag", _calls((X,))),
        **_rows(" ".join(TESTS), _calls((X,))),
        **_rows("logical_not segment_set zeros_like ones_like", _calls((X,))),
        "cast": _casts,
        "bitcast": _bitcasts,
    },
    "binary": {
        **_rows(
            "add sub mul minimum maximum eq ne lt le gt ge",
            _each(lambda cell: [(X, _number(cell)), (X, Y)]),
        ),
        # Of integers, what a division by zero gives is undefined, and operands have zeros.
        **_rows(
            "mod fmod remainder div",
            _each(lambda cell: [(X, _number(cell))] + [(X, Y)] * (not cell.dtype.is_integral)),
        ),
        **_rows("truediv atan2 complex gcd nextafter logical_and logical_or", _calls((X, Y))),
        **_rows("bitwise_and bitwise_or bitwise_xor", _calls((X, Y))),
        **_rows("bitwise_left_shift bitwise_right_shift logical_right_shift", _shifts),
    },
    "ternary": {
        **_rows("where", _calls((MASK, X, Y), (MASK, X, 1))),
        **_rows("lerp", _calls((X, Y, 0.25))),
        **_rows("addcmul", _calls((X, Y, X, 2))),
        **_rows("threshold", _calls((X, 1, 2))),
        **_rows("clamp", _calls((X, 0, 2), (X, None, 1))),
        **_rows("pow", _calls((X, 2), (X, 3))),
        **_rows(
            "add_alpha sub_alpha",
            _each(lambda cell: [(X, Y, 2)] if cell.dtype is not DataType.UInt64 else []),
        ),
        **_rows("masked_fill", _calls((X, MASK, 1))),
        **_rows("full_like", _calls((X, 1))),
    },
    "made": {
        **_rows("full zeros ones", _made),
        "iota": _iota,
        **_rows("size shape tensor_sizes at", _sizes),
        **_rows("uniform normal rand_like randn_like dropout", _drawn),
    },
    "reductions": {
        **_rows("sum prod max min any all mean logsumexp", _reductions),
        **_rows("var std var_mean", _moments),
        "welford": _welford,
        "max_sum_exp": _max_sum_exp,
        **_rows("argmax argmin", _positions),
    },
    "along": {
        **_rows(
            "cumsum cumprod cummax cummin logcumsumexp softmax log_softmax",
            _each(lambda cell: [(X, cell.rank - 1), (X, -cell.rank)], ranks=SOME),
        ),
    },
    "normalized": {
        **_rows(
            "layer_norm",
            _each(lambda cell: [(X, 1, LAST, LAST), (X, cell.rank)], ranks=SOME, results=3),
        ),
        **_rows("rms_norm", _each(lambda cell: [(X, 1, LAST), (X, cell.rank)], ranks=SOME, results=2)),
        **_rows("instance_norm", _calls((X, CHANNELS, CHANNELS), ranks=range(2, 9), results=3)),
        "group_norm": _group_norm,
        "batch_norm": _batch_norm,
        "cross_entropy": _cross_entropy,
        "nv_block_quantize": _quantize,
    },
    "shapes": {**MOVES, "squeeze": _squeeze},
    "joins": {
        **_rows("cat stack", _joins),
        **_rows("chunk split", _parts),
        **_rows("triu tril", _calls((X, 0), (X, -1), ranks=range(2, 9))),
    },
    "finds": {
        **_rows("select", _calls((X, 0, 0), (X, -1, -1), ranks=SOME, full=True)),
        "index_select": _index_select,
        **_rows("gather take_along_axis", _calls((X, INDEX, -1), ranks=SOME, full=True)),
        "embedding_fwd": _embedding,
    },
    "library": {
        "matmul": _matmul,
        "linear": _linear,
        **_rows("sort argsort", _sort),
        "topk": _topk,
        "aten": lambda cell: cell.add("aten", "clone.default", (X,), (cell.shape,), (cell.dtype,)),
        "scatter": _scatter,
        **_rows("index_put_accumulate", _calls((X, ROWS_INDEX, Y), ranks=SOME, full=True)),
        "embedding_bwd": _embedding_bwd,
        **_rows("sdpfa_fwd sdpfa_bwd", _attention),
        "grouped_mm": _grouped_mm,
        "scaled_mm": _scaled_mm,
    },
}

ROWS: dict[str, Row] = {name: row for rows in GROUPS.values() for name, row in rows.items()}
