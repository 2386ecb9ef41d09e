"""A fusion: the values and nodes of one computation, and its inputs and outputs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from fusewright.core.dtype import INT64_MAX, Category, DataType
from fusewright.core.enums import MemoryType
from fusewright.core.errors import ShapeError
from fusewright.ir.axis import IterDomain, IterKind, transforms_between
from fusewright.ir.copies import copy_value
from fusewright.ir.index_map import computed_parts, is_sum_of_products, value_extent, value_of
from fusewright.ir.naming import Naming
from fusewright.ir.node import Node
from fusewright.ir.node_order import are_ordered, before_readers, producers_first
from fusewright.ir.text import fusion_text
from fusewright.ir.value import Number, Scalar, TensorView, Val
from fusewright.sym import (
    Expr,
    Mul,
    Symbol,
    as_int,
    const,
    defined,
    exact_quotient,
    is_nonneg,
    replace,
    substitute,
    symbol,
)

# Threads at the end of a launch compute indices beyond the tensor before a guard stops them: at most those of
# a block (1024 threads) with vectors of 16 elements, 1024 of them unrolled or looped over.
INDEX_HEADROOM = 1024 * 16 * 1024

#: The first letter of scalars' names, as in nvFuser's printed IR (floats: d for double, else f).
_SCALAR_PREFIX = {Category.INT: "i", Category.BOOL: "b", Category.COMPLEX: "c"}


@dataclass(frozen=True, slots=True)
class Output:
    """An output tensor. With `alias`, it is written into that input's memory; if `hidden`, it is not
    returned.
    """

    tensor: TensorView
    alias: TensorView | None = None
    hidden: bool = False


class Fusion:
    """Values, nodes in creation order (an ordered set), inputs (as passed) and outputs (as added).

    Tensors, axes and scalars are numbered from 0 in creation order, as printed IR shows them.
    """

    def __init__(self) -> None:
        self.inputs: list[Val] = []
        self.outputs: list[Output] = []
        self.nodes: dict[Node, None] = {}
        #: counts changes of nodes and what they read: equal numbers, no change
        self.edits = 0
        #: scalars whose value is used as a size: the symbol that stands for each
        self.scalar_of: dict[Symbol, Scalar] = {}
        #: scalars that were made as the size of an axis, and that axis
        self.size_axes: dict[Scalar, IterDomain] = {}
        #: sizes that the schedule assumes to be in [low, high]; a call with others needs another kernel
        self.ranges: dict[Symbol, tuple[int, int]] = {}
        #: sizes that the schedule takes to be multiples of a number, likewise
        self.multiples: dict[Symbol, int] = {}
        self._tensors = 0
        self._axes = 0
        self._scalars = 0
        #: sizes that the host computes from others, by the symbols that stand for them
        self.computed_sizes: dict[Symbol, Expr] = {}
        #: requirements on the sizes of a call, and the error message if they do not hold
        self.checks: list[tuple[Expr, str]] = []
        #: for symbols that were renamed the names that they were made with
        self.made_as: dict[Symbol, str] = {}
        #: what names values that nodes make; None: they are called by their numbers
        self.naming: Naming | None = None
        #: what is known of a fusion that is frozen (`analyze.kept`); None: it may change
        self.analyses: dict[Hashable, object] | None = None
        self._equal: dict[Expr, Expr] = {}
        self._input_set: set[Val] = set()
        #: `edits`, the outputs, and `ordered_nodes` of them
        self._ordered: tuple[int, list[TensorView], Sequence[Node]] = (0, [], ())

    def empty_like(self) -> Fusion:
        """An empty fusion whose new values are numbered after those of this one."""
        new = Fusion()
        new._tensors, new._axes, new._scalars = self._tensors, self._axes, self._scalars
        return new

    @property
    def numbering(self) -> tuple[int, int, int]:
        """The numbers of the next tensor, axis and scalar. Reset it only after everything with these numbers
        is gone.
        """
        return self._tensors, self._axes, self._scalars

    @numbering.setter
    def numbering(self, numbers: tuple[int, int, int]) -> None:
        self._tensors, self._axes, self._scalars = numbers

    # ---- making values

    def new_axis(
        self,
        extent: Expr,
        kind: IterKind = IterKind.ITERATION,
        expanded: Expr | None = None,
        rfactor: bool = False,
    ) -> IterDomain:
        axis = IterDomain(self._axes, extent, kind, expanded, rfactor=rfactor)
        self._axes += 1
        return axis

    def plain_axis(self, extent: Expr, kind: IterKind) -> IterDomain:
        """new_axis with the signature that transforms call."""
        return self.new_axis(extent, kind)

    def copy_axis(self, axis: IterDomain, kind: IterKind | None = None) -> IterDomain:
        """A fresh axis of the same extent (and kind, unless given), serial."""
        return self.new_axis(axis.extent, kind or axis.kind, axis.expanded)

    def new_extent(self, multiple_of: int = 1) -> Symbol:
        """A fresh symbolic size, known to be a multiple of that number."""
        return symbol(f"i{self._next_scalar()}", lo=0, multiple_of=multiple_of)

    def new_tensor(
        self,
        logical: Sequence[IterDomain],
        dtype: DataType,
        *,
        root: Sequence[IterDomain] | None = None,
        memory: MemoryType = MemoryType.local,
        allocation: Sequence[IterDomain] | None = None,
        contiguity: Sequence[bool | None] | None = None,
        is_cpu: bool = False,
    ) -> TensorView:
        """A fresh tensor. ShapeError if its sizes are known and exceed 64-bit offsets."""
        name = f"T{self._tensors}" if self.naming is None else "a tensor that this makes"
        check_offsets(name, dtype, [as_int(axis.visible_extent) for axis in logical])
        tensor = TensorView(
            self._tensors,
            dtype,
            logical,
            root=root,
            memory=memory,
            allocation=allocation,
            contiguity=contiguity,
            is_cpu=is_cpu,
        )
        self._tensors += 1
        return tensor

    def new_like(self, tensor: TensorView, dtype: DataType | None = None) -> TensorView:
        """A fresh tensor with the dimensions that consumers of `tensor` see, and its type or another one."""
        return self.new_tensor(list(map(self.copy_axis, tensor.shape)), dtype or tensor.dtype)

    def new_scalar(self, dtype: DataType, value: Number | None = None, extent: Expr | None = None) -> Scalar:
        """A scalar. An integral one can be used as a size (`extent` if that is already known)."""
        name = f"{_scalar_prefix(dtype)}{self._next_scalar()}"
        if extent is None and dtype.is_integral:
            extent = const(int(value)) if isinstance(value, (bool, int)) else symbol(name, lo=0)
        scalar = Scalar(name, dtype, value, extent)
        if value is None and isinstance(extent, Symbol) and extent.name == name:
            self.scalar_of[extent] = scalar
        return scalar

    def size_scalar(self, extent: Expr) -> Scalar:
        """The value of a size expression as a scalar of type Int, known on the host."""
        value = as_int(extent)
        return self.new_scalar(DataType.Int, value, extent)

    def signed_value(self, scalar: Scalar) -> Expr | None:
        """The value of an integral scalar that may be negative, such as an offset; None for other scalars.

        The symbol for its use as a size is nonnegative.
        """
        value = scalar.extent
        if value is None or not any(s in self.scalar_of for s in value.free_symbols):
            return value
        if not is_sum_of_products(value):  # quotients and the like are of sizes
            return self._signed_symbol(scalar)
        signed = {
            s: self._signed_symbol(self.scalar_of[s]) for s in value.free_symbols if s in self.scalar_of
        }
        return substitute(value, signed)

    def _signed_symbol(self, scalar: Scalar) -> Symbol:
        known = (s for s, owner in self.scalar_of.items() if owner is scalar and s.lo < 0)
        found = next(known, None)
        if found is None:
            found = symbol(f"i{self._next_scalar()}", lo=-INT64_MAX - 1)
            self.scalar_of[found] = scalar
        return found

    def _next_scalar(self) -> int:
        self._scalars += 1
        return self._scalars - 1

    # ---- building

    def add_input(self, value: Val) -> None:
        self.inputs.append(value)
        self._input_set.add(value)
        if isinstance(value, TensorView):
            value.memory = MemoryType.global_

    def add_output(self, tensor: TensorView, alias: TensorView | None = None, hidden: bool = False) -> None:
        self.outputs.append(Output(tensor, alias, hidden))
        tensor.memory = MemoryType.global_

    def freeze(self) -> None:
        """Marks the fusion as final: it must not be changed any more."""
        self.analyses = {}

    def _edit(self) -> None:
        assert self.analyses is None, "a frozen fusion is changed"
        self.edits += 1

    def add_node(self, node: Node) -> Node:
        self._edit()
        self.nodes[node] = None
        if node.reduced is None:
            node.reduced = node.count_reduced()
        for out in node.outputs:
            out.definition = node
        for value in dict.fromkeys(node.inputs):
            value.uses.append(node)
        if self.naming is not None:
            self.naming.name_results(node)
        return node

    def remove_node(self, node: Node) -> None:
        self._edit()
        del self.nodes[node]
        for value in dict.fromkeys(node.inputs):
            value.uses.remove(node)
        for out in node.outputs:
            if out.definition is node:
                out.definition = None

    def replace_inputs(self, node: Node, values: dict[Val, Val]) -> None:
        """Makes `node` read values[v] wherever it reads v."""
        self._edit()
        for old in dict.fromkeys(node.inputs):
            if old in values:
                old.uses.remove(node)
                if node not in values[old].uses:
                    values[old].uses.append(node)
        node.inputs = tuple(values.get(v, v) for v in node.inputs)

    def equate(self, a: Expr, b: Expr, what: str) -> None:
        """Records that two sizes are equal in every valid call; raises ShapeError if they cannot be."""
        a, b = self._representative(a), self._representative(b)
        if a is b:
            return
        if as_int(a) is not None and as_int(b) is not None:
            raise ShapeError(
                f"{what}: a conflict was found with 2 different sizes", expected=str(a), given=str(b)
            )
        # A constant stands for the class, else the size that was made first.
        if as_int(b) is not None or (as_int(a) is None and self._made_before(b, a)):
            a, b = b, a
        self._equal[b] = a

    def _made_before(self, a: Expr, b: Expr) -> bool:
        """Whether size a was created before size b ('i3' before 'i12')."""
        names = [self.made_as.get(e, e.name) if isinstance(e, Symbol) else "" for e in (a, b)]
        first, second = (int(name[1:]) if name[1:].isdigit() else 1 << 30 for name in names)
        return first < second

    def require(self, condition: Expr, message: str) -> None:
        """States a requirement on the sizes of every call; ShapeError with `message` if it can never hold."""
        if as_int(condition) == 0:
            raise ShapeError(message)
        if as_int(condition) is None:
            self.checks.append((condition, message))

    def _representative(self, extent: Expr) -> Expr:
        while extent in self._equal:
            extent = self._equal[extent]
        return extent

    def same_size(self, a: Expr, b: Expr) -> bool:
        """Whether two sizes are equal in every valid call."""
        return self._representative(a) is self._representative(b)

    def unify_extents(self) -> None:
        """Rewrites every extent to the representative of its class of equal sizes, a constant or a symbol or
        a sum of products of these: any other size gets a symbol of its own, in `computed_sizes`.

        Extents are parts of index expressions, too, and become the same there.
        """
        table: dict[Symbol, Expr | int] = {
            s: self._representative(s) for s in self._equal if isinstance(s, Symbol)
        }
        if self._equal:
            sizes = [*self._equal, *(condition for condition, _ in self.checks)]
            sizes += [e for axis in self.axes() for e in (axis.extent, axis.expanded) if e is not None]
            unified = {e: substitute(self._representative(e), table) for e in sizes}
            memo: dict[Expr, Expr] = {}
            self._rename_sizes(partial(replace, replacements=unified, memo=memo))
            self.checks = [(substitute(condition, table), message) for condition, message in self.checks]
        self.name_computed_sizes()

    def name_computed_sizes(self) -> None:
        """Gives a symbol to each size that is no constant, symbol or sum of products of these."""
        # A size that follows from one which got a symbol is known to be a size only then.
        while computed := self._computed():
            self.name_sizes(dict.fromkeys(computed, 1))

    def name_sizes(self, sizes: Mapping[Expr, int]) -> None:
        """Gives a symbol to each of these sizes, in `computed_sizes`; with what it is a multiple of.

        Scalars that are products of such a size and others are computed from its symbol, too.
        """
        names = {e: self.new_extent(multiple_of) for e, multiple_of in sizes.items()}
        known: dict[Symbol, Expr | int] = dict(self.computed_sizes)
        for e, name in names.items():
            self.computed_sizes[name] = defined(substitute(e, known))
        if names:
            products = [s.extent for s in self._size_scalars() if isinstance(s.extent, Mul)]
            replacements: dict[Expr, Expr] = {
                e: of for e in products if (of := _with_a_name(e, names)) is not e
            }
            replacements.update(names)
            memo: dict[Expr, Expr] = {}
            self._rename_sizes(partial(replace, replacements=replacements, memo=memo))

    def renumber(self, sizes: Mapping[Symbol, Symbol]) -> None:
        """Numbers values and axes from 0, in the order of `values`, and gives sizes these names.

        Values are named by their numbers, and later values are numbered after these. A scalar that is a size
        takes the size's name; other scalars are numbered after the sizes.
        """
        self._tensors, self._scalars = 0, len(sizes)
        values, axes = self.values(), self.axes()
        for value in values:
            if isinstance(value, TensorView):
                value.number, value.label = self._tensors, f"T{self._tensors}"
                self._tensors += 1
                continue
            own = sizes.get(value.extent) if isinstance(value.extent, Symbol) else None
            if own is not None and value.name == str(value.extent):
                value.name = own.name
            else:
                value.name = f"{_scalar_prefix(value.dtype)}{self._next_scalar()}"
        for number, axis in enumerate(axes):
            axis.number = number
            self._axes = number + 1
        self.naming = Naming()
        self.scalar_of = {sizes[s]: scalar for s, scalar in self.scalar_of.items()}
        steps: list[Mapping[Symbol, Symbol]] = [sizes]
        # Bounds of positions, too, are made of sizes, and are renamed after the expressions that they are in.
        # So that no size has another's old name meanwhile, all have names that are nobody's at first.
        if any(node.index_expressions() for node in self.nodes):
            high = {s: None if isinstance(s.hi, Expr) else s.hi for s in sizes}
            passing = {s: symbol(f"{s.name}'", s.lo, high[s], s.multiple_of) for s in sizes}
            steps = [passing, {passing[s]: own for s, own in sizes.items()}]
        for step in steps:
            table: dict[Symbol, Expr | int] = dict(step)
            memo: dict[Expr, Expr] = {}
            rename = partial(substitute, replacements=table, memo=memo)
            self._rename_in_axes_and_nodes(rename, axes)
            for value in values:
                if isinstance(value, Scalar) and value.extent is not None:
                    value.extent = rename(value.extent)

    def _rename_in_axes_and_nodes(self, rename: Callable[[Expr], Expr], axes: Sequence[IterDomain]) -> None:
        for axis in axes:
            axis.extent = rename(axis.extent)
            if axis.expanded is not None:
                axis.expanded = rename(axis.expanded)
        for node in self.nodes:
            node.with_sizes(rename)

    def _rename_sizes(self, rename: Callable[[Expr], Expr]) -> None:
        self._rename_in_axes_and_nodes(rename, self.axes())
        self.checks = [(rename(condition), message) for condition, message in self.checks]
        for scalar in self._size_scalars():
            assert scalar.extent is not None
            scalar.extent = rename(scalar.extent)

    def _size_scalars(self) -> list[Scalar]:
        """Scalars that are sizes, but for those of inputs."""
        values = dict.fromkeys((*self.values(), *self.size_axes))  # some are sizes of shapes alone
        scalars = [v for v in values if isinstance(v, Scalar) and v.extent is not None]
        return [scalar for scalar in scalars if scalar.extent not in self.scalar_of]

    def _computed(self) -> list[Expr]:
        """Extents, and parts of index expressions, that are more than sums of products of sizes.

        A minimum or a quotient of sizes is one number to a kernel: the host computes it once a call. So is an
        extent that could be negative by its expression, as it is not.
        """
        found: dict[Expr, None] = {}
        for axis in self.axes():
            extents = (e for e in (axis.extent, axis.expanded) if e is not None)
            found.update((e, None) for e in extents if not is_sum_of_products(e) or not is_nonneg(e))
        for node in self.nodes:
            for e in node.index_expressions():
                found.update(dict.fromkeys(computed_parts(e)))
                values = (s for s in e.free_symbols if value_of(s) is not None)
                found.update((part, None) for s in values for part in computed_parts(value_extent(s)))
        return list(found)

    @property
    def equalities(self) -> list[tuple[Expr, Expr]]:
        """Pairs of sizes that must be equal in every call: (size, representative)."""
        return [(size, self._representative(size)) for size in self._equal]

    # ---- queries

    def values(self) -> list[Val]:
        """Inputs, then the operands and results of nodes, each once, in node order."""
        found: dict[Val, None] = dict.fromkeys(self.inputs)
        for node in self.nodes:
            for value in (*node.inputs, *node.outputs):
                found[value] = None
        found.update(dict.fromkeys(o.tensor for o in self.outputs))
        return list(found)

    def tensors(self) -> list[TensorView]:
        return [v for v in self.values() if isinstance(v, TensorView)]

    def axes(self) -> list[IterDomain]:
        """Every axis of every tensor, transforms' intermediate ones included."""
        found: dict[IterDomain, None] = {}
        for tensor in self.tensors():
            found.update(dict.fromkeys(tensor.maybe_root))
            found.update(dict.fromkeys(tensor.logical))
            for transform in transforms_between(tensor.maybe_root, (*tensor.logical, *tensor.loop)):
                found.update(dict.fromkeys(transform.outputs))
        return list(found)

    def with_outputs(self, outputs: Iterable[Output]) -> Fusion:
        """The same values and nodes with these outputs; to be read, not changed."""
        new = copy.copy(self)
        new.outputs, new.analyses = list(outputs), None
        return new

    def size_symbols(self) -> set[Symbol]:
        """The symbols of all sizes: of axes, of requirements on them, and in the indices of nodes."""
        used: set[Symbol] = set()
        for axis in self.axes():
            used |= axis.extent.free_symbols
            if axis.expanded is not None:
                used |= axis.expanded.free_symbols
        for pair in self.equalities:  # to be checked, whichever of the two axes are made of
            used.update(*(size.free_symbols for size in pair))
        for computed in self.computed_sizes.values():
            used |= computed.free_symbols
        for condition, _ in self.checks:
            used |= condition.free_symbols
        for computed in self.computed_sizes.values():
            used |= computed.free_symbols
        for node in self.nodes:
            used.update(*(e.free_symbols for e in node.index_expressions()))
        return used

    def is_input(self, value: Val) -> bool:
        return value in self._input_set

    def output_tensors(self) -> list[TensorView]:
        """Distinct output tensors in order."""
        return list(dict.fromkeys(o.tensor for o in self.outputs))

    def ordered_nodes(self) -> Sequence[Node]:
        """The nodes that outputs depend on, producers first; ties in creation order."""
        outputs = [o.tensor for o in self.outputs]
        edits, known, ordered = self._ordered
        if edits != self.edits or known != outputs:
            ordered = self._order(outputs)
            self._ordered = self.edits, outputs, ordered
        return ordered

    def move_producers_forward(self) -> None:
        """Puts nodes that were added late before the first node that reads them.

        `ordered_nodes` would put them behind all that does not need them, far from what they belong to.
        """
        self.nodes = before_readers(self.nodes)
        self.edits += 1

    def tensor_nodes(self) -> list[Node]:
        """Those of `ordered_nodes` that compute tensors."""
        return [node for node in self.ordered_nodes() if not node.is_scalar]

    def _order(self, outputs: Sequence[TensorView]) -> Sequence[Node]:
        needed: set[Node] = set()
        stack = [tensor.definition for tensor in outputs]
        while stack:
            node = stack.pop()
            if node is None or node in needed:
                continue
            needed.add(node)
            stack += [v.definition for v in node.inputs]
        created = [node for node in self.nodes if node in needed]
        return created if are_ordered(created) else producers_first(created)

    def __str__(self) -> str:
        return fusion_text(self)

    __repr__ = __str__

    # ---- copying

    def clone(self) -> tuple[Fusion, dict[Val, Val]]:
        """A deep copy and the map from values to their copies. Symbols are shared."""
        new = self.empty_like()
        new._equal = dict(self._equal)
        new.checks = list(self.checks)
        new.computed_sizes = dict(self.computed_sizes)
        new.ranges = dict(self.ranges)
        new.multiples = dict(self.multiples)
        axes: dict[IterDomain, IterDomain] = {}
        values: dict[Val, Val] = {}
        for value in self.values():
            values[value] = copy_value(value, axes)
        for node in self.nodes:
            new.add_node(node.copy(values))
        for value in self.inputs:
            new.add_input(values[value])
        for out in self.outputs:
            alias = values[out.alias] if out.alias is not None else None
            new.outputs.append(Output(values[out.tensor], alias, out.hidden))  # type: ignore[arg-type]
        new.made_as = dict(self.made_as)
        new.naming = None if self.naming is None else self.naming.copy()
        # A scalar that nothing here uses keeps standing for itself.
        new.scalar_of = {s: values.get(v, v) for s, v in self.scalar_of.items()}  # type: ignore[misc]
        return new, values


def _scalar_prefix(dtype: DataType) -> str:
    return _SCALAR_PREFIX.get(dtype.category, "d" if dtype is DataType.Double else "f")


def check_offsets(name: str, dtype: DataType, sizes: Sequence[int | None]) -> None:
    """Raises ShapeError if a tensor of these sizes has elements at byte offsets beyond 64 bits.

    None: a size that is not known yet, which could be zero; nothing is claimed then.
    """
    count = 1
    for size in sizes:
        if size is None:
            return
        count *= size
    if count and (count + INDEX_HEADROOM) * dtype.size > INT64_MAX:
        raise ShapeError(
            f"{name} has elements at offsets beyond 64 bits",
            expected=f"at most {INT64_MAX // dtype.size - INDEX_HEADROOM} elements of {dtype}",
            given=f"{count}, of shape [{', '.join(map(str, sizes))}]",
        )


def _with_a_name(size: Mul, names: Mapping[Expr, Symbol]) -> Expr:
    """A product of sizes, computed from the name of a part of it if one has a name."""
    for part, name in names.items():
        if isinstance(part, Mul) and (rest := exact_quotient(size, part)) is not None:
            return rest * name
    return size
