"""Lowers a scheduled fusion to a kernel."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from fusewright.analyze.axis_map import operand_map
from fusewright.analyze.runs import divisors
from fusewright.analyze.stepped_runs import picked_run
from fusewright.analyze.vectorize import (
    is_shifted,
    is_shifted_run,
    lane_axes,
    lane_axis,
    lane_run,
    merged_run,
)
from fusewright.core.enums import MemoryType, ParallelType
from fusewright.core.errors import ScheduleError
from fusewright.core.hardware import MAX_PARAMETER_BYTES, MAX_THREADS_PER_BLOCK
from fusewright.core.passes import PassManager
from fusewright.core.tracing import Tracer
from fusewright.ir.axis import ancestors
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Indexed, Node, Stored
from fusewright.ir.value import TensorView
from fusewright.kernel import access
from fusewright.kernel import ir as k
from fusewright.kernel.operands import packed_bytes, param_size
from fusewright.kernel.text import kernel_text
from fusewright.kernel.verify import verify
from fusewright.lower.buffers import Buffers
from fusewright.lower.context import Context, launch_dimensions
from fusewright.lower.domains import Domains, refine, vector_size, with_promoters
from fusewright.lower.indexing import NodeIndices
from fusewright.lower.interface import (
    Argument,
    Lowered,
    LowerOptions,
    ScalarArgument,
    SizeArgument,
    StrideArgument,
    TensorArgument,
    WorkspaceArgument,
)
from fusewright.lower.loops import Item, LoopMap, build_nest, cluster_places, cluster_size, link, name_loops
from fusewright.lower.multipliers import with_multipliers
from fusewright.lower.nodes import node_items
from fusewright.lower.partial_vectors import misalignments
from fusewright.lower.passes import PASSES
from fusewright.lower.prefetch import prefetched
from fusewright.lower.prepare import check_scheduled
from fusewright.lower.rings import begin, elements_of_unit, end_with_grid, ring_nodes
from fusewright.lower.vector_copies import is_vector_access
from fusewright.sym import Expr, Symbol, as_int, const, divides, maximum, product, substitute

# The distance between the order numbers of consecutive nodes. A node may have up to this many items.
_ORDER_STEP = 5

_MANAGER = PassManager("kernel", PASSES, kernel_text, verify)


def lower(fusion: Fusion, options: LowerOptions, tracer: Tracer) -> Lowered:
    """Lowers a fusion whose schedule is complete (`Schedule.complete`) to a kernel, without changing it.

    Raises:
        ScheduleError: the schedule cannot be one correct kernel. The message names the tensor and the remedy.
        VerifyError: a pass has a bug.
    """
    with tracer.stage("nest"):
        check_scheduled(fusion)
        kernel, context = _build(fusion, options)
        _MANAGER.check(kernel, "nest", tracer)
    kernel = _MANAGER.run(kernel, tracer)
    with tracer.stage("arguments"):
        return _bind(with_multipliers(kernel, context.buffers.stride_symbols), context)


def _grid_barriers_before(nodes: Sequence[Node], fusion: Fusion) -> dict[Node, int]:
    """The number of grid barriers before each node: one each time that blocks pass tensors to others."""
    outputs = set(fusion.output_tensors())
    before: dict[Node, int] = {}
    for node in nodes:
        made = ((t, before[t.definition]) for t in node.tensor_inputs if t.definition in before)
        passed = (n + (t.memory is MemoryType.global_ and t not in outputs) for t, n in made)
        before[node] = max(passed, default=0)
    return before


def _is_load(node: Node) -> bool:
    """Whether a node copies a tensor in global memory."""
    return node.traits.move and node.tensor_inputs[0].memory is MemoryType.global_


def _build(fusion: Fusion, options: LowerOptions) -> tuple[k.Kernel, Context]:
    nodes = fusion.tensor_nodes()
    barriers = _grid_barriers_before(nodes, fusion)
    # After a grid barrier, loads of what the blocks passed on come before all computation.
    nodes.sort(key=lambda node: (barriers[node], not (barriers[node] and _is_load(node))))
    vectors = [node for node in nodes if is_vector_access(node)]
    bulk = ring_nodes(nodes)
    assumed = refine((), fusion.ranges, fusion.multiples)
    whole = [node for node in vectors if _are_whole(node.output) and not _is_merged_run(node, assumed)]
    facts = _vector_facts(whole, Domains(with_promoters(whole, nodes), {})) + _bulk_facts(bulk)
    domains = Domains(nodes, refine(facts, fusion.ranges, fusion.multiples))
    buffers = Buffers(domains)
    _align_buffers(vectors, domains, buffers)
    for node in bulk:
        buffers.need_vectors(node.tensor_inputs[0], elements_of_unit(node.output))
    loops = LoopMap(nodes, domains)
    dims = launch_dimensions(loops)
    name_loops(nodes, loops, dims)
    implied = end_with_grid(nodes, loops, domains)
    ctx = Context(fusion, nodes, domains, loops, buffers, dims, implied=implied)
    _check_readers(ctx)
    items: list[Item] = []
    for position, node in enumerate(nodes):
        own = node_items(ctx, node, position * _ORDER_STEP)
        own = prefetched(ctx, node, own) if node.output.prefetched else own
        for item in own:
            item.barriers = barriers[node]
        items += own
    link(items)
    nest = build_nest(items)
    threads = [dims.get(p, const(1)) for p in k.THREAD_AXES]
    first = [*cluster_places(dims), *misalignments(ctx)]
    body = (*first, *_allocations(ctx), *begin(buffers.stages.values(), threads), *nest)
    blocks = [dims.get(p, const(1)) for p in k.BLOCK_AXES]
    cluster = cluster_size(dims)
    blocks[0] = blocks[0] if cluster == 1 else maximum(blocks[0], 1) * cluster
    kernel = k.Kernel(
        name=options.name,
        params=(),
        body=body,
        grid=(blocks[0], blocks[1], blocks[2]),
        block=(threads[0], threads[1], threads[2]),
        shared_bytes=const(0),
        index_dtype=options.index_dtype,
        max_threads=_thread_bound(threads),
        alignments=tuple(
            k.Alignment(buffers.of(t), bytes_)
            for t, bytes_ in buffers.alignment.items()
            if t.memory is MemoryType.global_
        ),
        cluster=cluster,
        rings=tuple(stages.as_ring() for stages in buffers.stages.values()),
    )
    return dataclasses.replace(kernel, params=_params(ctx, kernel)), ctx


def _thread_bound(threads: list[Expr]) -> int:
    """The most threads of a block: the schedule's number if it is constant, else the GPU's limit."""
    bound = 1
    for extent in threads:
        size = as_int(extent)
        if size is None:
            return MAX_THREADS_PER_BLOCK
        bound *= size
    return bound


def _is_merged_run(node: Node, assumed: dict[Symbol, Symbol]) -> bool:
    """Whether, with the assumed sizes, vectors run along several merged dimensions as along one.

    True if no assumption makes the innermost dimension a multiple of the width, but a product of several.
    """
    width = as_int(node.output.loop[-1].extent) or 1
    known = Domains((), assumed)
    lanes = [known.known(axis.extent) for axis in lane_axes(node.output, width)]
    if not lanes or divides(width, lanes[-1]):
        return False
    counts = [count for count in range(2, len(lanes) + 1) if divides(width, product(lanes[-count:]))]
    # More of them may be one run where fewer are not known to be.
    return any(merged_run(node, width, count) for count in counts)


def _are_whole(tensor: TensorView) -> bool:
    """Whether all vectors of the tensor are complete and aligned."""
    return not tensor.unaligned and not is_shifted(tensor)


def _vector_facts(vectors: list[Node], domains: Domains) -> list[tuple[Expr, int]]:
    """Pairs (size, width): these vector accesses need the size to be a multiple of the width.

    Raises:
        ScheduleError: a constant size is not a multiple.
    """
    facts: dict[tuple[Expr, int], None] = {}
    for node in vectors:
        out = node.output
        width = as_int(domains.extent(out, out.loop[-1])) or 1
        along = vector_size(out, domains, width)
        sizes = [along] if along is not None else []
        lane = lane_axis(out, width)
        stepped = picked_run(node, width)
        if stepped is not None:
            sizes += stepped.sizes
        elif isinstance(node, (Indexed, Stored)) and lane is not None:
            run = lane_run(node, lane)
            sizes = [*sizes, *run.sizes] if run is not None and run.moves else []
        for size in (size for size in sizes if not divides(width, size)):
            parts = (size,) if as_int(size) is not None else divisors(size)
            if parts is None or any(as_int(part) is not None and not divides(width, part) for part in parts):
                raise ScheduleError(
                    f"{out.name} is vectorized by {width} along a dimension of {size}",
                    expected=f"a multiple of {width}",
                    given=str(size),
                    hint="use a narrower vector",
                )
            facts.update(((part, width), None) for part in parts)
    return list(facts)


def _bulk_facts(nodes: list[Node]) -> list[tuple[Expr, int]]:
    """Pairs (size, number): bulk copies need the size to be a multiple of this number of elements."""
    facts: dict[tuple[Expr, int], None] = {}
    for node in nodes:
        out = node.output
        if is_shifted_run(out):
            continue
        unit = elements_of_unit(out)
        axis = out.loop[-1]
        while axis not in out.maybe_root and axis.definition is not None:
            axis = axis.definition.inputs[-1]
        if not divides(unit, axis.extent):
            facts.update(((divisor, unit), None) for divisor in divisors(axis.extent) or ())
    return list(facts)


def _align_buffers(vectors: list[Node], domains: Domains, buffers: Buffers) -> None:
    """Records the alignment that vector accesses need of both buffers, before any buffer is made."""
    for node in vectors:
        out, source = node.output, node.tensor_inputs[0]
        width = as_int(domains.extent(out, out.loop[-1])) or 1
        stepped = picked_run(node, width)
        if stepped is not None:
            buffers.need_vectors(source, stepped.source_width(source.dtype.size, width))
        for tensor in (out, source):
            if tensor is source and (out.unaligned or not _moves_with_lane(node)):
                continue
            buffers.need_vectors(tensor, width, of_strides=not is_shifted(out))


def _moves_with_lane(node: Node) -> bool:
    """Whether the lanes of a vector are different elements of the source, not one broadcast element."""
    out = node.output
    if isinstance(node, Stored):
        return True
    if isinstance(node, Indexed):
        lane = lane_axis(out, as_int(out.loop[-1].extent) or 1)
        run = lane_run(node, lane) if lane is not None else None
        return run is not None and run.moves
    source_of = {c: p for p, c in operand_map(node, 0).items()}
    return any(
        root in source_of and not source_of[root].is_broadcast
        for root in ancestors(out.loop[-1], out.maybe_root)
    )


def _check_readers(ctx: Context) -> None:
    """Finds the tensors in memory of which each thread reads only what it wrote, so they need no barriers.

    Raises:
        ScheduleError: an output that is read in the kernel is not such a tensor.
    """
    shared = {p for p in k.THREAD_AXES if as_int(ctx.dims.get(p, const(1))) != 1}
    blocks = (*k.BLOCK_AXES, ParallelType.cluster_x)
    everywhere = shared | {p for p in blocks if as_int(ctx.dims.get(p, const(1))) != 1}
    reads: dict[TensorView, list[tuple[int, NodeIndices]]] = {}
    for node in ctx.nodes:
        for position, value in enumerate(node.inputs):
            if not isinstance(value, TensorView) or value.memory is MemoryType.local:
                continue
            if value.definition is not None:
                reads.setdefault(value, []).append((position, ctx.indices(node)))
    outputs = set(ctx.fusion.output_tensors())
    for tensor, uses in reads.items():
        used = shared if tensor.memory is MemoryType.shared else everywhere
        ctx.buffers.check_readers(tensor, uses, used, is_output=tensor in outputs)


def _allocations(ctx: Context) -> list[k.Stmt]:
    """Declares all local and shared buffers at the top of the kernel. The compiler finds live ranges."""
    found: list[k.Stmt] = []
    for node in ctx.nodes:
        for tensor in node.outputs:
            if isinstance(tensor, TensorView) and tensor.memory is not MemoryType.global_:
                found.append(k.Alloc(ctx.buffers.of(tensor)))
    found += [k.Alloc(buffer) for buffer in ctx.registers]
    found += [k.Alloc(buffer) for group in ctx.workspaces.values() for buffer in group]
    return found


# ---- parameters ------------------------------------------------------------------------------


def _global_tensors(ctx: Context) -> list[TensorView]:
    """The inputs that the kernel reads and the outputs that it writes, without repetition."""
    read = {v for node in ctx.nodes for v in node.inputs}
    inputs = [v for v in ctx.fusion.inputs if isinstance(v, TensorView) and not v.is_cpu and v in read]
    return list(
        dict.fromkeys((*inputs, *(t for t in ctx.fusion.output_tensors() if t.definition is not None)))
    )


def _between_blocks(ctx: Context) -> list[TensorView]:
    """The intermediate tensors in global memory, through which blocks pass results to each other."""
    outputs = set(ctx.fusion.output_tensors())
    made = [t for node in ctx.nodes for t in node.outputs if isinstance(t, TensorView)]
    return [t for t in made if t.memory is MemoryType.global_ and t not in outputs]


def _used_symbols(kernel: k.Kernel, buffers: list[k.Buffer]) -> list[Symbol]:
    """The size and stride symbols of the body, the launch and the buffers, sorted by name."""
    bound: set[Symbol] = set()
    used: dict[Symbol, None] = {}
    exprs: list[Expr] = [*kernel.grid, *kernel.block, *(b.size for b in buffers)]
    for stmt in k.walk(kernel.body):
        exprs += access.expressions(stmt)
        if (declared := access.declared_buffer(stmt)) is not None:
            exprs.append(declared.size)
        defined = access.defined_symbol(stmt)
        if defined is not None:
            bound.add(defined)
    for expr in exprs:
        used.update(dict.fromkeys(expr.free_symbols))
    builtin = {k.index_name(p) for p in (*k.THREAD_AXES, *k.BLOCK_AXES)}
    return sorted((s for s in used if s not in bound and s.name not in builtin), key=lambda s: s.name)


def _params(ctx: Context, kernel: k.Kernel) -> tuple[k.Param, ...]:
    outputs = set(ctx.fusion.output_tensors())
    made = [(tensor, tensor.definition.traits) for tensor in outputs if tensor.definition is not None]
    updated = {tensor for tensor, traits in made if traits.updates}
    whole = outputs - updated - {tensor for tensor, traits in made if traits.piece}
    homes = {output.alias for output in ctx.fusion.outputs}
    params: list[k.Param] = [
        k.TensorParam(ctx.buffers.of(t), t in whole, t in homes, t in updated) for t in _global_tensors(ctx)
    ]
    between = [ctx.buffers.of(t) for t in _between_blocks(ctx)]
    buffers = [*(ctx.buffers.of(t) for t in _global_tensors(ctx)), *between, *ctx.exchanges]
    params += [k.ScalarParam(s.name, kernel.index_dtype, s) for s in _used_symbols(kernel, buffers)]
    params += ctx.scalars.values()
    params += [k.WorkspaceParam(buffer) for buffer in between]
    params += [k.WorkspaceParam(buffer, zeroed=True) for buffer in ctx.exchanges]
    _check_parameters(params)
    return tuple(params)


def _check_parameters(params: Sequence[k.Param]) -> None:
    """Raises ScheduleError if the parameters take more bytes than a kernel can have.

    Schedulers never propose such a kernel; a user's schedule may.
    """
    end = packed_bytes(map(param_size, params))
    if end > MAX_PARAMETER_BYTES:
        raise ScheduleError(
            f"the kernel has {len(params)} parameters",
            expected=f"at most {MAX_PARAMETER_BYTES} bytes of them",
            given=f"{end} bytes",
            hint="execute the fusion without a schedule of your own, as several kernels",
        )


def _bind(kernel: k.Kernel, ctx: Context) -> Lowered:
    tensors = {ctx.buffers.of(t): t for t in _global_tensors(ctx)}
    scalars = {param: value for value, param in ctx.scalars.items()}
    symbols: dict[Symbol, SizeArgument | StrideArgument] = {}

    def symbol_argument(s: Symbol) -> SizeArgument | StrideArgument:
        stride = ctx.buffers.stride_symbols.get(s)
        if stride is not None:
            return StrideArgument(stride.tensor, stride.dim)
        return SizeArgument(ctx.domains.size_of(s))

    arguments: list[Argument] = []
    exprs: list[Expr] = [*kernel.grid, *kernel.block, kernel.shared_bytes]
    for param in kernel.params:
        if isinstance(param, k.TensorParam):
            arguments.append(TensorArgument(tensors[param.buffer]))
            exprs.append(param.buffer.size)
        elif isinstance(param, k.WorkspaceParam):
            arguments.append(WorkspaceArgument(param.buffer.size, param.buffer.dtype, param.zeroed))
            exprs.append(param.buffer.size)
        elif param.symbol is not None:
            arguments.append(symbol_argument(param.symbol))
            exprs.append(param.symbol)
        elif param.divisor is not None:
            sizes = {s: ctx.domains.size_of(s) for s in param.divisor.free_symbols}
            arguments.append(SizeArgument(k.multiplier(substitute(param.divisor, sizes))))
        else:
            arguments.append(ScalarArgument(scalars[param]))
    for expr in exprs:
        for s in sorted(expr.free_symbols, key=lambda s: s.name):
            symbols.setdefault(s, symbol_argument(s))
    for assumed, size in ctx.domains.assumptions:
        symbols.setdefault(assumed, SizeArgument(size))
    return Lowered(kernel, tuple(arguments), symbols)
