"""Brings graphs of torch into the form that is converted: pure, over ATen operators that have rows if
possible.

Attributes of a module become inputs with known values. Copies into inputs become additional results, with the
input that each is written into.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from fusewright.core.errors import GraphError
from fusewright.ops.aten import is_composed
from fusewright.torch_compile.recording import meta_of
from fusewright.torch_compile.rows import ROWS, Overload
from fusewright.torch_compile.sizes import SIZE_FUNCTIONS

Decompositions = Mapping[Any, Callable[..., Any]]

#: Decomposed beside ATen's core: normalizations, activations and losses, which are then ordinary operations.
EXTRA = (
    "native_layer_norm.default",
    "native_group_norm.default",
    "native_batch_norm.default",
    "_native_batch_norm_legit.default",
    "_native_batch_norm_legit_functional.default",
    "_native_batch_norm_legit_no_training.default",
    "_native_batch_norm_legit.no_stats",
    "leaky_relu.default",
    "elu.default",
    "hardtanh.default",
    "hardsigmoid.default",
    "hardswish.default",
    "softplus.default",
    "mish.default",
    "glu.default",
    "sum_to_size.default",
    "new_full.default",
    "linalg_vector_norm.default",
    "norm.ScalarOpt_dim",
    "nll_loss_forward.default",
    "nll_loss_backward.default",
    "mse_loss.default",
    "upsample_bilinear2d.default",
    "upsample_linear1d.default",
    "upsample_trilinear3d.default",
    "upsample_trilinear3d.vec",
    "upsample_bicubic2d.default",
    "upsample_bicubic2d.vec",
    "grid_sampler_2d.default",
    "diagonal_scatter.default",
)
#: torch computes these as they are: it has a kernel of its own, which the steps of a decomposition are not.
WHOLE = (
    "_scaled_dot_product_flash_attention_for_cpu.default",
    "_scaled_dot_product_flash_attention.default",
    "_scaled_dot_product_efficient_attention.default",
    "_scaled_dot_product_cudnn_attention.default",
    "convolution_backward.default",
)


def _overloads(names: Iterable[str]) -> list[Overload]:
    found = []
    for name in names:
        packet, _, overload = name.partition(".")
        known = getattr(getattr(torch.ops.aten, packet, None), overload, None)
        if isinstance(known, Overload):
            found.append(known)
    return found


def decompositions() -> dict[Any, Callable[..., Any]]:
    """The decompositions to trace with, for `make_fx` or AOTAutograd: ATen's core table, and those that help
    fusion.

    Operators with an operation here, or with a kernel in torch, are not decomposed.
    """
    return dict(_decompositions())


@functools.cache
def _decompositions() -> Decompositions:
    """Collecting torch's table takes a third of a second."""
    table = dict(torch._decomp.core_aten_decompositions())
    table.update({o: d for o in _overloads(EXTRA) if (d := torch._decomp.decomposition_table.get(o))})
    whole = {*_overloads(WHOLE)}
    return {o: d for o, d in table.items() if o not in whole and str(o) not in ROWS}


@dataclass(frozen=True, eq=False)
class PureGraph:
    """A graph without mutations.

    Attributes:
        graph: over placeholders, operators and functions of sizes.
        placeholders: the arguments of a call, then those with known values.
        constants: the values of the last placeholders.
        results: the results of a call, flat: nodes of the graph, or known values.
        structure: how the results nest.
        written: nodes, and the arguments (by position) that they are written into.
    """

    graph: fx.Graph
    placeholders: tuple[fx.Node, ...]
    constants: tuple[Any, ...]
    results: tuple[Any, ...]
    structure: pytree.TreeSpec
    written: tuple[tuple[fx.Node, int], ...]

    @property
    def arguments(self) -> int:
        """The number of arguments of a call."""
        return len(self.placeholders) - len(self.constants)


def pure_graph(source: fx.GraphModule | ExportedProgram) -> PureGraph:
    """The pure form of a graph, decomposed where it holds operators that have no row.

    Raises:
        GraphError: it is no graph of ATen operators, or writes into tensors within.
    """
    if isinstance(source, ExportedProgram):
        found = _of_program(source.run_decompositions(dict(_decompositions())))
    elif isinstance(source, fx.GraphModule):
        found = _of_module(source)
    else:
        raise GraphError(
            problem=f"a {type(source).__name__} is no graph",
            hint="pass a GraphModule of make_fx or AOTAutograd, or what torch.export.export returns",
        )
    table = _decompositions()
    if any(_can_be_split(node, table) for node in found.graph.nodes):
        # A decomposition may lack a type or a size that the operator takes: torch computes what stays whole.
        with suppress(GraphError):
            found = _decomposed(found, table)
    return _with_own_values(found)


def _with_own_values(found: PureGraph) -> PureGraph:
    """The graph in which an argument that is written into another is copied first.

    So each value that is written is a node that something computes, and is what the argument was before the
    call, whatever the call writes into that argument.
    """
    copies: dict[fx.Node, fx.Node] = {}
    graph = found.graph
    (output,) = (node for node in graph.nodes if node.op == "output")
    for value, _ in found.written:
        if value.op == "placeholder" and value not in copies:
            with graph.inserting_before(output):
                copies[value] = graph.call_function(torch.ops.aten.clone.default, (value,))
            copies[value].meta["val"] = value.meta["val"]
    if not copies:
        return found
    written = tuple((copies.get(value, value), place) for value, place in found.written)
    output.args = ((list(found.results), [value for value, _ in written]),)
    return replace(found, written=written)


# ---- modules and exported programs -------------------------------------------------------------------------


def _of_module(module: fx.GraphModule) -> PureGraph:
    if not any(node.op == "output" for node in module.graph.nodes):
        raise GraphError(problem="it returns nothing: it has no output node", hint=_HINT)
    graph = fx.Graph()
    copied: dict[fx.Node, fx.Node] = {}
    output = graph.graph_copy(module.graph, copied)
    arguments = [copied[n] for n in module.graph.nodes if n.op == "placeholder"]
    results, structure = pytree.tree_flatten(output)
    _drop_known_assertions(graph)
    attributes, constants = _lifted(graph, module)
    placeholders = [*arguments, *attributes]
    _check(graph)
    if _writes_within(graph, placeholders):
        graph, placeholders, results = _traced_again(graph, placeholders, results, {}, functional=True)
    written, results = _without_copies(graph, placeholders, results)
    graph.output((list(results), [node for node, _ in written]))
    graph.eliminate_dead_code()
    return PureGraph(graph, tuple(placeholders), tuple(constants), tuple(results), structure, tuple(written))


def _drop_known_assertions(graph: fx.Graph) -> None:
    """Removes assertions about types and devices that the graph states of these tensors anyway.

    torch.export writes one for each cast. Left to torch, each would divide a definition and return a tensor.
    """
    for node in list(graph.nodes):
        if node.target is not torch.ops.aten._assert_tensor_metadata.default:
            continue
        source = node.args[0]
        tensor = source.meta.get("val") if isinstance(source, fx.Node) else None
        names = [argument.name for argument in node.target._schema.arguments[1:]]
        asserted = {**dict(zip(names, node.args[1:])), **node.kwargs}
        stated = {name: getattr(tensor, name, None) for name in ("dtype", "device", "layout")}
        if all(value is None or stated.get(name) == value for name, value in asserted.items()):
            graph.erase_node(node)


def _writes_within(graph: fx.Graph, placeholders: Sequence[fx.Node]) -> bool:
    """Whether it writes into tensors in another way than by copies into inputs that it no longer reads."""
    written: set[fx.Node] = set()
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        target = node.target
        if target is torch.ops.aten.copy_.default and node.args[0] in placeholders:
            written.add(node.args[0])
            written.add(node)
        elif written.intersection(node.all_input_nodes) or (
            isinstance(target, Overload) and target._schema.is_mutable
        ):
            return True
    return False


def _of_program(program: ExportedProgram) -> PureGraph:
    """Parameters, buffers and constants are inputs with known values; mutated ones are written."""
    found = _of_module(program.graph_module)
    signature = program.graph_signature
    state = {**program.state_dict, **program.constants}
    names = [node.target for node in found.placeholders]
    own: list[fx.Node] = []
    known: list[fx.Node] = []
    constants: list[Any] = []
    for spec, node in zip(signature.input_specs, found.placeholders):
        if spec.kind is InputKind.USER_INPUT:
            own.append(node)
        else:
            known.append(node)
            constants.append(state[str(spec.target)])
    order = [*own, *known]
    results: list[Any] = []
    written: list[tuple[fx.Node, int]] = []
    homes = {spec.target: names.index(spec.arg.name) for spec in signature.input_specs if spec.target}
    for result, made in zip(signature.output_specs, found.results):
        if result.kind is OutputKind.USER_OUTPUT:
            results.append(made)
            continue
        if result.kind is OutputKind.USER_INPUT_MUTATION:
            home = found.placeholders[names.index(str(result.target))]
        elif result.target in homes:
            home = found.placeholders[homes[result.target]]
        else:
            raise GraphError(problem=f"an output of the kind {result.kind.name} has no place in a call")
        written.append((made, order.index(home)))
    _, structure = pytree.tree_flatten(list(results))
    out_spec = program.call_spec.out_spec
    structure = structure if out_spec is None else out_spec
    constants += found.constants
    order += found.placeholders[len(found.placeholders) - len(found.constants) :]
    return PureGraph(found.graph, tuple(order), tuple(constants), tuple(results), structure, tuple(written))


def _without_copies(
    graph: fx.Graph, arguments: Sequence[fx.Node], results: Sequence[Any]
) -> tuple[list[tuple[fx.Node, int]], list[Any]]:
    """Removes the copies into arguments: what is written where, and the results without them.

    A result that is such a copy is the argument itself.
    """
    position = {node: i for i, node in enumerate(arguments)}
    written: dict[int, fx.Node] = {}
    last = list(results)
    for node in list(graph.nodes):
        if node.target is not torch.ops.aten.copy_.default or node.args[0] not in position:
            continue
        home, value = node.args[:2]
        written[position[home]] = value
        last = [home if result is node else result for result in last]
        node.replace_all_uses_with(value)
        graph.erase_node(node)
    return [(value, place) for place, value in written.items()], last


def _lifted(graph: fx.Graph, module: fx.GraphModule) -> tuple[list[fx.Node], list[Any]]:
    """Makes inputs of the attributes that a graph reads: the inputs, and their values."""
    made: dict[str, fx.Node] = {}
    values: list[Any] = []
    first = next(iter(graph.nodes))
    for node in list(graph.nodes):
        if node.op != "get_attr":
            continue
        name = str(node.target)
        if name not in made:
            value = module
            for part in name.split("."):
                value = getattr(value, part)
            with graph.inserting_before(first):
                made[name] = graph.placeholder(f"constant_{len(made)}")
            made[name].meta["val"] = node.meta.get("val", value)
            values.append(value)
        node.replace_all_uses_with(made[name])
        graph.erase_node(node)
    return list(made.values()), values


# ---- checks ------------------------------------------------------------------------------------------------


def _check(graph: fx.Graph) -> None:
    """Raises GraphError for what is no operator of ATen, or nothing is known of."""
    for node in graph.nodes:
        is_function = node.op == "call_function"
        known = isinstance(node.target, Overload) or node.target is operator.getitem
        if node.op in ("call_module", "call_method") or (
            is_function and not known and node.target not in SIZE_FUNCTIONS
        ):
            raise GraphError(problem=f"{node.op} {node.target} is no operator of ATen", hint=_HINT)
    for node in graph.nodes:
        if node.target is operator.getitem and "val" in node.args[0].meta:
            source, place = node.args
            node.meta.setdefault("val", source.meta["val"][place])  # make_fx notes no None
        if isinstance(node.target, Overload) and not node.target._schema.returns:
            node.meta.setdefault("val", None)  # an assertion
        if node.op == "placeholder" and not node.users:
            # It is a number, which make_fx writes into the operators that take it.
            node.meta.setdefault("val", None)
        if node.op in ("placeholder", "call_function") and "val" not in node.meta:
            raise GraphError(problem=f"nothing is known of the sizes of {node.name}", hint=_HINT)


_HINT = "trace with make_fx, AOTAutograd or torch.export, which note sizes and types in meta['val']"

# ---- decomposition -----------------------------------------------------------------------------------------


def _can_be_split(node: fx.Node, table: Decompositions) -> bool:
    """Whether an operator without a row is made of others."""
    target = node.target
    if not isinstance(target, Overload) or str(target) in ROWS or target in SIZE_FUNCTIONS:
        return False
    return target in table or is_composed(target)


def _decomposed(found: PureGraph, table: Decompositions) -> PureGraph:
    """The same computation with operators split into others."""
    wanted = [*found.results, *(node for node, _ in found.written)]
    graph, placeholders, made = _traced_again(found.graph, found.placeholders, wanted, table)
    results = made[: len(found.results)]
    written = [(node, place) for node, (_, place) in zip(made[len(results) :], found.written)]
    graph.output((list(results), [node for node, _ in written]))
    graph.eliminate_dead_code()
    return PureGraph(
        graph, tuple(placeholders), found.constants, tuple(results), found.structure, tuple(written)
    )


def _traced_again(
    graph: fx.Graph,
    placeholders: Sequence[fx.Node],
    results: Sequence[Any],
    table: Decompositions,
    functional: bool = False,
) -> tuple[fx.Graph, list[fx.Node], list[Any]]:
    """The graph traced with decompositions, and without writing into tensors if `functional`.

    Returns the new graph, its placeholders, and the results in it; it ends in copies into inputs that the
    old one writes into in other ways.
    """
    wanted = [result for result in results if isinstance(result, fx.Node)]
    values, mode = _fake_values(placeholders)

    def compute(*arguments: Any) -> list[Any]:
        known = dict(zip(placeholders, arguments))
        for node in graph.nodes:
            if node.op == "call_function":
                args, kwargs = fx.map_arg((node.args, node.kwargs), known.__getitem__)
                known[node] = node.target(*args, **kwargs)
        return [known[node] for node in wanted]

    trace = torch.func.functionalize(compute, remove="mutations") if functional else compute
    try:
        with mode, torch.no_grad():
            module = make_fx(trace, decomposition_table=dict(table), tracing_mode="real")(*values)
    except Exception as error:
        without = "writes into tensors" if functional else "composite operators"
        raise GraphError(
            problem=f"torch cannot trace it again without {without}: {type(error).__name__}: {error}",
            hint="functionalize and decompose it first, as AOTAutograd does",
        ) from error
    again = fx.Graph()
    copied: dict[fx.Node, fx.Node] = {}
    output = again.graph_copy(module.graph, copied)
    assert isinstance(output, (list, tuple))
    made = iter(output)
    if any(node.op == "get_attr" for node in again.nodes):
        raise GraphError(problem="tracing it again made a tensor of its own")
    taken = [copied[node] for node in module.graph.nodes if node.op == "placeholder"]
    return again, taken, [next(made) if isinstance(r, fx.Node) else r for r in results]


def _fake_values(placeholders: Sequence[fx.Node]) -> tuple[list[Any], FakeTensorMode]:
    """Fake values for a trace, all of one mode."""
    values = [meta_of(node) for node in placeholders]
    tensors = [v for v in values if isinstance(v, torch.Tensor)]
    modes = {id(v.fake_mode): v.fake_mode for v in tensors if isinstance(v, FakeTensor)}
    if len(modes) == 1 and all(isinstance(v, FakeTensor) for v in tensors):
        return values, next(iter(modes.values()))
    mode = FakeTensorMode()
    with mode:
        fakes = [
            torch.empty_strided(v.shape, v.stride(), dtype=v.dtype, device=v.device)
            if isinstance(v, torch.Tensor)
            else v
            for v in values
        ]
    return fakes, mode
