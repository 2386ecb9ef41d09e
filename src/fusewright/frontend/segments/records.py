"""The records of one segment of a definition, as an ordinary definition of that segment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fusewright.core.dtype import DataType, of_python_value
from fusewright.core.errors import DefinitionError, InternalError
from fusewright.frontend.recorded.fusion_schedules import FusionSchedules
from fusewright.frontend.recorded.records import Arg, Literal, Record, Ref, encode
from fusewright.frontend.recorded.states import Building
from fusewright.ir import Node, RandomState, Scalar, TensorView, Val
from fusewright.ops import DEFINERS, OPS, ScalarVector
from fusewright.ops.memory_format import keep_memory_format
from fusewright.ops.node_calls import Call, Result, calls_of, expression_calls
from fusewright.segment import Segment
from fusewright.sym import Expr, Symbol, as_int

#: What a segment is passed: a value of the whole fusion, or the size of a dimension of its inputs.
Argument = Val | Expr


@dataclass(frozen=True, slots=True)
class SegmentOutput:
    """A result of a segment that others read.

    Attributes:
        alias: the input of the whole that it is written into; it is then not returned.
        ordered: whether it must have the layout that the whole fusion states.
    """

    tensor: TensorView
    alias: TensorView | None = None
    ordered: bool = False


@dataclass(frozen=True, slots=True)
class WrittenSegment:
    """The records of a segment, its arguments, and the state of each argument and output.

    Attributes:
        sources: for each record, the equal or containing record of the whole; None: there is none.
    """

    records: tuple[Record, ...]
    sources: tuple[int | None, ...]
    arguments: tuple[Argument, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class Whole:
    """The state that the segments of one definition share.

    Attributes:
        tensors: the definitions of tensors that cross segments, as arguments of `define_tensor`.
    """

    def __init__(self, leaf: FusionSchedules) -> None:
        self.leaf = leaf
        self.fusion = leaf.fusion
        self.alive = self.fusion.ordered_nodes()
        self.record_of: dict[Node, int] = {n: r for r, nodes in enumerate(leaf.nodes) for n in nodes}
        self.input_position = {value: i for i, value in enumerate(self.fusion.inputs)}
        #: the first state of each record
        self.first_state: list[int] = []
        self._maker: list[int] = []
        for r, outcome in enumerate(leaf.outcomes):
            self.first_state.append(len(self._maker))
            self._maker += [r] * outcome.count
        self.tensors: dict[Val, tuple[Arg, ...]] = {}
        for value, state in zip(self.fusion.inputs, leaf.state.inputs):
            if isinstance(value, TensorView):
                self.tensors[value] = leaf.records[self._maker[state]].args
        #: outputs that `add_output` made of what it was given, and the state of that
        self._given: dict[Val, int] = {
            o.tensor: state for o, state in zip(self.fusion.outputs, leaf.given) if state is not None
        }
        self._inner: dict[Val, int] = {}

    def states_of(self, record: int) -> list[Val | ScalarVector | None]:
        """What a record made, its hidden states included."""
        first = self.first_state[record]
        return list(self.leaf.state.values[first : first + self.leaf.outcomes[record].count])

    def record_that_makes(self, value: Argument) -> int | None:
        """The record that defines or computes a value; None for a size."""
        if isinstance(value, Expr):
            return None
        if value in self.input_position:
            return self._maker[self.leaf.state.inputs[self.input_position[value]]]
        return None if value.definition is None else self.record_of.get(value.definition)

    def index(self, value: Argument) -> int:
        """The state of a value. One inside a composite operation gets a number beyond all states."""
        state = self.leaf.state
        if not isinstance(value, Expr) and value in self.input_position:
            return state.inputs[self.input_position[value]]
        found = state.index.get(value)
        if found is not None:
            return found
        assert not isinstance(value, Expr)
        if value in self._given:
            return self._given[value]
        return self._inner.setdefault(value, len(state.values) + len(self._inner))

    def keep_layout(self, tensor: TensorView, made: TensorView) -> None:
        """Notes how a tensor that a segment hands on lies: as the output `made` of that segment."""
        if tensor.dtype is DataType.Float4_e2m1fn:
            raise DefinitionError(
                problem=f"{tensor.name} passes between segments, and a tensor of {tensor.dtype} cannot",
                hint="execute the definition as a whole",
            )
        axes = made.shape
        place = {axis: i for i, axis in enumerate(reversed(made.allocation))}
        shape = [
            1 if axis.is_broadcast and axis.expanded is None else size if size is not None else -1
            for axis, size in zip(axes, (as_int(extent) for extent in tensor.extents))
        ]
        order = [] if made.is_row_major else [place[axis] for axis in axes]
        values = (shape, list(made.contiguity), tensor.dtype, False, order)
        self.tensors[tensor] = tuple([encode(value, lambda _: None) for value in values])


class _NeedsArgument(Exception):
    """The segment takes one more argument."""

    def __init__(self, argument: Argument) -> None:
        super().__init__()
        self.argument = argument


def write_segment(whole: Whole, segment: Segment, outputs: Sequence[SegmentOutput]) -> WrittenSegment:
    """The records of `segment`, with the results `outputs`.

    Its inputs come first: the tensors and scalars that it reads, then sizes that none of these has.

    Raises:
        DefinitionError: no definition can express what the segment computes.
    """
    homes = dict.fromkeys(o.alias for o in outputs if o.alias is not None)
    passed = [v for v in segment.inputs if isinstance(v, TensorView) or v in whole.input_position]
    arguments: list[Argument] = [*passed, *(home for home in homes if home not in passed)]
    while True:
        try:
            return _Writer(whole, segment, arguments).write(outputs)
        except _NeedsArgument as missing:
            arguments.append(missing.argument)


class _Writer:
    """One attempt, with these arguments."""

    def __init__(self, whole: Whole, segment: Segment, arguments: Sequence[Argument]) -> None:
        self._whole = whole
        self._segment = segment
        self._arguments = arguments
        self._nodes = frozenset(segment.nodes)
        self._building = Building()
        self._records: list[Record] = []
        #: what `WrittenSegment` has, and the record of the whole that is being said
        self._sources: list[int | None] = []
        self._source: int | None = None
        #: what values of the whole, results of calls and sizes are called here
        self._known: dict[Val | Result | Expr | ScalarVector, Arg] = {}
        #: a tensor and its dimension of each size
        self._dims: dict[Expr, tuple[Arg, int]] = {}
        #: outputs that the record of this number makes of what it is given
        self._by_add_output: dict[TensorView, int] = {}

    def write(self, outputs: Sequence[SegmentOutput]) -> WrittenSegment:
        inputs = [self._define(argument) for argument in self._arguments]
        done: set[int] = set()
        for node in self._whole.alive:
            record = self._whole.record_of.get(node)
            if node not in self._nodes or record in done:
                continue
            self._source = record
            if record is not None and self._is_whole(record):
                done.add(record)
                self._copy_record(record)
            else:
                for call in calls_of(node):
                    self._call(call)
        states = [self._add_output(output) for output in outputs]
        return WrittenSegment(
            tuple(self._records), tuple(self._sources), tuple(self._arguments), tuple(inputs), tuple(states)
        )

    # ---- records

    def _record(self, op: str, args: Sequence[Arg]) -> int:
        """Adds a record; the first state that has a handle."""
        record = Record(op, tuple(args))
        first = len(self._building.values)
        outcome = self._building.apply(record)
        self._records.append(record)
        self._sources.append(self._source)
        return first + outcome.hidden

    def _know(self, value: Val | Result | Expr, state: int) -> None:
        ref = self._known[value] = Ref(state)
        if isinstance(value, TensorView):
            for dim, extent in enumerate(value.extents):
                self._dims.setdefault(extent, (ref, dim))

    def _define(self, argument: Argument) -> int:
        """The state of an input of the segment."""
        self._source = self._whole.record_that_makes(argument)
        if isinstance(argument, TensorView):
            state = self._record("define_tensor", self._whole.tensors[argument])
            position = self._whole.input_position.get(argument)
            if position is not None:  # of packed elements, the state is those
                of_state = self._whole.leaf.state.values[self._whole.leaf.state.inputs[position]]
                assert isinstance(of_state, TensorView)
                self._know(of_state, state)
            else:
                self._know(argument, state)
            return state
        dtype = DataType.Int if isinstance(argument, Expr) else argument.dtype
        state = self._record("define_scalar", [Literal(type(None), None), Literal(DataType, dtype)])
        self._know(argument, state)
        return state

    def _add_output(self, output: SegmentOutput) -> int:
        record = self._by_add_output.get(output.tensor)
        self._source = record if record is not None else self._whole.record_that_makes(output.tensor)
        if record is not None:
            args = [self._renamed(arg) for arg in self._whole.leaf.records[record].args]
            self._record("add_output", args)
            assert isinstance(args[0], Ref)
            return args[0].state
        made = self._known[output.tensor]
        assert isinstance(made, Ref)
        alias: Arg = Literal(type(None), None)
        order: Arg = ()
        if output.alias is not None:
            alias = self._known[output.alias]
        else:
            value = self._building.values[made.state]
            assert isinstance(value, TensorView)
            keep_memory_format(value)
            wanted = _order(output.tensor)
            if output.ordered and _order(value) != wanted:
                order = tuple([Literal(int, place) for place in wanted])
        self._record("add_output", [made, alias, order])
        return made.state

    # ---- what the user wrote

    def _is_whole(self, record: int) -> bool:
        """Whether this segment computes what a record says, as far as anybody asks for it."""
        whole = self._whole
        row = whole.leaf.records[record].row
        if row.name in DEFINERS:
            return self._is_all_here(record)
        if not all(value in self._known for value in self._tensors_in(whole.leaf.records[record].args)):
            return False  # some are asked for their sizes only
        made = frozenset(whole.leaf.nodes[record])
        if any(isinstance(node, RandomState) for node in made):
            return False  # drawn once, for all segments
        results = {v for v in whole.states_of(record) if isinstance(v, (TensorView, Scalar))}
        mine = made & self._nodes
        handed_on = [
            v
            for node in mine
            for v in node.outputs
            if v in self._segment.outputs or any(u in self._nodes and u not in mine for u in v.uses)
        ]
        if not results.issuperset(handed_on):
            return False
        stack = [v.definition for v in handed_on]
        needed: set[Node] = set()
        while stack:
            node = stack.pop()
            if node is not None and node in made and node not in needed:
                needed.add(node)
                stack += [v.definition for v in node.inputs]
        return all(node in mine or node.is_scalar for node in needed)

    def _tensors_in(self, arg: Arg) -> list[TensorView]:
        if isinstance(arg, Ref):
            value = self._whole.leaf.state.values[arg.state]
            return [value] if isinstance(value, TensorView) else []
        return [] if isinstance(arg, Literal) else [t for item in arg for t in self._tensors_in(item)]

    def _is_all_here(self, record: int) -> bool:
        """Whether what a record makes of an input, or for an output, is all made here."""
        alive = [node for node in self._whole.alive if self._whole.record_of.get(node) == record]
        if not self._nodes.issuperset(alive):
            return False
        if self._whole.leaf.records[record].op != "add_output":
            return True
        # An output that is written into an input is added by what is written.
        out = alive[-1].output
        return out in self._segment.outputs and not any(
            o.tensor is out and o.alias is not None for o in self._whole.fusion.outputs
        )

    def _copy_record(self, record: int) -> None:
        """Adds what the user wrote, of what things are called here."""
        given = self._whole.leaf.records[record]
        if given.op == "add_output":
            made = [node for node in self._whole.leaf.nodes[record] if node in self._nodes]
            self._by_add_output[made[-1].output] = record
        if given.op in DEFINERS:
            return  # an input is defined already, an output is added last
        outcome = self._whole.leaf.outcomes[record]
        first = self._record(given.op, [self._renamed(arg) for arg in given.args])
        for i, value in enumerate(self._whole.states_of(record)[outcome.hidden :]):
            if isinstance(value, (TensorView, Scalar)):
                self._know(value, first + i)

    def _renamed(self, arg: Arg) -> Arg:
        if isinstance(arg, Literal):
            return arg
        if isinstance(arg, Ref):
            value = self._whole.leaf.state.values[arg.state]
            return self._vector(value) if isinstance(value, ScalarVector) else self._argument(value)
        return tuple([self._renamed(item) for item in arg])

    def _vector(self, vector: ScalarVector) -> Arg:
        if vector not in self._known:
            entries = tuple([self._argument(entry) for entry in vector])
            state = self._record("define_vector", [entries, Literal(DataType, DataType.Int)])
            self._known[vector] = Ref(state)
        return self._known[vector]

    # ---- calls

    def _call(self, call: Call) -> None:
        row = OPS[call.op]
        args = [self._argument(value) for value in row.bind(call.args, call.options)]
        first = self._record(row.key, args)
        for i, result in enumerate(call.results):
            if result is None:
                continue
            made = self._building.values[first + i]
            if isinstance(result, (TensorView, Scalar)):
                if not isinstance(made, type(result)):
                    raise InternalError(f"{call.op} makes no {type(result).__name__} of {result}")
                if made.dtype is not result.dtype:
                    cast = self._record("cast", [Ref(first + i), Literal(DataType, result.dtype)])
                    self._know(result, cast)
                    continue
            self._know(result, first + i)

    def _argument(self, value: Any) -> Arg:
        """An argument of a call as it is recorded."""
        if isinstance(value, (list, tuple)):
            return tuple([self._argument(item) for item in value])
        if isinstance(value, (TensorView, Scalar, Result, Expr)):
            found = self._known.get(value)
            if found is not None:
                return found
            if isinstance(value, Scalar):
                return self._scalar(value)
            if isinstance(value, Expr):
                return self._size(value)
            raise DefinitionError(
                problem=f"segment {self._segment.index} reads {value}, which no definition can pass to it",
                hint="execute the definition as a whole",
            )
        return encode(value, lambda _: None)

    # ---- scalars and sizes: the host computes them for each segment anew, from what the whole is passed

    def _scalar(self, value: Scalar) -> Arg:
        if value.value is not None:
            literal = encode(value.value, lambda _: None)
            # A condition is a value of the definition: a bool may be an accident.
            if of_python_value(value.value) is value.dtype and not value.dtype.is_bool:
                return literal
            self._know(value, self._record("define_scalar", [literal, Literal(DataType, value.dtype)]))
        elif value in self._whole.input_position or isinstance(value.definition, RandomState):
            raise _NeedsArgument(value)
        elif value.definition is None:
            assert value.extent is not None
            self._known[value] = self._argument(value.extent)
        else:
            for call in calls_of(value.definition):
                self._call(call)
        return self._known[value]

    def _size(self, size: Expr) -> Arg:
        number = as_int(size)
        if number is not None:
            return Literal(int, number)
        place = self._dims.get(size)
        if place is not None:
            tensor, dim = place
            self._know(size, self._record("size", [tensor, Literal(int, dim)]))
        elif isinstance(size, Symbol):
            self._known[size] = self._symbol(size)
        else:
            calls: list[Call] = []
            result = expression_calls(size, lambda s: s, calls, lambda e: e in self._known or e in self._dims)
            for call in calls:
                self._call(call)
            self._known[size] = self._argument(result)
        return self._known[size]

    def _symbol(self, size: Symbol) -> Arg:
        fusion = self._whole.fusion
        computed = fusion.computed_sizes.get(size)
        if computed is not None:
            return self._argument(computed)
        if self._whole.leaf.state.index.get(size, 0) < 0:
            raise _NeedsArgument(size)
        scalar = fusion.scalar_of.get(size)
        if scalar is not None:
            return self._argument(scalar)
        raise InternalError(f"nobody knows the size {size}")


def _order(tensor: TensorView) -> list[int]:
    """The place of each dimension in memory, 0 for the innermost."""
    axes = tensor.shape
    place = {axis: i for i, axis in enumerate(axis for axis in reversed(tensor.allocation) if axis in axes)}
    return [place[axis] for axis in axes]


def parent_map(whole: Whole, written: WrittenSegment, outputs: Sequence[SegmentOutput]) -> Mapping[int, int]:
    """Maps the states of a segment's inputs and outputs to those of the whole."""
    inputs = {state: whole.index(argument) for state, argument in zip(written.inputs, written.arguments)}
    return {**inputs, **{s: whole.index(o.tensor) for s, o in zip(written.outputs, outputs)}}
