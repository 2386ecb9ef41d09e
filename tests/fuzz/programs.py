"""Random programs over `fd.ops`: as data, as a hypothesis strategy, and run in both interpreters.

A program is written call by call, and each call is evaluated with torch at once (see `bounded`): so the next
one is chosen knowing shapes and types, and a call whose result would tell nothing (overflow, or an error as
large as the value) is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from hypothesis import strategies as st

from fusewright import DataType, FusionDefinition
from tests.fuzz.bounded import KEEPS_BOOLS, UNARY, Bounded, exact
from tests.fuzz.operations import OPERATIONS

MAX_OPS = 30
MAX_ELEMENTS = 6000
# Below this share of elements that say something, a result is not used.
LEAST_KNOWN = 0.6
SIZES = (1, 2, 3, 4, 5, 7, 8, 16, 17, 31, 32, 33, 64, 65, 100, 128, 130, 255, 256)
LONG_SIZES = (500, 1000, 1024, 1025, 2048, 3000)

FLOATS = (DataType.Float, DataType.BFloat16, DataType.Half, DataType.Double)
COMPLEX = (DataType.ComplexFloat, DataType.ComplexDouble)
DISCRETE = (DataType.Int, DataType.Int32, DataType.Bool)
DATATYPE = {d.torch: d for d in (*FLOATS, *COMPLEX, *DISCRETE)}


# ---- programs as data --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """Where an input's elements lie: dimensions in memory order, gaps, start, and those of stride 0."""

    order: tuple[int, ...]
    step: int = 1
    stepped: int = 0
    offset: int = 0
    expanded: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Input:
    """One input. `declared`: which form of define_tensor or define_scalar declares it."""

    dtype: DataType
    shape: tuple[int, ...] | None
    layout: Layout = Layout(())
    declared: str = "strided"
    seed: int = 0
    value: Any = None

    def make(self) -> Any:
        """The tensor or number."""
        if self.shape is None:
            return self.value
        if self.declared == "cpu_scalar":
            return torch.tensor(self.value, dtype=self.dtype.torch)
        lay = self.layout
        sizes = [1 if d in lay.expanded else self.shape[d] for d in lay.order]
        if sizes:
            sizes[lay.stepped] *= lay.step
        count = math.prod(sizes) + lay.offset
        stored = _values(self.dtype, count, self.seed)[lay.offset :].reshape(sizes)
        if sizes and lay.step > 1:
            stored = stored[(slice(None),) * lay.stepped + (slice(None, None, lay.step),)]
        inverse = [lay.order.index(d) for d in range(len(self.shape))]
        return stored.permute(inverse).expand(self.shape)

    def declare(self, fd: FusionDefinition, tensor: Any) -> Any:
        """The handle."""
        if self.shape is None:
            return fd.define_scalar(None, self.dtype)
        if self.declared == "cpu_scalar":
            return fd.define_tensor([], [], self.dtype, is_cpu=True)
        if self.declared == "from_pytorch":
            # a rank-0 tensor on the CPU would be taken for a host scalar, which is another input
            return fd.from_pytorch(tensor)
        if self.declared == "static":
            return fd.from_pytorch(tensor, static_sizes=True)
        if self.declared == "sizes_and_strides":
            return fd.define_tensor(sizes=list(tensor.shape), strides=list(tensor.stride()), dtype=self.dtype)
        shape = [-1] * len(self.shape)
        if self.declared == "contiguous":
            return fd.define_tensor(shape, contiguity=True, dtype=self.dtype)
        return fd.define_tensor(shape, dtype=self.dtype)


def _values(dtype: DataType, count: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if dtype is DataType.Bool:
        return torch.randint(0, 2, (count,), generator=generator).bool()
    if dtype in (DataType.Int, DataType.Int32):
        return torch.randint(-6, 7, (count,), generator=generator).to(dtype.torch)
    if dtype in COMPLEX:
        return torch.randn(count, dtype=torch.complex128, generator=generator).to(dtype.torch)
    if seed % 3 == 0:  # quarters: many ties, and sums that are exact
        return (torch.randint(-8, 9, (count,), generator=generator) / 4).to(dtype.torch)
    return torch.randn(count, generator=generator).to(dtype.torch)


@dataclass(frozen=True)
class Ref:
    """Value number `index` of the program."""

    index: int


@dataclass(frozen=True)
class Call:
    """`fd.ops.<op>(*args, **kwargs)`; it makes one value, or two for var_mean."""

    op: str
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...] = ()


@dataclass
class Program:
    """Inputs, calls, and outputs as (value, stride_order or None). `expected`: one an output."""

    inputs: list[Input] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    outputs: list[tuple[int, tuple[int, ...] | None]] = field(default_factory=list)
    expected: list[Bounded] = field(default_factory=list, repr=False)

    def make_inputs(self) -> list[Any]:
        return [spec.make() for spec in self.inputs]

    def define(self, fd: FusionDefinition, inputs: Sequence[Any]) -> None:
        """Writes the program down inside `with FusionDefinition() as fd`."""
        values = [spec.declare(fd, tensor) for spec, tensor in zip(self.inputs, inputs)]
        for call in self.calls:
            args = [_resolved(arg, values) for arg in call.args]
            made = getattr(fd.ops, call.op)(*args, **dict(call.kwargs))
            values += made if isinstance(made, tuple) else [made]
        for index, order in self.outputs:
            if order is None:
                fd.add_output(values[index])
            else:
                fd.add_output(values[index], stride_order=list(order))


def _resolved(value: Any, values: Sequence[Any]) -> Any:
    if isinstance(value, Ref):
        return values[value.index]
    return [_resolved(item, values) for item in value] if isinstance(value, (list, tuple)) else value


# ---- writing one -------------------------------------------------------------------------------------------

Dim = str | None  # the name of an extent of the program, or None for a dimension that is a broadcast


@dataclass(frozen=True)
class Slot:
    """A value that later calls may use."""

    index: int
    value: Bounded
    dims: tuple[Dim, ...]

    @property
    def dtype(self) -> DataType:
        return DATATYPE[self.value.dtype]

    @property
    def is_float(self) -> bool:
        return self.value.dtype.is_floating_point

    @property
    def ndim(self) -> int:
        return len(self.dims)


def _aligned(a: Slot, b: Slot) -> bool:
    """Whether an elementwise operation takes both."""
    return all(x == y or None in (x, y) for x, y in zip(reversed(a.dims), reversed(b.dims)))


def _joined(slots: Sequence[Slot]) -> tuple[Dim, ...]:
    rank = max(s.ndim for s in slots)
    padded = [(None,) * (rank - s.ndim) + s.dims for s in slots]
    return tuple(next((d for d in column if d is not None), None) for column in zip(*padded))


@dataclass(frozen=True)
class Flavour:
    """What kind of programs: how often each kind of call is drawn, and over which types and sizes."""

    kinds: tuple[str, ...]
    dtypes: tuple[DataType, ...] = FLOATS
    sizes: tuple[int, ...] = SIZES
    max_rank: int = 3
    max_ops: int = MAX_OPS
    layouts: bool = False
    outputs: int = 3


class Writer:
    """Writes one program, drawing every choice from hypothesis."""

    def __init__(self, draw: Callable[..., Any], flavour: Flavour) -> None:
        self.draw = draw
        self.flavour = flavour
        self.program = Program()
        self.slots: list[Slot] = []
        self.used: set[int] = set()
        self.count = 0
        self.extents: dict[str, int] = {}

    def pick(self, options: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(list(options)))

    def chance(self, one_in: int) -> bool:
        return bool(self.draw(st.integers(0, one_in - 1)) == one_in - 1)

    # ---- inputs

    def write(self) -> Program:
        self._extents()
        for i in range(self.draw(st.integers(1, 3))):
            self._tensor(first=i == 0)
        if self.chance(3):
            self._scalar()
        wanted = self.draw(st.integers(1, self.flavour.max_ops))
        for _ in range(2 * wanted):  # some calls come to nothing
            if len(self.program.calls) >= wanted:
                break
            getattr(self, "_" + self.pick(self.flavour.kinds))()
        self._outputs()
        return self.program

    def _extents(self) -> None:
        elements = 1
        for name in "abcd"[: self.draw(st.integers(1, self.flavour.max_rank))]:
            size = self.pick([s for s in self.flavour.sizes if elements * s <= MAX_ELEMENTS])
            self.extents[name] = size
            elements *= max(size, 1)

    def _tensor(self, first: bool) -> None:
        names = [n for n in self.extents if first or not self.chance(4)]
        dims: list[Dim] = list(self.draw(st.permutations(names))) if self.chance(6) else list(names)
        shape = tuple(self.extents[d] for d in dims if d)
        declared = self.pick(("contiguous", "strided", "from_pytorch", "sizes_and_strides", "static"))
        layout = self._layout(len(dims)) if self.flavour.layouts else Layout(tuple(range(len(dims))))
        if declared == "contiguous" and layout != Layout(tuple(range(len(dims)))):
            declared = "strided"
        if not dims and declared != "contiguous":
            declared = "strided"
        spec = Input(self.pick(self.flavour.dtypes), shape, layout, declared, self.draw(st.integers(0, 99)))
        if declared in ("from_pytorch", "sizes_and_strides", "static"):  # size 1 is then a broadcast
            dims = [None if size == 1 else d for d, size in zip(dims, shape)]
        self._add_input(spec, tuple(dims))

    def _layout(self, rank: int) -> Layout:
        order = (
            tuple(self.draw(st.permutations(range(rank)))) if rank and self.chance(2) else tuple(range(rank))
        )
        lay = Layout(order)
        if rank and self.chance(3):
            lay = replace(lay, step=2, stepped=self.draw(st.integers(0, rank - 1)))
        if self.chance(4):
            lay = replace(lay, offset=self.draw(st.integers(1, 9)))
        if rank and self.chance(4):
            lay = replace(lay, expanded=frozenset({self.draw(st.integers(0, rank - 1))}))
        return lay

    def _scalar(self) -> None:
        dtype = self.pick((DataType.Double, DataType.Int, DataType.Float))
        value: Any = self.pick((2, -1, 3) if dtype is DataType.Int else (0.5, -1.25, 2.0))
        if self.chance(2):
            self._add_input(Input(dtype, (), declared="cpu_scalar", value=value), ())
        else:
            self._add_input(Input(dtype, None, value=value), ())

    def _add_input(self, spec: Input, dims: tuple[Dim, ...]) -> None:
        made = spec.make()
        self.program.inputs.append(spec)
        value = exact(made, dtype=spec.dtype) if spec.shape is None else exact(made)
        self._add(value, dims)

    def _add(self, value: Bounded, dims: tuple[Dim, ...]) -> None:
        assert len(dims) == value.data.ndim
        self.slots.append(Slot(self.count, value, dims))
        self.count += 1

    # ---- calls

    def call(self, op: str, *args: Any, dims: tuple[Dim, ...], **kwargs: Any) -> Slot | None:
        """Evaluates and appends a call whose Slots become Refs; None if its result would tell nothing."""
        result = OPERATIONS[op](*[a.value if isinstance(a, Slot) else a for a in args], **kwargs)
        values = result if isinstance(result, tuple) else (result,)
        if any(v.known < LEAST_KNOWN or v.data.numel() > 2 * MAX_ELEMENTS for v in values):
            return None
        self.used |= {a.index for a in args if isinstance(a, Slot)}
        refs = tuple(Ref(a.index) if isinstance(a, Slot) else a for a in args)
        self.program.calls.append(Call(op, refs, tuple(kwargs.items())))
        for value in values:
            self._add(value, dims)
        return self.slots[-1]

    def any(self, accepts: Callable[[Slot], bool] = lambda s: True) -> Slot | None:
        """A value, the later ones more often."""
        options = [s for s in self.slots if accepts(s)]
        if not options:
            return None
        recent = options[-3:]
        return self.pick(recent if self.chance(2) else options)

    def _unary(self) -> None:
        x = self.any()
        if x is None:
            return
        name = self.pick(tuple(UNARY if x.is_float else INTEGER_UNARY))
        if x.value.dtype.is_complex:
            name = self.pick(("neg", "set", "abs", "real", "imag"))
        elif x.dtype is DataType.Bool:
            name = self.pick((*KEEPS_BOOLS, "logical_not"))
        self.call(name, x, dims=x.dims)

    def _partner(self, x: Slot, accepts: Callable[[Slot], bool] = lambda s: True) -> Any:
        """A second operand: a value that aligns, or a number."""
        if self.chance(3):
            if x.is_float or x.value.dtype.is_complex:
                return self.pick((2.0, -0.5, 0.1, 1, 3))
            return self.pick((2, -1, 3, 0.5, True))
        return self.any(lambda s: _aligned(x, s) and accepts(s))

    def _binary(self) -> None:
        x = self.any()
        y = None if x is None else self._partner(x, lambda s: not (s.value.dtype.is_complex and _low(x)))
        if x is None or y is None:
            return
        number = not isinstance(y, Slot)
        dims = x.dims if number else _joined([x, y])
        types = {x.value.dtype} | ({type(y)} if number else {y.value.dtype})
        if any(t in (torch.complex64, torch.complex128) for t in types):
            if isinstance(y, Slot) and _low(y):
                return
            name = self.pick(("add", "sub", "mul"))
        elif any(t is float or getattr(t, "is_floating_point", False) for t in types):
            name = self.pick(
                ("add", "sub", "mul", "div", "truediv", "minimum", "maximum", *COMPARE, "logical_or")
            )
        elif types <= {torch.bool, bool}:
            name = self.pick(("bitwise_and", "bitwise_or", "bitwise_xor", "logical_and", "logical_or"))
        else:
            name = self.pick(INTEGER)
            if name in ("div", "mod", "remainder"):
                y = self.pick((2, 3, -4))
                dims = x.dims
        operands = (y, x) if self.chance(4) and name not in ("div", "mod", "remainder") else (x, y)
        self.call(name, *operands, dims=dims)

    def _ternary(self) -> None:
        name = self.pick(("where", "where", "clamp", "threshold", "lerp", "addcmul", "add_alpha", "pow"))
        if name == "where":
            condition = self.any(lambda s: s.dtype is DataType.Bool)
            if condition is None:
                return self._compare()
            x = self.any(lambda s: _aligned(condition, s) and not s.value.dtype.is_complex)
            if x is None:
                return None
            others = [s for s in self.slots if _aligned(s, condition) and _aligned(s, x)]
            y = self.any(lambda s: s in others and not s.value.dtype.is_complex)
            branches: list[Any] = [x, y if y is not None and self.chance(2) else self.pick((0.0, 1.5, -1))]
            if self.chance(3):
                branches.reverse()
            slots = [condition, *(b for b in branches if isinstance(b, Slot))]
            self.call("where", condition, *branches, dims=_joined(slots))
            return None
        x = self.any(lambda s: s.is_float and not s.value.scalar)
        if x is None:
            return None
        y = self.any(lambda s: s.is_float and _aligned(x, s))
        if name == "clamp":
            low, high = self.pick(((-1.0, 1.0), (0, 0.75), (None, 0.5), (-0.5, None)))
            self.call("clamp", x, low, high, dims=x.dims)
        elif name == "threshold":
            self.call("threshold", x, self.pick((0.0, 0.5)), self.pick((-1.0, 2.0)), dims=x.dims)
        elif name == "pow":
            self.call("pow", x, self.pick((2, 3)), dims=x.dims)
        elif y is not None and name == "add_alpha":
            self.call(self.pick(("add_alpha", "sub_alpha")), x, y, self.pick((0.5, 2)), dims=_joined([x, y]))
        elif y is not None and name == "lerp":
            self.call("lerp", x, y, self.pick((0.25, 0.75, x)), dims=_joined([x, y]))
        elif y is not None:
            self.call("addcmul", x, y, x, self.pick((0.5, -2.0)), dims=_joined([x, y]))
        return None

    def _compare(self) -> None:
        x = self.any(lambda s: not s.value.dtype.is_complex)
        y = None if x is None else self._partner(x, lambda s: not s.value.dtype.is_complex)
        if x is not None and y is not None:
            dims = _joined([x, y]) if isinstance(y, Slot) else x.dims
            self.call(self.pick(COMPARE), x, y, dims=dims)

    def _cast(self) -> None:
        x = self.any(lambda s: not s.value.dtype.is_complex)
        if x is not None:
            dtype = self.pick(
                (*self.flavour.dtypes, DataType.Float, DataType.Float, DataType.Int32, DataType.Bool)
            )
            if dtype not in COMPLEX or not _low(x):
                self.call("cast", x, dtype, dims=x.dims)

    # ---- shapes

    def _permute(self) -> None:
        x = self.any(lambda s: s.ndim > 1)
        if x is not None:
            dims = tuple(self.draw(st.permutations(range(x.ndim))))
            self.call("permute", x, dims, dims=tuple(x.dims[d] for d in dims))

    def _broadcast(self) -> None:
        x = self.any(lambda s: s.ndim < 4 and not s.value.scalar)
        if x is not None:
            at = self.draw(st.integers(0, x.ndim))
            flags = [i == at for i in range(x.ndim + 1)]
            self.call("broadcast", x, flags, dims=(*x.dims[:at], None, *x.dims[at:]))

    def _squeeze(self) -> None:
        x = self.any(lambda s: None in s.dims)
        if x is not None:
            dim = self.pick([i for i, d in enumerate(x.dims) if d is None])
            self.call("squeeze", x, [dim], dims=(*x.dims[:dim], *x.dims[dim + 1 :]))

    def _expand(self) -> None:
        x = self.any(lambda s: None in s.dims)
        free = [n for n in self.extents if x is not None and n not in x.dims]
        if x is not None and free:
            dim, name = self.pick([i for i, d in enumerate(x.dims) if d is None]), self.pick(free)
            dims = tuple(name if i == dim else d for i, d in enumerate(x.dims))
            shape = tuple(self.extents[name] if i == dim else -1 for i in range(x.ndim))
            self.call("expand", x, shape, dims=dims)

    def _back(self) -> None:
        """A value broadcast to where another one has more dimensions."""
        wide = self.any(lambda s: s.ndim > 1)
        if wide is None:
            return
        narrow = self.any(lambda s: s.ndim < wide.ndim and not s.value.scalar and _within(s.dims, wide.dims))
        if narrow is not None and None not in narrow.dims and len(set(narrow.dims)) == narrow.ndim:
            at = [wide.dims.index(d) for d in narrow.dims]
            if self.chance(4) and None not in wide.dims:
                shape = tuple(self.extents[d] for d in wide.dims if d)
                self.call("broadcast_in_dim", narrow, shape, tuple(at), dims=wide.dims)
            else:
                flags = [i not in at for i in range(wide.ndim)]
                dims = tuple(d if i in at else None for i, d in enumerate(wide.dims))
                self.call("broadcast", narrow, flags, dims=dims)

    def _order(self) -> None:
        x = self.any(lambda s: s.ndim > 1)
        if x is not None:
            self.call("stride_order", x, tuple(self.draw(st.permutations(range(x.ndim)))), dims=x.dims)

    def _factory(self) -> None:
        x = self.any(lambda s: s.ndim > 0 and None not in s.dims)
        if x is not None:
            shape = tuple(self.extents[d] for d in x.dims if d)
            if self.chance(2):
                dtype = self.pick((DataType.Int, DataType.Float))
                start, step = (1, 2) if dtype is DataType.Int else (0.5, 0.25)
                self.call("iota", shape[-1], start, step, dtype, dims=x.dims[-1:])
            else:
                self.call("full", shape, self.pick((0.5, 2.0)), self.pick(FLOATS), dims=x.dims)

    # ---- reductions

    def _reduced_dims(self, x: Slot) -> tuple[int, ...]:
        style = self.pick(("last", "last", "first", "all", "some"))
        if style == "last":
            return (x.ndim - 1,)
        if style == "first":
            return (0,)
        if style == "all":
            return tuple(range(x.ndim))
        return tuple(sorted(self.draw(st.sets(st.integers(0, x.ndim - 1), min_size=1))))

    def _reduce(self) -> None:
        x = self.any(lambda s: s.ndim > 0)
        if x is None:
            return
        over, keepdim = self._reduced_dims(x), self.chance(2)
        if x.value.dtype.is_complex:
            name = "sum"
        elif x.is_float:
            name = self.pick(("sum", "sum", "mean", "max", "min", "prod", "var", "var_mean"))
        else:
            name = self.pick(("sum", "max", "min"))
        if name == "var_mean" and _low(x):
            name = "var"
        if name == "prod" and math.prod(x.value.data.shape[d] for d in over) > 64:
            name = "sum"
        args = (list(over), self.pick((0, 1))) if name.startswith("var") else (list(over),)
        self.call(name, x, *args, keepdim=keepdim, dims=_without(x.dims, over, keepdim))

    def _normalize(self) -> None:
        """Softmax, layer norm or RMS norm over some dimensions, call by call."""
        x = self.any(lambda s: s.ndim > 0 and s.is_float)
        if x is None:
            return
        over = self._reduced_dims(x) if self.chance(2) else (x.ndim - 1,)
        kept = _without(x.dims, over, True)
        style = self.pick(("softmax", "layer_norm", "rms_norm"))
        up = self.call("cast", x, DataType.Float, dims=x.dims)
        if up is None:
            return
        if style == "softmax":
            top = self.call("max", up, list(over), keepdim=True, dims=kept)
            shifted = top and self.call("sub", up, top, dims=x.dims)
            powers = shifted and self.call("exp", shifted, dims=x.dims)
            total = powers and self.call("sum", powers, list(over), keepdim=True, dims=kept)
            out = total and self.call("div", powers, total, dims=x.dims)
        elif style == "layer_norm":
            average = self.call("var_mean", up, list(over), 0, keepdim=True, dims=kept)
            variance = average and self.slots[-2]
            safe = variance and self.call("add", variance, 1e-5, dims=kept)
            scale = safe and self.call("rsqrt", safe, dims=kept)
            centred = scale and self.call("sub", up, average, dims=x.dims)
            out = centred and self.call("mul", centred, scale, dims=x.dims)
        else:
            square = self.call("mul", up, up, dims=x.dims)
            average = square and self.call("mean", square, list(over), keepdim=True, dims=kept)
            safe = average and self.call("add", average, 1e-6, dims=kept)
            scale = safe and self.call("rsqrt", safe, dims=kept)
            out = scale and self.call("mul", up, scale, dims=x.dims)
        if out is not None and self.chance(2):
            self.call("cast", out, x.dtype, dims=x.dims)

    # ---- outputs

    def _outputs(self) -> None:
        tensors = [s for s in self.slots if not s.value.scalar]
        made = [s for s in tensors if s.index >= len(self.program.inputs)]
        ends = [s for s in made if s.index not in self.used][-self.flavour.outputs :]
        if made and self.chance(3):
            ends.append(self.pick(made))
        for slot in ends or made[-1:] or tensors[:1]:
            order = None
            if slot.ndim > 1 and self.chance(5):
                order = tuple(self.draw(st.permutations(range(slot.ndim))))
            self.program.outputs.append((slot.index, order))
            self.program.expected.append(slot.value)


# On integers silu is not defined.
INTEGER_UNARY = tuple(name for name in UNARY if name != "silu")
COMPARE = ("lt", "le", "gt", "ge", "eq", "ne")
INTEGER = ("add", "sub", "mul", "minimum", "maximum", "div", "mod", "remainder", "truediv", *COMPARE)


def _low(x: Slot) -> bool:
    """Of a type that has no complex counterpart."""
    return x.value.dtype in (torch.float16, torch.bfloat16)


def _within(narrow: tuple[Dim, ...], wide: tuple[Dim, ...]) -> bool:
    """Whether `wide` has the dimensions of `narrow` in the same order."""
    rest = iter(wide)
    return all(d in rest for d in narrow)


def _without(dims: tuple[Dim, ...], over: Sequence[int], keepdim: bool) -> tuple[Dim, ...]:
    if keepdim:
        return tuple(None if i in over else d for i, d in enumerate(dims))
    return tuple(d for i, d in enumerate(dims) if i not in over)


def programs(flavour: Flavour) -> st.SearchStrategy[Program]:
    """Programs of a flavour, with what they must give."""

    @st.composite
    def strategy(draw: Callable[..., Any]) -> Program:
        return Writer(draw, flavour).write()

    return strategy()
