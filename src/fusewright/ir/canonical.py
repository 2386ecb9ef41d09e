"""The canonical text of a group of nodes: equal for groups that differ only in numbers and names.

The text has a line for each value that the group does not compute and for each node, in order::

    in Float[i0i,i1i]tt                                 0: an input
    Double 0.5                                          1: a constant
    Float[i0i,i1i]tt=Pointwise.79(op:mul.0f,...)(0,1)   2: what a node makes of 0 and 1
    out 2

Values are numbered in order of first use, and so are sizes. The text includes everything that the code of a
group depends on, so groups of equal text may share all results of compilation. An object for which the writer
has no text form is written as unique text that equals no other.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from functools import partial

from fusewright.core.enums import ParallelType
from fusewright.core.op import ElementwiseOp, LibraryOp, ReductionOp
from fusewright.ir.axis import IterDomain
from fusewright.ir.fusion import Fusion
from fusewright.ir.index_map import IndexMap, is_computed_size, position_of, value_of
from fusewright.ir.node import FEW_REDUCED, Node
from fusewright.ir.value import Scalar, TensorView, Val
from fusewright.sym import Expr, Symbol, as_int, substitute, symbol

# Hex digits that tell rows, or kinds of nodes, of one name apart.
DIGITS = 6

# The kinds of expressions whose operands may change places.
_UNORDERED = frozenset({"add", "mul", "min", "max", "xor", "eq", "and", "or"})

#: An output of a group, and the value whose memory it is written into.
GroupOutput = tuple[TensorView, TensorView | None]

# The form of a value or node without its sizes: text with a `%` for each expression, and the expressions.
_Form = tuple[str, tuple[Expr, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class Description:
    """The description of a group.

    Attributes:
        text: the canonical text.
        values: the group's values, by their numbers in the text.
        sizes: the group's size symbols, by their numbers in the text.
        computes: whether it has sizes that are computed from these, such as quotients.
    """

    text: str
    values: tuple[Val, ...]
    sizes: tuple[Symbol, ...]
    computes: bool = False


class Describer:
    """Describes groups of nodes of one fusion, and caches the text of each node and value.

    Args:
        own_inputs: inputs of the fusion. Any other tensor that a group reads comes from another kernel,
            without its reduced axes.
    """

    def __init__(self, own_inputs: Iterable[Val]) -> None:
        self._own_inputs = frozenset(own_inputs)
        self._nodes: dict[Node, _Form] = {}
        self._values: dict[Val, _Form] = {}
        self._border: dict[Val, _Form] = {}
        self._forms: dict[_Form, _Form] = {}

    def describe(
        self, nodes: Sequence[Node], inputs: Collection[Val], outputs: Sequence[GroupOutput]
    ) -> Description:
        """The description of `nodes` (producers first), which read `inputs` from outside."""
        numbers: dict[Val, int] = {}
        sizes = _Sizes()
        lines: list[str] = []
        for value in inputs:
            numbers[value] = len(numbers)
            lines.append(f"in {sizes.filled(self._value_form(value, value not in self._own_inputs))}")
        for node in nodes:
            for value in node.inputs:
                if value not in numbers:
                    numbers[value] = len(numbers)
                    lines.append(sizes.filled(self._value_form(value, False)))
            operands = ",".join([str(numbers[v]) for v in node.inputs])
            results = [sizes.filled(self._value_form(value, False)) for value in node.outputs]
            for value in node.outputs:
                numbers[value] = len(numbers)
            form = self._nodes.get(node)
            if form is None:
                form = self._nodes[node] = self._same(_node_form(node))
            lines.append(f"{';'.join(results)}={sizes.filled(form)}({operands})")
        for tensor, alias in outputs:
            target = "" if alias is None or alias not in numbers else f" in {numbers[alias]}"
            lines.append(f"out {numbers[tensor]}{target}")
        return Description("\n".join(lines), tuple(numbers), tuple(sizes.numbers), sizes.computes)

    def _value_form(self, value: Val, at_border: bool) -> _Form:
        known = self._border if at_border else self._values
        form = known.get(value)
        if form is None:
            found = _scalar_form(value) if isinstance(value, Scalar) else _tensor_form(value, at_border)
            form = known[value] = self._same(found)
        return form

    def _same(self, form: _Form) -> _Form:
        """The first equal form, so that forms are told apart by their ids."""
        return self._forms.setdefault(form, form)


def fusion_description(fusion: Fusion) -> Description:
    """The description of a whole fusion."""
    outputs = [(output.tensor, output.alias) for output in fusion.outputs]
    found = Describer(fusion.inputs).describe(list(fusion.nodes), fusion.inputs, outputs)
    number = {size: i for i, size in enumerate(found.sizes)}
    facts = [f"range {number.get(s)} {low} {high}" for s, (low, high) in fusion.ranges.items()]
    facts += [f"multiple {number.get(s)} {factor}" for s, factor in fusion.multiples.items()]
    return replace(found, text="\n".join([found.text, *facts]))


def canonical_sizes(sizes: Sequence[Symbol]) -> dict[Symbol, Symbol]:
    """The name of each size in a group that is numbered as its description is."""
    table: dict[Symbol, Symbol] = {}
    for number, size in enumerate(sizes):
        high = substitute(size.hi, dict(table)) if isinstance(size.hi, Expr) else size.hi
        table[size] = symbol(f"i{number}", size.lo, high, size.multiple_of)
    return table


class _Sizes:
    """Expressions as text in which size symbols have the numbers of their first use."""

    def __init__(self) -> None:
        self.numbers: dict[Symbol, int] = {}
        self.computes = False
        self._texts: dict[Expr, str] = {}
        self._filled: dict[int, str] = {}

    def filled(self, form: _Form) -> str:
        """The text of a form; the same form is the same object."""
        found = self._filled.get(id(form))
        if found is None:
            text, expressions = form
            found = self._filled[id(form)] = text % tuple([self._text(e) for e in expressions])
        return found

    def _text(self, e: Expr) -> str:
        found = self._texts.get(e)
        if found is None:
            found = self._texts[e] = self._written(e)
        return found

    def _written(self, e: Expr) -> str:
        value = as_int(e)
        if value is not None:
            return str(value)
        if not isinstance(e, Symbol):
            self.computes = self.computes or is_computed_size(e)
            operands = [self._text(arg) for arg in e.args]
            if e.kind in _UNORDERED:  # operands are in the order of names
                operands.sort()
            return f"{e.kind}({','.join(operands)})"
        high = self._text(e.hi) if isinstance(e.hi, Expr) else e.hi
        if position_of(e) is not None or value_of(e) is not None:
            name = e.name
        else:
            name = f"i{self.numbers.setdefault(e, len(self.numbers))}"
        is_any = e.lo == 0 and high is None and e.multiple_of == 1
        return name if is_any else f"{name}<{e.lo},{high},{e.multiple_of}>"


# ---- forms -----------------------------------------------------------------------------------------------


def _scalar_form(scalar: Scalar) -> _Form:
    text = f"{scalar.dtype.name} {_escaped(repr(scalar.value))}"
    if scalar.extent is None:
        return text, ()
    # The symbol that stands for a scalar has its name.
    is_own = isinstance(scalar.extent, Symbol) and scalar.extent.name == scalar.name
    return f"{text} {'is' if is_own else 'as'} %s", (scalar.extent,)


def _tensor_form(tensor: TensorView, at_border: bool) -> _Form:
    axes = tensor.shape if at_border else tensor.logical
    # Another kernel's tensor is what it is in memory, however that kernel iterates over it.
    root = tensor.root if tensor.is_placed and not at_border else None
    iterated = root if tensor.is_placed and tensor.root is not None else tensor.logical
    text, expressions = _axes_form(axes, at_border)
    if root is not None:
        iteration, found = _axes_form(root, at_border)
        text, expressions = f"{text} over {iteration}", [*expressions, *found]
    is_scheduled = tensor.prefetched or (tensor.root is not None and not tensor.is_placed)
    is_scheduled |= (
        tensor.storage is not None
        or tensor.inline_at > 0
        or tensor.unaligned
        or tensor.circular is not None
        or tensor.part is not None
        or tensor.everywhere
        or not set(tensor.allocation) <= set(tensor.logical)
    )
    is_scheduled |= not at_border and iterated is not None and tensor.loop != list(iterated)
    if is_scheduled:
        return f"{_unlike_any('scheduled')} {text}", tuple(expressions)
    position = {axis: i for i, axis in enumerate(axes)}
    order = [position[axis] for axis in tensor.allocation if axis in position or not at_border]
    stored = "" if order == list(range(len(axes))) else f" o{order}"
    contiguity = "".join(["n" if c is None else "ft"[c] for c in tensor.contiguity])
    place = " cpu" if tensor.is_cpu else ""
    return f"{tensor.dtype.name}{text}{contiguity}{stored}{place}", tuple(expressions)


def _axes_form(axes: Sequence[IterDomain], at_border: bool) -> tuple[str, list[Expr]]:
    shown: list[str] = []
    expressions: list[Expr] = []
    for axis in axes:
        text = f"%s{axis.kind.value}"
        expressions.append(axis.extent)
        if axis.expanded is not None:
            text += " ex %s"
            expressions.append(axis.expanded)
        if not at_border:
            text += "" if axis.parallel is ParallelType.serial else f" {axis.parallel.name}"
            text += f" rf pad{axis.padded}" if axis.rfactor else f" pad{axis.padded}" * (axis.padded != 1)
        shown.append(text)
    return f"[{','.join(shown)}]", expressions


def _node_form(node: Node) -> _Form:
    parts: list[str] = []
    expressions: list[Expr] = []
    for cls in type(node).__mro__:
        for slot in getattr(cls, "__slots__", ()):
            if slot not in ("inputs", "outputs"):
                value = getattr(node, slot, None)
                if slot == "reduced" and value:
                    value = 1 + (value > FEW_REDUCED)  # code does not differ by how few elements there are
                text, found = _form(value)
                parts.append(f"{slot}:{text}")
                expressions += found
    kind = _object_name(type(node), type(node).__name__)
    return f"{_escaped(kind)}({','.join(parts)})", tuple(expressions)


def _form(value: object) -> _Form:
    """A parameter of a node."""
    if value is None or isinstance(value, (bool, int, float, complex, str)):
        return _escaped(repr(value)), ()
    if isinstance(value, Expr):
        return "%s", (value,)
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}", ()
    if isinstance(value, (ElementwiseOp, ReductionOp, LibraryOp)):
        return _escaped(_object_name(value, value.name)), ()
    if isinstance(value, IndexMap):
        return _joined("map", value.expressions)
    if isinstance(value, (tuple, list)):
        return _joined(type(value).__name__, value)
    if isinstance(value, Mapping):
        return _joined("mapping", [entry for item in value.items() for entry in item])
    return _unlike_any(type(value).__name__), ()


def _joined(kind: str, values: Iterable[object]) -> _Form:
    forms = [_form(value) for value in values]
    text = ",".join([text for text, _ in forms])
    return f"{kind}({text})", tuple([e for _, found in forms for e in found])


def _escaped(text: str) -> str:
    return text.replace("%", "%%")


# ---- names of objects ------------------------------------------------------------------------------------

_Row = ElementwiseOp | ReductionOp | LibraryOp

_count = itertools.count()
#: the names of rows and classes of nodes, by their ids; each is kept alive, so that no other gets its id
_names: dict[int, tuple[object, str]] = {}
_owners: dict[str, object] = {}


def _unlike_any(kind: str) -> str:
    """The text of what equals nothing but itself."""
    return _escaped(f"{kind}#{next(_count)}")


def _object_name(value: type[Node] | _Row, name: str) -> str:
    """The name of a class or row, which are compared by identity, and a digest of what it says.

    So it is the same in every process. Of objects that say the same the first has it; others are numbered.
    """
    known = _names.get(id(value))
    if known is None:
        content = f"{value.__module__}.{value.__qualname__}" if isinstance(value, type) else _content(value)
        found = f"{name}.{hashlib.sha256(content.encode()).hexdigest()[:DIGITS]}"
        is_first = _owners.setdefault(found, value) is value
        known = _names.setdefault(id(value), (value, found if is_first else f"{found}~{next(_count)}"))
    return known[1]


def _content(value: object) -> str:
    """What a row says: functions by their names, which tell where they are written."""
    if is_dataclass(value) and not isinstance(value, type):
        parts = [f"{f.name}={_content(getattr(value, f.name))}" for f in fields(value)]
        return f"{type(value).__name__}({','.join(parts)})"
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{_content(key)}:{_content(entry)}' for key, entry in value.items())}}}"
    if isinstance(value, (tuple, list)):
        return f"({','.join(map(_content, value))})"
    if isinstance(value, (set, frozenset)):
        return f"{{{','.join(sorted(map(_content, value)))}}}"
    if isinstance(value, partial):
        return f"partial({_content(value.func)},{_content(value.args)},{_content(value.keywords)})"
    if callable(value):
        return f"{getattr(value, '__module__', None)}.{getattr(value, '__qualname__', type(value).__name__)}"
    return repr(value)
