"""`from_fx`: converts a graph of ATen operators to definitions that run on tensors.

A graph becomes one definition if possible. If a definition cannot hold a node (types that it lacks, results
whose sizes depend on values), torch computes the node between several definitions. Nodes get stages, even
ones for definitions and odd ones for torch, so that a stage depends only on earlier ones.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from fusewright.core.errors import ContiguityError, GraphError, InputError, InternalError
from fusewright.core.options import Options
from fusewright.frontend.definition import FusionDefinition
from fusewright.frontend.handles import Tensor
from fusewright.frontend.tuned.active_tuning import ACTIVE
from fusewright.schedulers import Registry
from fusewright.torch_compile.graphs import PureGraph, pure_graph
from fusewright.torch_compile.recording import (
    Recording,
    UnsupportedNode,
    is_on_host,
    meta_of,
    restrided,
    result_tensors,
    takes_dtype,
)
from fusewright.torch_compile.report import Evaluated, Report
from fusewright.torch_compile.result_views import ResultView, base_of, result_views
from fusewright.torch_compile.sizes import SIZE_FUNCTIONS, HostSizes, is_known, is_number, is_size

Environment = dict[fx.Node, Any]


def from_fx(
    graph: fx.GraphModule | ExportedProgram,
    *,
    options: Options | None = None,
    registry: Registry | None = None,
) -> ConvertedGraph:
    """A callable that computes the same as `graph`, by Fusewright's kernels where it has an operation.

    Sizes that are numbers in the graph are constants of the definition; symbolic sizes are not. In-place
    updates of inputs (`copy_` at the end of a graph, or the mutations of an exported program) are executed.
    Operators round to torch's types, each by itself. Random numbers are Fusewright's own.

    Args:
        graph: over ATen operators, with sizes and types in `meta["val"]`, as make_fx, AOTAutograd or
            torch.export return it. Composite operators without a row are decomposed.
        options, registry: of the definitions.

    Raises:
        GraphError: it is not such a graph.
    """
    pure = pure_graph(graph)
    refused: dict[fx.Node, str] = {}
    while True:
        conversion = _Conversion(pure, refused, options, registry)
        try:
            return conversion.convert()
        except UnsupportedNode as unsupported:
            if unsupported.node in refused:
                raise InternalError(problem=f"{unsupported.node} is refused twice") from unsupported
            refused[unsupported.node] = unsupported.reason


class ConvertedGraph:
    """A graph as definitions. It is called like the graph.

    Attributes:
        definitions: in the order in which they run; only one if possible.
    """

    def __init__(
        self,
        pure: PureGraph,
        steps: Sequence[_Step],
        evaluated: Sequence[Evaluated],
        sizes: Callable[[Environment], Environment],
    ) -> None:
        """`sizes`: the values of nodes that are known from those of the arguments."""
        self.definitions = tuple(step.fd for step in steps if isinstance(step, _Definition))
        self._pure = pure
        self._steps = steps
        self._evaluated = tuple(evaluated)
        self._sizes = sizes
        self._known = dict(zip(pure.placeholders[pure.arguments :], pure.constants))
        self._copies = tuple(pair for step in steps for pair in step.copies)

    def __call__(self, *arguments: Any) -> Any:
        """The results of the graph, nested as the graph returns them. They require no gradients.

        Raises:
            InputError, ShapeError, ...: arguments that are not as those that the graph was traced with.
        """
        return pytree.tree_unflatten(
            self.flat_results(pytree.arg_tree_leaves(*arguments)), self._pure.structure
        )

    def __reduce__(self) -> NoReturn:
        raise GraphError(
            problem="a converted graph cannot be pickled or copied, as it holds fake tensors of its trace",
            hint="pickle the exported program, and convert it again",
        )

    def flat_results(self, arguments: Sequence[Any]) -> list[Any]:
        """The results as a flat list, for arguments that are one, too."""
        if len(arguments) != self._pure.arguments:
            raise InputError(f"Expected {self._pure.arguments} arguments, but got {len(arguments)}")
        values: Environment = dict(zip(self._pure.placeholders, arguments))
        values.update(self._known)
        values.update(self._sizes(values))
        if ACTIVE.every is None:
            self._run(values)
        else:
            with ACTIVE.together():
                self._run(values)
        for source, home in self._copies:
            with torch.no_grad():
                values[home].copy_(values[source])
        return [values[r] if isinstance(r, fx.Node) else r for r in self._pure.results]

    def _run(self, values: Environment) -> None:
        for step in self._steps:
            step.run(values)

    def report(self) -> Report:
        """The contents of the definitions, and the operators that torch evaluates, with the reasons."""
        return Report(
            definitions=len(self.definitions),
            nodes=sum(node.op == "call_function" for node in self._pure.graph.nodes),
            records=tuple(len(fd._finished().records) for fd in self.definitions),
            evaluated=self._evaluated,
        )

    def __repr__(self) -> str:
        return "\n".join(map(repr, self.definitions))


# ---- steps -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Definition:
    """Runs a definition.

    Attributes:
        inputs: its inputs, and the strides of each that it was written for.
        outputs: the nodes whose values it returns, in order.
        dense: those of them whose elements torch keeps apart in memory.
        copies: values, and the inputs that they are copied to once everything has run.
        views: further results, which are views of outputs.
    """

    fd: FusionDefinition
    inputs: tuple[fx.Node, ...]
    outputs: tuple[fx.Node, ...]
    dense: tuple[fx.Node, ...] = ()
    copies: tuple[tuple[fx.Node, fx.Node], ...] = ()
    views: tuple[ResultView, ...] = ()

    @property
    def reads(self) -> Iterable[fx.Node]:
        return self.inputs

    def run(self, values: Environment) -> None:
        inputs = [values[node] for node in self.inputs]
        try:
            made = self.fd.execute(inputs)
        except ContiguityError:
            made = self.fd.execute([restrided(v, node) for v, node in zip(inputs, self.inputs)])
        values.update(zip(self.outputs, made))
        for node in self.dense:
            if 0 in values[node].stride():  # a definition's result is expanded if its operands are
                values[node] = restrided(values[node], node)
        for view in self.views:
            values[view.node] = view.of(values[view.base])


@dataclass(frozen=True, eq=False)
class _Torch:
    """Lets torch compute nodes one after another."""

    nodes: tuple[fx.Node, ...]
    copies: tuple[tuple[fx.Node, fx.Node], ...] = ()

    @property
    def reads(self) -> Iterable[fx.Node]:
        return [source for node in self.nodes for source in node.all_input_nodes]

    def run(self, values: Environment) -> None:
        with torch.no_grad():
            for node in self.nodes:
                args, kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)
                values[node] = node.target(*args, **kwargs)  # type: ignore[operator]


_Step = _Definition | _Torch

# ---- conversion --------------------------------------------------------------------------------------------


class _Conversion:
    """One attempt to convert a graph, in which torch computes the nodes rejected before."""

    def __init__(
        self,
        pure: PureGraph,
        refused: Mapping[fx.Node, str],
        options: Options | None,
        registry: Registry | None,
    ) -> None:
        self.pure = pure
        self._make: Callable[[], FusionDefinition] = lambda: FusionDefinition(
            max_length=_MANY_RECORDS, options=options, registry=registry
        )
        self.outside: dict[fx.Node, str] = dict(refused)
        self.sizes = HostSizes(pure.graph)
        self._results = frozenset(r for r in pure.results if isinstance(r, fx.Node))
        self._leaving = self._results.union(value for value, _ in pure.written)
        self._on_gpu = any(t.device.type == "cuda" for n in pure.graph.nodes for t in result_tensors(n))
        self._find_outside()
        self.stages = self._stages()
        #: the order of a definition's inputs: the arguments, then computed values
        self._place = {node: i for i, node in enumerate((*pure.placeholders, *self.stages))}
        #: values of nodes that are plain numbers, or nothing
        self.numbers: Environment = {}

    def convert(self) -> ConvertedGraph:
        """UnsupportedNode: torch has to compute another node."""
        by_stage: dict[int, list[fx.Node]] = {}
        for node, stage in self.stages.items():
            by_stage.setdefault(stage, []).append(node)
        steps: list[_Step] = []
        evaluated: list[Evaluated] = []
        last = max(by_stage, default=0)
        for stage in sorted(by_stage):
            nodes = by_stage[stage]
            if stage % 2:
                steps.append(_Torch(tuple(nodes), tuple(self._written_by(set(nodes)))))
                evaluated += [_evaluated(n, self.outside[n], False) for n in nodes if n in self.outside]
                continue
            step, within = self._definition(stage, nodes, is_last=stage == last)
            evaluated += [_evaluated(node, reason, True) for node, reason in within.items()]
            if step is not None:
                steps.append(step)
        read = [node for step in steps for node in step.reads]
        sizes = self.sizes.program([*read, *self._results])
        return ConvertedGraph(self.pure, steps, [e for e in evaluated if e.operator], sizes)

    # ---- stages

    def _find_outside(self) -> None:
        for node in self.pure.graph.nodes:
            if node.op != "call_function" or node in self.outside:
                continue
            for tensor in itertools.chain(*_tensors_of(node)):
                if not takes_dtype(tensor.dtype):
                    self.outside[node] = f"a definition has no tensors of {tensor.dtype}"
            if node.target is operator.getitem and node.args[0] in self.outside:
                self.outside[node] = ""
        if self._on_gpu:
            self._find_on_host()
        # Where torch computes between definitions, or a size is a result, it computes other sizes, too.
        if self.outside or any(is_size(meta_of(r)) for r in self._results):
            for node in self.pure.graph.nodes:
                is_function = node.op == "call_function" and node.target in SIZE_FUNCTIONS
                if is_function and node not in self.sizes.nodes:
                    self.outside.setdefault(node, "")

    def _find_on_host(self) -> None:
        """Has torch compute what the graph computes in host memory, and what reads more than numbers there.

        A definition reads numbers there. It may compute further ones, which lie on the GPU, if it alone reads
        them: constants, above all.
        """
        for node in reversed(self.pure.graph.nodes):
            if node.op != "call_function" or node in self.outside or not result_tensors(node):
                continue
            made, read = ([t for t in ts if is_on_host(t)] for ts in _tensors_of(node))
            leaves = node in self._leaving or any(user in self.outside for user in node.users)
            if any(t.ndim for t in (*made, *read)) or (made and leaves):
                self.outside[node] = "it computes in host memory"
        for node in self.pure.graph.nodes:
            if node.target is operator.getitem and node.args[0] in self.outside:
                self.outside[node] = ""

    def _stages(self) -> dict[fx.Node, int]:
        """Of each node that computes something but sizes known from arguments: the earliest that it can have.

        A definition's node that reads arguments alone has the latest, so that one definition holds as much as
        can be: it is not computed before what torch computes from arguments.
        """
        nodes = [n for n in self.pure.graph.nodes if n.op == "call_function" and n not in self.sizes.nodes]
        earliest = self._earliest(nodes, {})
        last = max((stage for stage in earliest.values() if not stage % 2), default=0)
        latest: dict[fx.Node, int] = {}
        for node in reversed(nodes):
            limits = [
                latest[user] - (latest[user] - earliest[node]) % 2 for user in node.users if user in latest
            ]
            latest[node] = earliest[node] if node in self.outside else min(limits, default=last)
        free = {
            n: latest[n]
            for n in nodes
            if n not in self.outside and earliest.keys().isdisjoint(n.all_input_nodes)
        }
        return self._earliest(nodes, free)

    def _earliest(self, nodes: Sequence[fx.Node], least: Mapping[fx.Node, int]) -> dict[fx.Node, int]:
        """The earliest stage of each node that is none before its `least`."""
        stages: dict[fx.Node, int] = {}
        for node in nodes:
            parity = int(node in self.outside)
            stage = least.get(node, parity)
            for source in node.all_input_nodes:
                before = stages.get(source)
                if before is not None:
                    stage = max(stage, before + (before % 2 != parity))
            stages[node] = stage
        return stages

    # ---- definitions

    def _definition(
        self, stage: int, nodes: Sequence[fx.Node], is_last: bool
    ) -> tuple[_Definition | None, Mapping[fx.Node, str]]:
        """What computes the nodes of a stage; None, where all of them are numbers."""
        inside = set(nodes)
        with self._make() as fd:
            recording = Recording(fd, self.numbers, self._on_gpu)
            read = [s for n in nodes for s in n.all_input_nodes if s not in inside]
            written = self._written_by(inside)
            # Another stage may read what an input was before: then torch copies into it at the end.
            in_place = [(v, home) for v, home in written if is_last and self._takes_result(home, stage)]
            read += [home for _, home in in_place]
            sizes = [source for source in dict.fromkeys(read) if self._is_size(source)]
            for source in sorted({*read} - {*sizes} - self.numbers.keys(), key=self._place.__getitem__):
                recording.add_input(source)
            for source in sizes:
                recording.add_size(source)
            for node in nodes:
                recording.record(node)
                made = recording.value(node)
                if made is None or is_known(made):
                    self.numbers[node] = made
                elif isinstance(made, Tensor) and self._leaves(node, inside) and base_of(node) is node:
                    recording.lay_out(node)
            for value, home in in_place:
                fd.add_output(recording.value(value), alias_input=recording.value(home))
            copies = tuple(pair for pair in written if pair not in in_place)
            outputs, views = self._outputs(recording, nodes, [value for value, _ in copies])
        if not outputs and not in_place:
            return None, recording.evaluated
        dense = tuple(node for node in outputs if not any(is_number(s, 0) for s in meta_of(node).stride()))
        return _Definition(fd, tuple(recording.inputs), outputs, dense, copies, views), recording.evaluated

    def _is_size(self, node: fx.Node) -> bool:
        """Whether it is a size that a call knows from its arguments."""
        return node in self.sizes.nodes or (node.op == "placeholder" and is_size(meta_of(node)))

    def _written_by(self, nodes: Collection[fx.Node]) -> list[tuple[fx.Node, fx.Node]]:
        """Which of the nodes are written into inputs, and into which."""
        return [(v, self.pure.placeholders[p]) for v, p in self.pure.written if v in nodes]

    def _outputs(
        self, recording: Recording, nodes: Sequence[fx.Node], more: Sequence[fx.Node]
    ) -> tuple[tuple[fx.Node, ...], tuple[ResultView, ...]]:
        """Adds what others read of these nodes as outputs: the nodes, and views of them.

        They have the order of the nodes, which equal layers share; where they are results alone, theirs.
        """
        inside = set(nodes)
        tensors = [node for node in nodes if isinstance(recording.value(node), Tensor)]
        elsewhere = {node for node in tensors if self._is_read_elsewhere(node, inside)}
        elsewhere.update(more)
        results = [r for r in dict.fromkeys(self.pure.results) if isinstance(r, fx.Node) and r in inside]
        results = [r for r in results if isinstance(recording.value(r), Tensor)]
        own = [r for r in results if r not in elsewhere]
        views = result_views(own, inside, recording.library, self._unwritten())
        if not elsewhere and len(views) == len(results):  # a definition has outputs
            views = result_views(own, inside, recording.library)
        wanted = elsewhere.union(results).difference(view.node for view in views)
        wanted.update(view.base for view in views if view.base in inside)
        are_results = not elsewhere and wanted <= set(results)  # bases of views may be none
        outputs = tuple(node for node in (results if are_results else tensors) if node in wanted)
        for node in outputs:
            if base_of(node) is not node:  # the base is not in memory, so no view of it can be returned
                recording.lay_out(node)
            recording.fd.add_output(recording.value(node))
        return outputs, tuple(views)

    def _unwritten(self) -> set[fx.Node]:
        """The arguments of a call that it does not change."""
        written = {place for _, place in self.pure.written}
        arguments = self.pure.placeholders[: self.pure.arguments]
        return {node for place, node in enumerate(arguments) if place not in written}

    def _leaves(self, node: fx.Node, inside: Collection[fx.Node]) -> bool:
        return node in self._results or self._is_read_elsewhere(node, inside)

    def _is_read_elsewhere(self, node: fx.Node, inside: Collection[fx.Node]) -> bool:
        return any(user in self.stages and user not in inside for user in node.users)

    def _takes_result(self, home: fx.Node, stage: int) -> bool:
        """Whether the definition of a stage may write into an input."""
        if self._on_gpu and is_on_host(meta_of(home)):
            return False
        return all(self.stages.get(user, stage) <= stage for user in home.users)


# Of a graph, whose length is nobody's mistake.
_MANY_RECORDS = 1_000_000


def _tensors_of(node: fx.Node) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The fake tensors that a node makes, and those that it reads."""
    return result_tensors(node), [t for source in node.all_input_nodes for t in result_tensors(source)]


def _evaluated(node: fx.Node, reason: str, within: bool) -> Evaluated:
    tensors = result_tensors(node)
    return Evaluated(
        node=node.name,
        operator=str(node.target) if reason else "",
        reason=reason,
        within=within,
        results=tuple(f"{t.dtype} {list(t.shape)}" for t in tensors),
    )
