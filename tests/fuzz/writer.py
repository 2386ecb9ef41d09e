"""Writes one random program: draws inputs, calls, outputs and executions from a seeded generator.

Each call is evaluated with torch as it is written (see `bounded`). So the next one is chosen knowing shapes
and types, and a call whose result would tell nothing (overflow, or an error as large as the value) is left
out.

Dimensions are known by names that speak of the program's extents (see `dims`): whatever sizes an execution
gives those, a program whose names agree is valid, where it also meets what its calls require of the sizes.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fusewright import DataType
from tests.fuzz.bounded import Bounded
from tests.fuzz.dims import Dim, extents_in, factors, size_of, value_of
from tests.fuzz.layouts import Layout, declare, plain_layout, random_layout
from tests.fuzz.operations import OPERATIONS
from tests.fuzz.programs import (
    OTHER_GPUS,
    Argument,
    Call,
    Extent,
    Input,
    Output,
    Program,
    Ref,
    TensorArgument,
    input_value,
    make_argument,
    operand,
)

MAX_ELEMENTS = 6000
# Below this share of elements that say something, a result is not used.
LEAST_KNOWN = 0.6
# Of extents that are 0, or 1, in a further execution whatever sizes there are otherwise: one in so many.
DEGENERATE = 12
# How often sizes of a further execution are drawn that keep every value small.
SIZE_DRAWS = 10
SIZES = (1, 2, 3, 4, 5, 7, 8, 16, 17, 31, 32, 33, 64, 65, 100, 128, 130, 255, 256)

FLOATS = (DataType.Float, DataType.BFloat16, DataType.Half, DataType.Double)
COMPLEX = (DataType.ComplexFloat, DataType.ComplexDouble)
DISCRETE = (DataType.Int, DataType.Int32, DataType.Int8, DataType.UInt8, DataType.Bool)
# Types that are computed with in no other way than by casting to another one.
STORED = (DataType.Float8_e4m3fn, DataType.Float8_e5m2)
# What results may have: a choice of UInt8 and Int8 is Int16.
DATATYPE = {d.torch: d for d in (*FLOATS, *COMPLEX, *DISCRETE, *STORED, DataType.Int16)}

# What moves elements: of indices it makes indices.
MOVES = ("set", "permute", "broadcast", "squeeze", "expand", "reshape", "slice", "flip", "segment_set")


@dataclass(frozen=True)
class Slot:
    """A value that later calls may use.

    below: the size of what it holds indices into, if it does. is_hidden: whether only the call that is drawn
    for it uses it: it is no tensor, or of a type without functions.
    """

    index: int
    value: Bounded
    dims: tuple[Dim, ...]
    below: str | None = None
    is_hidden: bool = False

    @property
    def dtype(self) -> DataType:
        return DATATYPE[self.value.dtype]

    @property
    def is_float(self) -> bool:
        return self.value.dtype.is_floating_point

    @property
    def is_complex(self) -> bool:
        return self.value.dtype.is_complex

    @property
    def is_reduced(self) -> bool:
        """Of a type that has no complex counterpart."""
        return self.is_float and self.value.dtype.itemsize < 4

    @property
    def ndim(self) -> int:
        return len(self.dims)


@dataclass(frozen=True)
class Flavour:
    """A kind of programs.

    Attributes:
        kinds: the names of what is drawn call by call, in `kinds.KINDS`; a name may occur several times.
        dtypes: of the inputs. sizes: of the extents. min_rank, max_rank: how many extents there are.
        max_calls: how many calls there are at most, more or less.
        elements: how many the first input has at most.
        layouts: whether inputs lie in memory in any way; else they are contiguous.
        outputs: how many there are at most.
        aliases: how likely it is that an output is written into an input that has its shape.
        squares: how likely it is that two dimensions of an input are the same extent.
        indices: how many inputs hold indices at most.
        further: how many executions there are at most besides the first.
    """

    kinds: tuple[str, ...]
    dtypes: tuple[DataType, ...] = FLOATS
    sizes: tuple[int, ...] = SIZES
    min_rank: int = 1
    max_rank: int = 3
    max_calls: int = 12
    elements: int = MAX_ELEMENTS
    layouts: bool = True
    outputs: int = 3
    aliases: float = 0.1
    squares: float = 0.1
    indices: int = 0
    further: int = 2


class Writer:
    """The program as far as it is written, and what has been drawn."""

    def __init__(self, rng: random.Random, flavour: Flavour) -> None:
        self.rng = rng
        self.flavour = flavour
        self.program = Program(executions=[[]])
        self.slots: list[Slot] = []
        self.used: set[int] = set()
        self.made: list[Any] = []  # the inputs of the first execution
        self.layouts: list[Layout | None] = []
        self.extents: dict[str, int] = {}
        self.constant: set[str] = set()  # extents that an input declares with their size
        self.sources: dict[str, Extent] = {}  # dimensions of values that have sizes of these names
        self.required: list[str] = []  # of the extents, in every execution

    # ---- drawing

    def pick(self, options: Sequence[Any]) -> Any:
        return options[int(self.rng.random() * len(options))]

    def chance(self, one_in: float) -> bool:
        return self.rng.random() * one_in < 1.0

    def permutation(self, rank: int) -> tuple[int, ...]:
        return tuple(self.rng.sample(range(rank), rank))

    def any(self, accepts: Callable[[Slot], bool] = lambda s: True) -> Slot | None:
        """A value, the later ones more often."""
        options = [s for s in self.slots if not s.is_hidden and s.dtype not in STORED and accepts(s)]
        if not options:
            return None
        return self.pick(options[-3:] if self.chance(2) else options)

    def tensor(self, accepts: Callable[[Slot], bool] = lambda s: True) -> Slot | None:
        """A value with dimensions."""
        return self.any(lambda s: s.ndim > 0 and accepts(s))

    def given(self, number: int) -> int | Slot:
        """A number, or an input that it is in every execution."""
        first = zip(self.program.inputs, self.program.executions[0], self.slots)
        same = [slot for spec, value, slot in first if spec.form == "number" and value == number]
        return same[0] if same and self.chance(2) else number

    # ---- sizes

    def size(self, dim: Dim) -> int:
        return size_of(dim, self.extents)

    def is_constant(self, dim: Dim) -> bool:
        """Whether the definition knows the size."""
        return dim is None or extents_in(dim) <= self.constant

    def named(self, dim: Dim) -> Dim:
        """The dimension of this size: where all know it, a constant extent or the number."""
        if dim is None or dim in self.extents or not self.is_constant(dim):
            return dim
        size = self.size(dim)
        same = (name for name in sorted(self.constant) if self.extents[name] == size)
        return next(same, str(size))

    def require(self, condition: str) -> bool:
        """Whether a condition holds of the sizes; all executions are then to meet it."""
        if not value_of(condition, self.extents):
            return False
        self.required.append(condition)
        return True

    def operand_of(self, dim: Dim) -> Any:
        """A number, the size of some value, or a product of such; None: this size has no operand."""
        if dim is None or (self.is_constant(dim) and (dim not in self.sources or self.chance(2))):
            return self.size(dim)
        if dim in self.sources:
            return self.sources[dim]
        names = factors(dim)
        parts = [self.operand_of(name) for name in names] if len(names) > 1 else [None]
        if None in parts:
            return None
        result = parts[0]
        for part in parts[1:]:
            result = self.call("mul", result, part, dims=())
            if result is None:
                return None
        return result

    # ---- inputs

    def write(self, kinds: dict[str, Callable[[Writer], None]]) -> Program:
        self._draw_extents()
        if self.chance(4):
            self.program.gpu = self.pick(OTHER_GPUS)
        for i in range(self.rng.randint(1, 3)):
            self._tensor(first=i == 0)
        if self.chance(10):
            self._twin()
        for _ in range(self.rng.randint(0, self.flavour.indices)):
            self._indices()
        if self.chance(5):
            self._scalar()
        if self.flavour.indices and self.chance(3):
            for number in self.rng.sample((-2, -1, 1, 2, 3), 2):
                self._add_input(Input(DataType.Int, "number"), number, None, ())
        wanted = self.rng.randint(1, self.flavour.max_calls)
        for _ in range(2 * wanted):  # some calls come to nothing
            if len(self.program.calls) >= wanted:
                break
            kinds[self.pick(self.flavour.kinds)](self)
        self._outputs()
        self._executions()
        return self.program

    def _draw_extents(self) -> None:
        elements = 1
        rank = self.rng.randint(self.flavour.min_rank, self.flavour.max_rank)
        for name in "abcdefghijkl"[:rank]:
            size = self.pick([s for s in self.flavour.sizes if elements * s <= self.flavour.elements] or [1])
            self.extents[name] = size
            elements *= max(size, 1)

    def _tensor(self, first: bool) -> None:
        names: list[Dim] = [n for n in self.extents if first or not self.chance(8)]
        if not first:
            names = [None if self.chance(6) else n for n in names]
            if names and self.chance(6):
                names = names[self.rng.randrange(len(names)) :]
        if names and self.rng.random() < self.flavour.squares:
            dim, size = self.rng.randrange(len(names) + 1), self.extents.get(names[-1] or "", 1)
            if size * math.prod(self.extents[n] for n in names if n) <= self.flavour.elements:
                names.insert(dim, names[-1])
        if self.chance(6):
            self.rng.shuffle(names)
        self._declare(names, len(self.program.inputs))

    def _twin(self) -> None:
        """An input for which calls pass the tensor of another one."""
        twin = self.rng.randrange(len(self.program.inputs))
        spec, argument = replace(self.program.inputs[twin], twin=twin), self.program.executions[0][twin]
        self._add_input(spec, argument, self.layouts[twin], self.slots[twin].dims, self.slots[twin].below)

    def _indices(self) -> None:
        """An input that holds indices into a dimension of another: a list, or of the shape of one."""
        sources = [s for s in self.slots if any(d and self.size(d) for d in s.dims)]
        if not sources:
            return
        source = self.pick(sources)
        at = self.pick([i for i, d in enumerate(source.dims) if d and self.size(d)])
        below = source.dims[at]
        dims: list[Dim] = list(source.dims)
        if self.chance(1.5):
            dims[at] = name = "xyzuvw"[len(self.extents.keys() & set("xyzuvw"))]
            self.extents[name] = self.pick(
                [n for n in self.flavour.sizes if n <= 2 * self.size(below)] or [1]
            )
        if self.chance(2):
            dims = [dims[at]]
        elif self.chance(3):
            dims = [d if i == at or self.chance(2) else None for i, d in enumerate(dims)]
        if self.require(f"{below} > 0"):
            self._declare(dims, len(self.program.inputs), below)

    def _declare(self, dims: list[Dim], index: int, below: str | None = None) -> None:
        shape = [1 if d is None else self.extents[d] for d in dims]
        form = "define_tensor"
        if dims and not self.chance(2):
            form = self.pick(("symbolic", "symbolic", "strided", "static"))
        is_free = self.flavour.layouts and form == "define_tensor" and self.chance(4)
        layout = plain_layout(len(dims))
        if self.flavour.layouts and self.chance(1.5):
            layout = random_layout(self.rng, len(dims), may_expand=True)
        if is_free:
            layout = Layout(
                layout.order, (False,) * len(dims), layout.misaligned, is_free=True, expands=self.chance(2)
            )
        declared = [-1 if d else 1 for d in dims]
        for at, dim in enumerate(dims):
            if dim and form == "define_tensor" and self.chance(12):
                declared[at] = self.extents[dim]
        dtypes = self.flavour.dtypes if below is None else (DataType.Int, DataType.Int32)
        spec, layout, tensor = declare(self.rng, self.pick(dtypes), form, layout, shape, declared)
        if below is not None:
            tensor = replace(tensor, below=self.size(below))
        # Where the definition says 1, it is a broadcast.
        if form == "define_tensor":
            named = [d if size != 1 else None for d, size in zip(dims, declared)]
            self.constant |= {d for d, size in zip(dims, declared) if d and size > -1 and size != 1}
        else:
            named = [d if size != 1 else None for d, size in zip(dims, shape)]
            self.constant |= {d for d in named if d} if form == "static" else set()
        for at, dim in enumerate(named):
            if dim is not None:
                self.sources.setdefault(dim, Extent(index, at))
        self._add_input(spec, tensor, layout, tuple(named), below)

    def _scalar(self) -> None:
        dtype = self.pick((DataType.Double, DataType.Int, DataType.Float))
        form = "cpu_scalar" if self.chance(2) else "scalar"
        self._add_input(Input(dtype, form), scalar_value(self.rng, dtype), None, ())

    def _add_input(
        self,
        spec: Input,
        argument: Argument,
        layout: Layout | None,
        dims: tuple[Dim, ...],
        below: str | None = None,
    ) -> None:
        self.program.inputs.append(spec)
        self.program.executions[0].append(argument)
        self.layouts.append(layout)
        self.made.append(made := make_argument(spec, argument))
        self.slots.append(Slot(len(self.slots), input_value(spec, made), dims, below))

    # ---- calls

    def call(
        self,
        op: str,
        *args: Any,
        dims: tuple[Dim, ...] | list[tuple[Dim, ...]],
        hides: Sequence[int] = (),
        least_known: float = LEAST_KNOWN,
        **kwargs: Any,
    ) -> Slot | None:
        """Evaluates and appends a call whose Slots become Refs; None if its result would tell nothing.

        dims: of the result; a list of several if results differ. hides: the results that are hidden.
        """
        limit = 2 * max(self.flavour.elements, MAX_ELEMENTS)
        all_dims = dims if isinstance(dims, list) else [dims]
        if any(math.prod(self.size(d) for d in each) > limit for each in all_dims):
            return None  # before it takes all memory
        refs = tuple(_as_ref(a) for a in args)
        given = [operand(a, lambda i: self.slots[i].value) for a in refs]
        result = OPERATIONS[op](*given, **kwargs)
        values = result if isinstance(result, tuple) else (result,)
        if any(v.data.numel() > limit or v.known < least_known for v in values):
            return None
        self.used |= _used(args)
        self.program.calls.append(Call(op, refs, tuple(kwargs.items()), len(values)))
        below = args[0].below if op in MOVES and isinstance(args[0], Slot) else None
        listed = all_dims if isinstance(dims, list) else all_dims * len(values)
        for number, (value, each) in enumerate(zip(values, listed)):
            assert tuple(value.data.shape) == tuple(map(self.size, each)), (op, each, value.data.shape)
            is_hidden = number in hides
            for at, dim in enumerate(() if is_hidden else each):
                if dim is not None:
                    self.sources.setdefault(dim, Extent(len(self.slots), at))
            self.slots.append(Slot(len(self.slots), value, each, below, is_hidden))
        return self.slots[-1]

    # ---- outputs

    def _outputs(self) -> None:
        inputs = len(self.program.inputs)
        tensors = [s for s in self.slots if not s.value.scalar and not s.is_hidden]
        made = [s for s in tensors if s.index >= inputs]
        ends = [s for s in made if s.index not in self.used][-self.flavour.outputs :]
        outputs = [Output(s.index, self._stride_order(s)) for s in ends or made[-1:] or tensors[:1]]
        aliases: set[int] = set()
        for i in range(inputs):
            layout, target = self.layouts[i], self.slots[i]
            if self.program.home(i) in map(self.program.home, aliases):
                continue
            if layout is None or layout.overlaps(target.dims) or self.rng.random() >= self.flavour.aliases:
                continue
            fits = [s for s in tensors if s.dims == target.dims and s.index != i and may_convert(s, target)]
            if not fits:
                continue
            source = self.pick(fits)
            outputs.append(Output(source.index, alias=i))
            aliases.add(i)
            if self.chance(2):  # it is then not returned, unless it is a plain output too
                outputs = [o for o in outputs if o.value != source.index or o.alias is not None]
        for _ in range(self.rng.randint(0, 2)):
            slot = self.pick(made or tensors)
            if slot.index not in aliases:
                outputs.append(Output(slot.index, self._stride_order(slot)))
        if self.chance(10):
            slot = self.pick(tensors)
            if slot.index not in aliases:
                outputs.append(Output(slot.index))
        self.rng.shuffle(outputs)
        written = set(map(self.program.home, aliases))
        self.program.outputs = [
            o for o in outputs
            if o.alias is not None or o.value >= inputs or self.program.home(o.value) not in written
        ]  # fmt: skip

    def _stride_order(self, slot: Slot) -> tuple[int, ...] | None:
        return self.permutation(slot.ndim) if slot.ndim > 1 and self.chance(5) else None

    # ---- executions

    def _executions(self) -> None:
        """Some more, of other sizes, layouts and alignments where the definition leaves them open."""
        self._conjugate(self.program.executions[0])
        for _ in range(self.rng.randint(0, self.flavour.further)):
            if self.chance(8):  # one again
                self.program.executions.append(self.pick(self.program.executions))
                continue
            sizes = self._sizes()
            arguments: list[Argument] = []
            for spec, layout, slot, first in zip(
                self.program.inputs, self.layouts, self.slots, self.program.executions[0]
            ):
                if spec.form == "number" or spec.twin is not None:
                    arguments.append(first if spec.twin is None else arguments[spec.twin])
                    continue
                if layout is None or not isinstance(first, TensorArgument):
                    arguments.append(scalar_value(self.rng, spec.dtype))
                    continue
                argument = layout.argument(self.rng, [size_of(d, sizes) for d in slot.dims])
                if slot.below is not None:
                    argument = replace(argument, below=size_of(slot.below, sizes))
                arguments.append(argument)
            self._conjugate(arguments)
            self.program.executions.append(arguments)

    def _conjugate(self, arguments: list[Argument]) -> None:
        """Makes some complex inputs that nothing is written into lazily conjugated views."""
        written = {self.program.home(o.alias) for o in self.program.outputs if o.alias is not None}
        for i, (spec, argument) in enumerate(zip(self.program.inputs, arguments)):
            if spec.dtype not in COMPLEX or i in written or not isinstance(argument, TensorArgument):
                continue
            if spec.twin is not None:
                arguments[i] = arguments[spec.twin]
            elif self.chance(3):
                arguments[i] = replace(argument, conj=True)

    def _sizes(self) -> dict[str, int]:
        """Of every extent; those of the first execution if others make some value too large."""
        limit = 2 * max(self.flavour.elements, MAX_ELEMENTS)
        for _ in range(SIZE_DRAWS):
            sizes = {
                name: size if name in self.constant or self.chance(4) else self._size(name)
                for name, size in self.extents.items()
            }
            # A size of 0 hides what the others are.
            shown = {name: max(size, 1) for name, size in sizes.items()}
            counts = [math.prod(max(size_of(d, shown), 1) for d in s.dims) for s in self.slots]
            if max(counts, default=0) <= limit and all(value_of(c, sizes) for c in self.required):
                return sizes
        return dict(self.extents)

    def _size(self, name: str) -> int:
        sizes = (0, 1) if self.chance(DEGENERATE) else self.flavour.sizes
        own = [c for c in self.required if extents_in(c) == {name}]
        fitting = [n for n in sizes if all(value_of(c, {name: n}) for c in own)]
        return self.pick(fitting or [self.extents[name]])


def scalar_value(rng: random.Random, dtype: DataType) -> Any:
    return rng.choice((2, -1, 3) if dtype is DataType.Int else (0.5, -1.25, 2.0))


def may_convert(source: Slot, target: Slot) -> bool:
    """Whether an output may be written into this input, of which every value then tells something."""
    return source.is_complex == target.is_complex and (
        source.dtype is target.dtype or target.is_float or (not source.is_float)
    )


def _used(value: Any) -> set[int]:
    if isinstance(value, Slot):
        return {value.index}
    return {i for v in value for i in _used(v)} if isinstance(value, (list, tuple)) else set()


def _as_ref(value: Any) -> Any:
    if isinstance(value, Slot):
        return Ref(value.index)
    return tuple(_as_ref(v) for v in value) if isinstance(value, (list, tuple)) else value
