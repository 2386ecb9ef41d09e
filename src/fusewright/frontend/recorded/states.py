"""States: the values that a definition's records make, and the fusion that they build."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from fusewright.core.dtype import DataType
from fusewright.frontend.recorded.records import Arg, Literal, Record, Ref, decode
from fusewright.ir import Fusion, Node, Scalar, TensorView
from fusewright.ir.naming import Naming, call
from fusewright.ops import ScalarVector

# None: a size that was written inline and has no value of its own, or a result that a call leaves out.
StateValue = TensorView | Scalar | ScalarVector | None


class StateKind(enum.Enum):
    """The kind of a state; the value is the first letter of its printed name."""

    TENSOR = "T"
    SCALAR = "S"
    VECTOR = "V"
    NOTHING = "_"


class State(NamedTuple):
    """The facts about a state without its value. `size`: dimensions of a tensor, entries of a vector."""

    kind: StateKind
    dtype: DataType
    size: int


class Container(enum.Enum):
    """The form in which an operation returns its results."""

    NONE = "none"
    ONE = "one"
    TUPLE = "tuple"
    LIST = "list"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The values of one record: `hidden` states without handles for users, then `states`."""

    hidden: int
    states: tuple[State, ...]
    container: Container

    @property
    def count(self) -> int:
        return self.hidden + len(self.states)


def _state(value: Any) -> State:
    if isinstance(value, TensorView):
        return State(StateKind.TENSOR, value.dtype, value.ndim)
    if value is None:
        return State(StateKind.NOTHING, DataType.Null, 0)
    if isinstance(value, ScalarVector):
        return State(StateKind.VECTOR, DataType.Int, len(value))
    return State(StateKind.SCALAR, value.dtype, 0)


class Building:
    """A fusion under construction.

    Attributes:
        values: the value of each state so far.
        inputs, outputs: the states of the inputs and of the outputs so far.
        nodes: the nodes that each record made.
    """

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self.fusion = Fusion()
        self.fusion.naming = Naming()
        self.values: list[StateValue] = []
        self.inputs: list[int] = []
        self.outputs: list[int | None] = []
        self.nodes: list[tuple[Node, ...]] = []
        self._named: set[TensorView | Scalar] = set()
        for record in records:
            self.apply(record)

    def apply(self, record: Record) -> Outcome:
        """Builds `record`. After an error the fusion may be incomplete; discard this object then.

        Raises:
            UserError: the call is wrong.
        """
        row = record.row
        values = [decode(arg, self.values) for arg in record.args]
        row.check(values)
        fusion = self.fusion
        nodes, inputs, outputs = len(fusion.nodes), len(fusion.inputs), len(fusion.outputs)
        assert fusion.naming is not None
        # What an operation makes inside is named after its first result; an output after what it is.
        fusion.naming.stem = (
            None if record.op == "add_output" else f"T{len(self.values) + _inline_count(record)}"
        )
        result = row.build(fusion, *values)
        fusion.naming.stem = None
        if result is None:
            results, container = [], Container.NONE
        elif isinstance(result, list):
            results, container = result, Container.LIST
        elif isinstance(result, tuple) and not isinstance(result, ScalarVector):
            results, container = list(result), Container.TUPLE
        else:
            results, container = [result], Container.ONE
        hidden = _inline_states(record, result)
        made = [*hidden, *results]
        first = len(self.values)
        for i, value in enumerate(results, first + len(hidden)):
            if isinstance(value, (TensorView, Scalar)) and value not in self._named:
                self._named.add(value)
                call(fusion, value, f"{_state(value).kind.value}{i}")
        for value in fusion.inputs[inputs:]:
            # What is packed is an input; the state is what it is unpacked to.
            place = next((i for i, state in enumerate(made) if state is value), len(hidden))
            self.inputs.append(first + place)
        # An operation may add outputs of its own, such as statistics that it updates: no state was given.
        given = (
            record.args[0].state if record.op == "add_output" and isinstance(record.args[0], Ref) else None
        )
        self.outputs += [given] * (len(fusion.outputs) - outputs)
        latest = itertools.islice(reversed(fusion.nodes), len(fusion.nodes) - nodes)
        self.nodes.append(tuple(latest)[::-1])
        self.values += made
        return Outcome(len(hidden), tuple(map(_state, results)), container)


def _inline_states(record: Record, result: Any) -> list[StateValue]:
    """The states of scalars and vectors that the user wrote inline: they take numbers, as in nvFuser.

    A shape written as a list is one vector, and a scalar for each integer in it.
    """
    if record.op == "define_vector":
        given = record.args[0]
        if not _is_list(given):
            return list(result)
        return [scalar for scalar, arg in zip(result, given) if not isinstance(arg, Ref)]
    return [None] * _inline_count(record)


def _inline_count(record: Record) -> int:
    """How many states the shapes take that are written in a record, `define_vector` apart."""
    return sum(
        sum(not isinstance(item, Ref) for item in arg) + 1
        for parameter, arg in zip(record.row.parameters, record.args)
        if parameter.kind.is_shape and _is_list(arg)
    )


def _is_list(arg: Arg) -> bool:
    return not isinstance(arg, (Ref, Literal))


def numbered_outcomes(outcomes: Iterable[Outcome]) -> Iterator[tuple[int, Outcome]]:
    """Each outcome with the index of the first state that has a handle."""
    first = 0
    for outcome in outcomes:
        yield first + outcome.hidden, outcome
        first += outcome.count
