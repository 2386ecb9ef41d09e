"""Checks that a fusion is well-formed.

`verify_fusion` runs when a definition is complete and before lowering. It checks what every later layer
assumes: links between values and nodes, an order of computation, axis maps, types, and that each tensor's
domains derive from each other. Lowering checks whether a schedule makes a correct kernel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NoReturn

from fusewright.core.dtype import DataType
from fusewright.core.enums import MemoryType
from fusewright.core.errors import DtypeError, VerifyError
from fusewright.core.op import Rule, result_dtype
from fusewright.ir.axis import IterDomain, transforms_between
from fusewright.ir.fusion import Fusion
from fusewright.ir.index_map import position_of
from fusewright.ir.node import Choose, Copy, Indexed, Join, Node, Pointwise, Reduction, Scan, Stored, Update
from fusewright.ir.text import node_text, value_name
from fusewright.ir.value import Scalar, TensorView, Val
from fusewright.sym import Expr


def verify_fusion(fusion: Fusion, after: str = "definition") -> None:
    """Raises VerifyError, which names the value or node, unless `fusion` is well-formed.

    Time is linear in nodes and axes. `after`: what was done last, for the message.
    """
    _Verifier(fusion, after).run()


class _Verifier:
    def __init__(self, fusion: Fusion, after: str) -> None:
        self.fusion = fusion
        self.after = after
        self.nodes = set(fusion.nodes)
        self.inputs = set(fusion.inputs)
        self.readers = Counter(value for node in fusion.nodes for value in dict.fromkeys(node.inputs))

    def fail(self, problem: str) -> NoReturn:
        raise VerifyError(level="fusion", after=self.after, problem=problem)

    def run(self) -> None:
        self.check_borders()
        for value in self.fusion.values():
            self.check_links(value)
        for node in self.fusion.nodes:
            self.check_node(node)
        self.check_order()
        for tensor in self.fusion.tensors():
            self.check_domains(tensor)

    # ---- the graph

    def check_borders(self) -> None:
        for output in self.fusion.outputs:
            if output.tensor.definition is None and output.tensor not in self.inputs:
                self.fail(f"output {output.tensor} is neither computed nor an input")
            if output.alias is not None and output.alias not in self.inputs:
                self.fail(f"output {output.tensor.name} aliases {output.alias}, which is no input")
        for value in (*self.fusion.inputs, *self.fusion.output_tensors()):
            if isinstance(value, TensorView) and value.memory is not MemoryType.global_:
                self.fail(f"{value} is an input or output, but not in global memory")

    def check_links(self, value: Val) -> None:
        name, node = value_name(value), value.definition
        if node is None:
            known = isinstance(value, Scalar) and (value.is_constant or value.extent is not None)
            if value not in self.inputs and not known:
                self.fail(f"{name} is used, but neither computed nor an input")
        elif value in self.inputs:
            self.fail(f"input {name} is also computed: {_line(node)}")
        elif node not in self.nodes or value not in node.outputs:
            self.fail(f"the definition of {name} does not belong to the fusion")
        for use in value.uses:
            if use not in self.nodes or value not in use.inputs:
                self.fail(f"{name} lists a use that does not read it, or that is not in the fusion")
        if len(set(value.uses)) != self.readers[value] or len(value.uses) != self.readers[value]:
            self.fail(f"{name} is read by {self.readers[value]} nodes, but lists {len(value.uses)} uses")

    def check_order(self) -> None:
        """Every node that outputs need can be computed before its users."""
        needed: set[Node] = set()
        stack = [output.tensor.definition for output in self.fusion.outputs]
        while stack:
            node = stack.pop()
            if node is not None and node not in needed:
                needed.add(node)
                stack += [value.definition for value in node.inputs]
        ordered = self.fusion.ordered_nodes()
        if len(ordered) < len(needed):
            stuck = next(n for n in self.fusion.nodes if n in needed and n not in set(ordered))
            self.fail(f"a value depends on itself: {_line(stuck)}")

    # ---- nodes

    def check_node(self, node: Node) -> None:
        for out in node.outputs:
            if out.definition is not node:
                self.fail(f"{value_name(out)} is the output of two nodes, or of none: {_line(node)}")
        problem = _problem_of_kind(node)
        if problem:
            self.fail(f"{problem}: {_line(node)}")
        if not (node.is_scalar or node.traits.whole):
            for operand, value in enumerate(node.inputs):
                is_base = isinstance(node, Update) and value is node.base
                if isinstance(value, TensorView) and not value.is_cpu and not is_base:
                    self.check_axes(node, operand, value)

    def check_axes(self, node: Node, operand: int, producer: TensorView) -> None:
        """The output's root axes map to axes of the operand that they can be computed from."""
        root, shape = node.output.maybe_root, producer.shape
        for out in node.outputs:
            if isinstance(out, TensorView) and len(out.maybe_root) != len(root):
                self.fail(f"outputs differ in rank: {_line(node)}")
        positions = node.axis_map(operand)
        if len(positions) != len(root):
            self.fail(
                f"{len(positions)} axes of {producer.name} map to {len(root)} of the output: {_line(node)}"
            )
        for axis, position in zip(root, positions):
            if position is None:
                if not axis.is_broadcast and not (node.traits.indexed and not operand):
                    self.fail(f"axis {axis} comes from no axis of {producer.name}: {_line(node)}")
                continue
            if not 0 <= position < len(shape):
                self.fail(f"{producer.name} has no axis {position}: {_line(node)}")
            source = shape[position]
            if source.extent is axis.extent or source.is_broadcast:
                continue
            if not self.fusion.same_size(source.extent, axis.extent):
                self.fail(f"axis {source} of {producer.name} becomes {axis}: {_line(node)}")

    # ---- domains

    def check_domains(self, tensor: TensorView) -> None:
        if tensor.root is not None and not tensor.is_placed:
            self.check_made_from(tensor, "logical", tensor.root, tensor.logical)
        # From the root, since transforms that made logical axes also made what loops are made from.
        self.check_made_from(tensor, "loop", tensor.maybe_root, tensor.loop)
        if tensor.storage is not None:
            made = transforms_between(tensor.logical, tensor.storage.axes)
            known = {*tensor.logical, *(axis for transform in made for axis in transform.outputs)}
            if any(axis not in known for axis in tensor.storage.axes):
                self.fail(f"{tensor} is stored along axes that are not made from its logical ones")
        if not 0 <= tensor.inline_at <= len(tensor.loop):
            self.fail(f"{tensor} is inlined at {tensor.inline_at}")
        stored = tensor.memory_axes
        if tuple(stored) != tensor.shape and Counter(stored) != Counter(tensor.shape):
            self.fail(f"the allocation of {tensor} is no permutation of its logical axes")
        if tensor.memory is MemoryType.global_ and len(tensor.contiguity) != len(stored):
            self.fail(f"{tensor} has {len(stored)} axes, but {len(tensor.contiguity)} entries of contiguity")

    def check_made_from(
        self, tensor: TensorView, what: str, sources: Sequence[IterDomain], targets: Sequence[IterDomain]
    ) -> None:
        """Transforms lead from exactly `sources` to exactly `targets`."""
        if tuple(sources) == tuple(targets):
            return
        transforms = transforms_between(sources, targets)
        made = [axis for transform in transforms for axis in transform.outputs]
        used = [axis for transform in transforms for axis in transform.inputs]
        left = dict.fromkeys((*sources, *made, *used, *targets), 0)
        for axis in (*sources, *made):
            left[axis] += 1
        for axis in (*used, *targets):
            left[axis] -= 1
        wrong = [axis for axis, count in left.items() if count]
        if wrong:
            axes = ", ".join(map(str, wrong))
            self.fail(
                f"the {what} axes of {tensor} are not made from the others: {axes} left over or missing"
            )


def _line(node: Node) -> str:
    return " ".join(part.strip() for part in node_text(node))


def _problem_of_kind(node: Node) -> str:
    """What is wrong with a node, given of what kind it is; "" if nothing."""
    if "traits" not in vars(type(node)):
        return f"the node class {type(node).__name__} states no traits (ir.node.Traits)"
    if isinstance(node, Pointwise):
        return _check_pointwise(node)
    if isinstance(node, Reduction):
        return _check_reduction(node)
    if isinstance(node, Indexed):
        return _check_indexed(node)
    if isinstance(node, Update):
        return _check_update(node)
    if isinstance(node, Stored):
        return _check_stored(node)
    if isinstance(node, Join):
        return _check_join(node)
    if isinstance(node, Choose):
        return _problem_of_positions(node.output, (node.pred,))
    if isinstance(node, Scan):
        return _check_scan(node)
    return _check_move(node) if node.traits.move else ""


def _check_pointwise(node: Pointwise) -> str:
    """The operands have the types that the row computes in, and the output has the row's result type."""
    if len(node.inputs) != node.op.arity:
        return f"{node.op.name} takes {node.op.arity} operands, not {len(node.inputs)}"
    if node.op.rule is Rule.CAST:
        return ""
    types = [value.dtype for value in node.inputs]
    first = 1 if node.op.rule is Rule.SELECT else 0
    try:
        operands, result = result_dtype(node.op, types, common=types[first])
    except DtypeError as error:
        return error.message
    out = node.outputs[0].dtype
    # Kernels convert scalars where they use them, so a size may stand for a float.
    if any(t is not o for v, t, o in zip(node.inputs, types, operands) if isinstance(v, TensorView)):
        return f"operands of {_types(types)} where the row computes in {_types(operands)}"
    return "" if out is result else f"a result of {out.ir_name} where the row gives {result.ir_name}"


def _check_move(node: Node) -> str:
    held = node.held if isinstance(node, Copy) else None
    if held is not None and (held.part is None or held.dtype is not node.outputs[0].dtype):
        return f"a copy of what {held.name} does not hold in part"
    if len(node.inputs) != 1 + (held is not None) or len(node.outputs) != 1:
        return f"a move from {len(node.inputs)} operands to {len(node.outputs)} outputs"
    source, out = node.inputs[0].dtype, node.outputs[0].dtype
    return "" if source is out else f"a move from {source.ir_name} to {out.ir_name}"


def _check_indexed(node: Indexed) -> str:
    source, out = node.source, node.output
    if source.dtype is not out.dtype:
        return f"elements of {source.dtype.ir_name} become {out.dtype.ir_name}"
    if len(node.map.indices) != source.ndim:
        return f"{len(node.map.indices)} indices of {source.ndim} dimensions"
    if any(not tensor.dtype.is_integral for tensor in node.index_tensors):
        return "an index that is no integer"
    if not node.map.index_numbers <= set(range(node.indices)):
        return f"more index values than the {node.indices} operands for them"
    if source in node.index_tensors:
        return f"{source.name} is read by index, and as the index"
    return _problem_of_positions(out, node.map.expressions)


def _problem_of_positions(out: TensorView, expressions: Sequence[Expr]) -> str:
    """Elements that differ along a dimension are no copies of one."""
    root = out.maybe_root
    for dim in {position_of(s) for e in expressions for s in e.free_symbols}:
        if dim is not None and (dim >= len(root) or root[dim].is_broadcast):
            return f"a position along dimension {dim}, which is not there or shows copies of one element"
    return ""


def _check_update(node: Update) -> str:
    out, base, source = node.output, node.base, node.source
    if len(node.map.indices) != out.ndim:
        return f"{len(node.map.indices)} indices of {out.ndim} dimensions"
    if out.root is None:
        return "an update that has no axes of its source"
    if any(not tensor.dtype.is_integral for tensor in node.index_tensors):
        return "an index that is no integer"
    if not node.map.index_numbers <= set(range(node.indices)):
        return f"more index values than the {node.indices} operands for them"
    if source.dtype is not out.dtype:
        return f"elements of {source.dtype.ir_name} become {out.dtype.ir_name}"
    if node.op is not None and out.dtype not in node.op.atomic:
        return f"{node.op.name} of {out.dtype.ir_name}, which no kernel does at once"
    if base is None:
        return ""
    if base.uses != [node] or base.definition is None:
        return f"the base {base.name} is not computed for it alone"
    if (base.dtype, base.extents) != (out.dtype, out.extents) or _order(base) != _order(out):
        return f"the base {base.name} has another type, size or memory order"
    return ""


def _order(tensor: TensorView) -> list[int]:
    return [tensor.shape.index(axis) for axis in tensor.allocation if not axis.is_broadcast]


def _check_stored(node: Stored) -> str:
    out = node.output
    if len(node.map.indices) != out.ndim:
        return f"{len(node.map.indices)} indices of {out.ndim} dimensions"
    is_read = any(not (node.traits.piece and isinstance(use, Join)) for use in out.uses)
    return "a store that is read, or has no axes of its input" if out.root is None or is_read else ""


def _check_join(node: Join) -> str:
    whole = node.output
    for piece in node.tensor_inputs:
        if piece.definition is not None and not piece.definition.traits.piece:
            return f"{piece.name} is not stored as a piece"
        if (piece.dtype, piece.extents) != (whole.dtype, whole.extents) or _order(piece) != _order(whole):
            return f"the piece {piece.name} has another type, size or memory order"
    return ""


def _check_reduction(node: Reduction) -> str:
    states = len(node.op.states)
    if len(node.outputs) != states:
        return f"{len(node.outputs)} outputs for {states} states"
    if len(node.inputs) not in (1, states):
        return f"{len(node.inputs)} operands for {states} states"
    kinds = {
        tuple(axis.is_reduction for axis in out.maybe_root)
        for out in node.outputs
        if isinstance(out, TensorView)
    }
    if len(kinds) > 1:
        return "the outputs reduce different axes"
    if not any(next(iter(kinds), ())):
        return "no axis is reduced"
    types = tuple(out.dtype for out in node.outputs)
    given = tuple(value.dtype for value in node.inputs)
    wanted = given if len(given) > 1 else tuple(node.op.state_dtypes(given[0]))
    return "" if types == wanted else f"states of {_types(types)} where {_types(wanted)} belong"


def _check_scan(node: Scan) -> str:
    if len(node.op.states) != 1:
        return f"a scan of {len(node.op.states)} states"
    if len(node.tensor_inputs) != 1 or len(node.inputs) > 2 or not isinstance(node.inputs[0], TensorView):
        return "a scan of other operands than a tensor and a scalar to start from"
    root = node.output.maybe_root
    if not 0 <= node.dim < len(root):
        return f"a scan along dimension {node.dim} of {len(root)}"
    if root[node.dim].is_broadcast:
        return f"a scan along {root[node.dim]}, which has one point"
    types = tuple(value.dtype for value in (*node.inputs, *node.outputs))
    return "" if len(set(types)) == 1 else f"a scan over operands and results of {_types(types)}"


def _types(types: Sequence[DataType]) -> str:
    return ", ".join(dtype.ir_name for dtype in types)
