"""Binds calls whose inputs are of a kind that was bound before, as straight code over the sizes and strides.

`Binder` asks each input everything that it checks, which takes as long as all else that a call with a new
size needs. Most of that is in the key of the call: classes, dtypes, devices and addresses of inputs, which
an earlier call had alike. What is left are sizes and strides, and for most of them few comparisons.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

from fusewright.core.once import OnceCache
from fusewright.host.binding import Binder, Binding
from fusewright.host.scalars import checked_scalar
from fusewright.host.signature import key_parts
from fusewright.ir import Fusion, TensorView, Val
from fusewright.sym import Symbol, as_int

Key = tuple[Any, ...]
#: the bindings of the first call of each kind
Kinds = OnceCache[Hashable, Binding]

_Dims = tuple[int, ...]
#: From a key: the kind, the value of each symbol, shapes and strides of all inputs, and their spans. None:
#: `Binder` has to tell.
_Split = Callable[[Key], tuple[Hashable, _Dims, tuple[_Dims, ...], tuple[_Dims, ...], _Dims] | None]


class Rebinding:
    """What `Binder` finds for calls of a fusion, faster.

    Left to it are fusions with scalars that are sizes; sizes of 0 and 1, as a dimension of one element has
    any stride; and inputs that do not fit, which it refuses. Storages, which may change while all else stays,
    the program of the call looks at.
    """

    def __init__(self, fusion: Fusion, binder: Binder) -> None:
        self._binder = binder
        self._split = None if binder.size_scalars.symbols else _compiled(fusion)
        self._symbols = list(_symbols(fusion))

    def note(self, kinds: Kinds, key: Key, binding: Binding) -> None:
        """Calls with the kind of inputs that `key` tells may be bound as this one was."""
        found = None if self._split is None else self._split(key)
        if found is not None:
            kinds.put(found[0], binding)

    def find(self, kinds: Kinds, key: Key, inputs: Sequence[Any]) -> Binding | None:
        """What the binder would find; None where it has to. Raises as it does."""
        if self._split is None:
            return None
        try:
            found = self._split(key)
        except ValueError:  # of another rank
            return None
        if found is None:
            return None
        kind, values, shapes, strides, spans = found
        first = kinds.find(kind)
        if first is None:
            return None
        binder = self._binder
        for i, scalar in binder.scalars:
            checked_scalar(i, scalar, inputs[i])
        sizes = dict(zip(self._symbols, values))
        binder.complete(sizes)
        index_dtype = binder.index_dtype(spans, sizes)
        return Binding(sizes, {}, shapes, strides, first.device, spans, first.alignment, index_dtype)


def _symbols(fusion: Fusion) -> dict[Symbol, str]:
    """The symbols that are sizes of inputs, in the order of dimensions, each with the first that it is."""
    found: dict[Symbol, str] = {}
    for i, value in enumerate(fusion.inputs):
        for dim, axis in enumerate(value.shape if isinstance(value, TensorView) else ()):
            if isinstance(extent := axis.visible_extent, Symbol):
                found.setdefault(extent, f"n{i}_{dim}")
    return found


def _compiled(fusion: Fusion) -> _Split:
    symbols = _symbols(fusion)
    inputs = [_Input(i, value) for i, value in enumerate(fusion.inputs)]
    lines = [f"{_tuple(part for each in inputs for part in each.parts)} = key"]
    wrong = dict.fromkeys(condition for each in inputs for condition in each.wrong(symbols))
    if wrong:
        lines.append(f"if {' or '.join(wrong)}: return None")
    found = [
        _tuple(name for each in inputs for name in each.kind),
        _tuple(symbols.values()),
        _tuple(_tuple(each.shape) for each in inputs),
        _tuple(_tuple(each.strides) for each in inputs),
        _tuple(each.span for each in inputs),
    ]
    lines.append(f"return {', '.join(found)}")
    body = "\n ".join(lines)
    names: dict[str, Any] = {}
    exec(compile(f"def split(key):\n {body}\n", "<fusewright binding>", "exec"), names)
    split: _Split = names["split"]
    return split


def _tuple(texts: Iterable[str]) -> str:
    return f"({''.join(f'{text}, ' for text in texts)})"


class _Input:
    """The names of what the key has of one input.

    Attributes:
        parts: as they come. kind: those that calls of a kind have alike. shape, strides: the dimensions'.
        span: elements from the first to the last in memory.
    """

    def __init__(self, position: int, value: Val) -> None:
        self._value = value
        self.parts = [f"k{position}_{i}" for i in range(len(key_parts("", value, frozenset())))]
        self.kind, self.span = self.parts, "1"
        dims = range(len(value.shape)) if isinstance(value, TensorView) else ()
        self.shape = [f"n{position}_{dim}" for dim in dims]
        self.strides = [f"t{position}_{dim}" for dim in dims]
        if isinstance(value, TensorView):
            self.kind = [self.parts[0], *self.parts[3:]]
            self.parts = [self.parts[0], _tuple(self.shape), _tuple(self.strides), *self.parts[3:]]
            self.span = " + ".join(["1", *(f"({n} - 1) * {t}" for n, t in zip(self.shape, self.strides))])

    def wrong(self, symbols: Mapping[Symbol, str]) -> list[str]:
        """What is left to `Binder`, as conditions: sizes that do not fit, sizes below 2, other strides."""
        tensor, found = self._value, list[str]()
        if not isinstance(tensor, TensorView):
            return found
        dims = {axis: dim for dim, axis in enumerate(tensor.shape)}
        for axis, name in zip(tensor.shape, self.shape):
            extent = axis.visible_extent
            same = symbols[extent] if isinstance(extent, Symbol) else str(as_int(extent))
            found += [f"{name} != {same}"] if name != same else []
            found.append(f"{name} < {1 if axis.is_broadcast else 2}")
        expected = "1"
        memory = [(axis, flag) for axis, flag in zip(tensor.allocation, tensor.contiguity) if axis in dims]
        for axis, is_contiguous in reversed(memory):
            size, stride = self.shape[dims[axis]], self.strides[dims[axis]]
            if axis.is_broadcast or is_contiguous is None:
                found += [stride] if axis.expanded is not None else []
                continue
            if is_contiguous:
                found.append(f"{stride} != {expected}")
            expected = f"{stride} * {size}"
        return found
