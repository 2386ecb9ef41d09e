"""Kernels written by hand, for the tests of the printer, the verifier and the simulator.

Each function returns a whole `Kernel`; its docstring says what the kernel computes, with tensors named as the
kernel's parameters are. All are correct as they stand: a test that wants a fault edits one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fusewright.core.dtype import DataType
from fusewright.core.enums import CacheOp, ParallelType
from fusewright.core.op import ReductionOp
from fusewright.kernel.exchange import grid_exchange_room
from fusewright.kernel.ir import (
    CLUSTER_INDEX,
    CLUSTER_RANK,
    TRUE,
    Alignment,
    Alloc,
    Barrier,
    BlockReduce,
    Buffer,
    ClusterReduce,
    Combine,
    Compute,
    Copy,
    For,
    GridBarrier,
    GridReduce,
    GridReduces,
    If,
    Imm,
    IndexValue,
    Init,
    Kernel,
    Let,
    LetValue,
    Operand,
    Param,
    Ref,
    ScalarParam,
    ScalarRef,
    Space,
    Stmt,
    TensorParam,
    WorkspaceParam,
    index_symbol,
)
from fusewright.ops.elementwise import CAST, ELEMENTWISE
from fusewright.ops.reductions import MAX, SUM, WELFORD
from fusewright.sym import Expr, Symbol, as_expr, ceildiv, const, eq, land, le, lt, symbol

BX, BY = ParallelType.block_x, ParallelType.block_y
GX, GY = ParallelType.grid_x, ParallelType.grid_y
ONE = const(1)

ADD, SUB, MUL, DIV, EXP, GT, WHERE = (
    ELEMENTWISE[name] for name in ("add", "sub", "mul", "div", "exp", "gt", "where")
)


def size(name: str, multiple_of: int = 1, hi: int = 2**31 - 1) -> tuple[Symbol, ScalarParam]:
    """A positive extent and the parameter that carries it."""
    value = symbol(name, lo=1, hi=hi, multiple_of=multiple_of)
    return value, ScalarParam(name, DataType.Index, value)


def tensor(name: str, dtype: DataType, elements: Expr, align: int = 0, output: bool = False) -> TensorParam:
    return TensorParam(Buffer(name, dtype, Space.GLOBAL, elements, align), output)


def local(name: str, dtype: DataType, elements: int = 1) -> Buffer:
    return Buffer(name, dtype, Space.LOCAL, const(elements))


def shared(name: str, dtype: DataType, elements: int, offset: int = 0) -> Buffer:
    return Buffer(name, dtype, Space.SHARED, const(elements), 16, const(offset))


def at(buffer: Buffer, index: Expr | int = 0) -> Ref:
    return Ref(buffer, as_expr(index))


def unrolled(name: str, count: int, body: Sequence[Stmt]) -> For:
    """A loop over 0 .. count-1 whose symbol is `symbol(name, hi=count - 1)`."""
    return For(symbol(name, hi=count - 1), const(count), tuple(body), unroll=True)


def kernel(
    name: str,
    params: Sequence[Param],
    body: Sequence[Stmt],
    grid: Sequence[Expr | int],
    block: Sequence[Expr | int],
    shared_bytes: int = 0,
    index_dtype: DataType = DataType.Int32,
    alignments: Sequence[Alignment] = (),
) -> Kernel:
    gx, gy, gz = (*map(as_expr, grid), ONE, ONE, ONE)[:3]
    bx, by, bz = (*map(as_expr, block), ONE, ONE, ONE)[:3]
    return Kernel(
        name, tuple(params), tuple(body), (gx, gy, gz), (bx, by, bz), const(shared_bytes), index_dtype,
        alignments=tuple(alignments),
    )  # fmt: skip


def pointwise(
    dtype: DataType = DataType.BFloat16,
    width: int = 8,
    threads: int = 128,
    index_dtype: DataType = DataType.Int32,
    cache: CacheOp = CacheOp.unspecified,
) -> Kernel:
    """T2 = (T0 + T1) * scale, elementwise over n0 (a multiple of `width`) elements, vectorised by `width`."""
    n, n_param = size("n0", multiple_of=width)
    compute, align = dtype.compute, width * dtype.size
    ins = [tensor("T0", dtype, n, align), tensor("T1", dtype, n, align)]
    out = tensor("T2", dtype, n, align, output=True)
    scale = ScalarParam("scale", DataType.Double)
    blocks = ceildiv(n, width * threads)
    index = symbol("i", multiple_of=width)
    lanes = [local("a", dtype, width), local("b", dtype, width), local("c", dtype, width)]
    total = local("total", compute)
    k = symbol("k", hi=width - 1)
    arithmetic: list[Stmt] = [
        Alloc(total),
        Compute(ADD, at(total), (at(lanes[0], k), at(lanes[1], k)), compute),
        Compute(MUL, at(lanes[2], k), (at(total), ScalarRef(scale)), compute),
    ]
    body = [
        Let(index, (index_symbol(GX, blocks) * threads + index_symbol(BX, const(threads))) * width),
        If(
            lt(index, n),
            (
                *map(Alloc, lanes),
                Copy(at(lanes[0]), at(ins[0].buffer, index), width, cache),
                Copy(at(lanes[1]), at(ins[1].buffer, index), width, cache),
                unrolled("k", width, arithmetic),
                Copy(at(out.buffer, index), at(lanes[2]), width, cache),
            ),
        ),
    ]
    buffers = [param.buffer for param in (*ins, out)]
    return kernel(
        "pointwise", [*ins, out, n_param, scale], body, [blocks], [threads], index_dtype=index_dtype,
        alignments=[Alignment(buffer, align) for buffer in buffers],
    )  # fmt: skip


def row_softmax(dtype: DataType = DataType.Half, threads: int = 128, per_thread: int = 4) -> Kernel:
    """T1 = softmax(T0, -1) for T0 of shape [rows, columns], columns <= threads * per_thread; a row a block.

    Thread t holds elements t, t + threads, ... of the row in registers.
    """
    rows, rows_param = size("rows")
    columns, columns_param = size("columns", hi=threads * per_thread)
    x, y = tensor("T0", dtype, rows * columns), tensor("T1", dtype, rows * columns, output=True)
    t, row = index_symbol(BX, const(threads)), index_symbol(GX, rows)
    k = symbol("k", hi=per_thread - 1)
    column = k * threads + t
    inside = lt(column, columns)
    raw = local("raw", dtype)
    value, top, total = (
        local(n, DataType.Float, s) for n, s in (("value", per_thread), ("top", 1), ("total", 1))
    )
    thread_top, thread_sum = local("thread_top", DataType.Float), local("thread_sum", DataType.Float)
    workspace = shared("workspace", DataType.Float, threads)
    load = If(
        inside,
        (
            Alloc(raw),
            Copy(at(raw), at(x.buffer, row * columns + column)),
            Compute(CAST, at(value, k), (at(raw),), DataType.Float),
            Combine(MAX, (at(thread_top),), (at(value, k),)),
        ),
    )
    exponent: tuple[Stmt, ...] = (
        Compute(SUB, at(value, k), (at(value, k), at(top)), DataType.Float),
        Compute(EXP, at(value, k), (at(value, k),), DataType.Float),
        Combine(SUM, (at(thread_sum),), (at(value, k),)),
    )
    result = local("result", dtype)
    store: tuple[Stmt, ...] = (
        Alloc(result),
        Compute(DIV, at(result), (at(value, k), at(total)), DataType.Float),
        Copy(at(y.buffer, row * columns + column), at(result)),
    )

    def reduce(op: ReductionOp, into: Buffer, source: Buffer) -> list[Stmt]:
        return [
            Alloc(into),
            Init(op, (at(into),)),
            BlockReduce(op, (at(into),), (at(source),), (BX,), TRUE, (workspace,)),
        ]

    body = [
        Alloc(value),
        Alloc(workspace),
        Alloc(thread_top),
        Init(MAX, (at(thread_top),)),
        unrolled("k", per_thread, [load]),
        *reduce(MAX, top, thread_top),
        Alloc(thread_sum),
        Init(SUM, (at(thread_sum),)),
        unrolled("k", per_thread, [If(inside, exponent)]),
        *reduce(SUM, total, thread_sum),
        unrolled("k", per_thread, [If(inside, store)]),
    ]
    return kernel(
        "row_softmax", [x, y, rows_param, columns_param], body, [rows], [threads], threads * 4,
    )  # fmt: skip


def column_sum(block_x: int = 32, block_y: int = 8, width: int = 4) -> Kernel:
    """T1[c] = sum of T0[:, c] for T0 of shape [rows, columns], columns a multiple of `width`; reduces y."""
    rows, rows_param = size("rows")
    columns, columns_param = size("columns", multiple_of=width)
    x = tensor("T0", DataType.Float, rows * columns, 4 * width)
    y = tensor("T1", DataType.Float, columns, 4 * width, output=True)
    blocks = ceildiv(columns, block_x * width)
    tx, ty = index_symbol(BX, const(block_x)), index_symbol(BY, const(block_y))
    column = symbol("column", multiple_of=width)
    steps = ceildiv(rows, block_y)
    step, k = symbol("step", hi=steps - 1), symbol("k", hi=width - 1)
    row = step * block_y + ty
    loaded, thread_sum, total = (local(n, DataType.Float, width) for n in ("loaded", "thread_sum", "total"))
    workspace = shared("workspace", DataType.Float, block_x * block_y * width)
    accumulate = If(
        land(lt(column, columns), lt(row, rows)),
        (
            Alloc(loaded),
            Copy(at(loaded), at(x.buffer, row * columns + column), width),
            unrolled("k", width, [Combine(SUM, (at(thread_sum, k),), (at(loaded, k),))]),
        ),
    )
    store = If(land(eq(ty, 0), lt(column, columns)), (Copy(at(y.buffer, column), at(total), width),))
    body = [
        Let(column, (index_symbol(GX, blocks) * block_x + tx) * width),
        Alloc(thread_sum),
        Init(SUM, (at(thread_sum),), width),
        For(step, steps, (accumulate,)),
        Alloc(workspace),
        Alloc(total),
        Init(SUM, (at(total),), width),
        BlockReduce(SUM, (at(total),), (at(thread_sum),), (BY,), TRUE, (workspace,), width),
        store,
    ]
    params = [x, y, rows_param, columns_param]
    return kernel("column_sum", params, body, [blocks], [block_x, block_y], block_x * block_y * width * 4)


def grid_exchange(blocks: int, turns: int = 1, name: str = "exchange") -> Buffer:
    """Where so many blocks say a float each."""
    return Buffer(
        name, DataType.Int, Space.GLOBAL, grid_exchange_room(const(blocks), ONE, [DataType.Float], turns)
    )


def grid_sum(threads: int = 128, blocks: int = 8) -> Kernel:
    """T1[0] = sum of T0, n0 elements, over `blocks` blocks."""
    n, n_param = size("n0")
    x, y = tensor("T0", DataType.Float, n), tensor("T1", DataType.Float, ONE, output=True)
    exchange = grid_exchange(blocks)
    steps = ceildiv(n, threads * blocks)
    step = symbol("step", hi=steps - 1)
    index = (step * blocks + index_symbol(GX, const(blocks))) * threads + index_symbol(BX, const(threads))
    value, thread_sum, total = (local(name, DataType.Float) for name in ("value", "thread_sum", "total"))
    workspace = shared("workspace", DataType.Float, threads)
    is_last = symbol("is_last", hi=1)
    accumulate = If(
        lt(index, n),
        (Alloc(value), Copy(at(value), at(x.buffer, index)), Combine(SUM, (at(thread_sum),), (at(value),))),
    )
    body = [
        Alloc(thread_sum),
        Init(SUM, (at(thread_sum),)),
        For(step, steps, (accumulate,)),
        Alloc(workspace),
        Alloc(total),
        Init(SUM, (at(total),)),
        GridReduce(
            SUM,
            (at(total),),
            (at(thread_sum),),
            (GX,),
            (BX,),
            TRUE,
            (workspace,),
            exchange,
            is_last,
        ),
        If(land(is_last, eq(index_symbol(BX, const(threads)), 0)), (Copy(at(y.buffer), at(total)),)),
    ]
    params = [x, y, WorkspaceParam(exchange, zeroed=True), n_param]
    return kernel("grid_sum", params, body, [blocks], [threads], threads * 4)


def grid_sums(threads: int = 32, blocks: int = 4) -> Kernel:
    """T1[0] = sum of T0, threads * blocks elements, and T2[0] = the largest; each in the last block."""
    n = threads * blocks
    x, y, z = (tensor(f"T{i}", DataType.Float, const(n if i == 0 else 1), output=i > 0) for i in range(3))
    place = index_symbol(GX, const(blocks)) * threads + index_symbol(BX, const(threads))
    value = local("value", DataType.Float)
    first = eq(index_symbol(BX, const(threads)), 0)
    body: list[Stmt] = [Alloc(value), Copy(at(value), at(x.buffer, place))]
    scratch, reductions, stores = [], [], []
    for i, (op, out) in enumerate(((SUM, y), (MAX, z))):
        total, is_last = local(f"total{i}", DataType.Float), symbol(f"is_last{i}", hi=1)
        exchange = grid_exchange(blocks, name=f"exchange{i}")
        scratch.append(WorkspaceParam(exchange, zeroed=True))
        body += [Alloc(total), Init(op, (at(total),))]
        along = (at(total),), (at(value),), (GX,), (BX,), TRUE, (), exchange, is_last
        reductions.append(GridReduce(op, *along))
        stores.append(If(land(is_last, first), (Copy(at(out.buffer), at(total)),)))
    body += [GridReduces(tuple(reductions)), *stores]
    return kernel("grid_sums", [x, y, z, *scratch], body, [blocks], [threads], 0)


def cluster_rows(threads: int = 64, cluster: int = 4) -> Kernel:
    """T1 = T0 - the sum of its row: rows of threads * cluster elements, each held by a cluster."""
    rows, rows_param = size("rows")
    columns = threads * cluster
    x, y = (tensor(name, DataType.Float, rows * columns, output=name == "T1") for name in ("T0", "T1"))
    row, rank = symbol(CLUSTER_INDEX, hi=rows - 1), symbol(CLUSTER_RANK, hi=cluster - 1)
    block = index_symbol(GX, rows * cluster)
    value, total = local("value", DataType.Float), local("total", DataType.Float)
    exchange = shared("exchange", DataType.Float, 2 * (threads // 32) * cluster)
    index = row * columns + rank * threads + index_symbol(BX, const(threads))
    body = [
        Let(row, block // cluster),
        Let(rank, block % cluster),
        Alloc(value),
        Alloc(total),
        Alloc(exchange),
        Copy(at(value), at(x.buffer, index)),
        Init(SUM, (at(total),)),
        ClusterReduce(SUM, (at(total),), (at(value),), (BX,), TRUE, (), (exchange,)),
        Compute(SUB, at(value), (at(value), at(total)), DataType.Float),
        Copy(at(y.buffer, index), at(value)),
    ]
    grid, shared_bytes = [rows * cluster], 2 * (threads // 32) * cluster * 4
    made = kernel("cluster_rows", [x, y, rows_param], body, grid, [threads], shared_bytes)
    return replace(made, cluster=cluster)


def grid_reverse(threads: int = 32, blocks: int = 4, with_barrier: bool = True) -> Kernel:
    """T1[n - 1 - i] = T0[i] - sum of T0, for n = threads * blocks: twice all blocks wait for each other.

    Without the barrier it is a race.
    """
    n = threads * blocks
    x, y = tensor("T0", DataType.Float, const(n)), tensor("T1", DataType.Float, const(n), output=True)
    between = Buffer("between", DataType.Float, Space.GLOBAL, const(n))
    exchange = grid_exchange(blocks, turns=2)
    semaphore = Buffer("semaphore", DataType.Int32, Space.GLOBAL, ONE)
    index = index_symbol(GX, const(blocks)) * threads + index_symbol(BX, const(threads))
    value, total = local("value", DataType.Float), local("total", DataType.Float)
    everywhere = GridReduce(SUM, (at(total),), (at(value),), (GX,), (BX,), TRUE, (), exchange, None)
    body = [
        Alloc(value),
        Alloc(total),
        Copy(at(value), at(x.buffer, index)),
        Init(SUM, (at(total),)),
        everywhere,
        Compute(SUB, at(value), (at(value), at(total)), DataType.Float),
        Copy(at(between, index), at(value)),
        *([GridBarrier(semaphore)] if with_barrier else []),
        Copy(at(value), at(between, n - 1 - index)),
        Copy(at(y.buffer, index), at(value)),
    ]
    zeroed = [WorkspaceParam(buffer, zeroed=True) for buffer in (exchange, semaphore)]
    params = [x, y, WorkspaceParam(between), *zeroed]
    return kernel("grid_reverse", params, body, [blocks], [threads], 0)


def row_welford(threads: int = 96, run: int = 1) -> Kernel:
    """T1 = mean, T2 = sum of squared deviations of each row of T0 [rows, columns], `run` columns at once."""
    rows, rows_param = size("rows")
    columns, columns_param = size("columns", multiple_of=run)
    x = tensor("T0", DataType.Float, rows * columns)
    mean, m2 = (tensor(name, DataType.Float, rows, output=True) for name in ("T1", "T2"))
    t, row = index_symbol(BX, const(threads)), index_symbol(GX, rows)
    steps = ceildiv(columns, threads * run)
    step = symbol("step", hi=steps - 1)
    value = local("value", DataType.Float, run)
    dtypes = WELFORD.state_dtypes(DataType.Float)
    states = tuple(zip(WELFORD.states, dtypes))
    mine = [local(f"thread_{name}", dtype) for name, dtype in states]
    total = [local(f"row_{name}", dtype) for name, dtype in states]
    workspace = [
        shared(f"shared_{name}", dtype, threads, 8 * threads * i) for i, (name, dtype) in enumerate(states)
    ]
    column = (step * threads + t) * run
    accumulate = If(
        lt(column, columns),
        (
            Alloc(value),
            Copy(at(value), at(x.buffer, row * columns + column), run),
            Combine(WELFORD, tuple(map(at, mine)), (at(value),), run),
        ),
    )
    body = [
        *map(Alloc, mine),
        Init(WELFORD, tuple(map(at, mine))),
        For(step, steps, (accumulate,)),
        *map(Alloc, workspace),
        *map(Alloc, total),
        Init(WELFORD, tuple(map(at, total))),
        BlockReduce(WELFORD, tuple(map(at, total)), tuple(map(at, mine)), (BX,), TRUE, tuple(workspace)),
        If(
            eq(t, 0),
            (Copy(at(mean.buffer, row), at(total[0])), Copy(at(m2.buffer, row), at(total[1]))),
        ),
    ]
    return kernel(
        "row_welford", [x, mean, m2, rows_param, columns_param], body, [rows], [threads], 3 * 8 * threads
    )


def block_reverse(threads: int = 64, width: int = 4, with_barrier: bool = True) -> Kernel:
    """T1 = T0 with each run of threads * width elements reversed run-wise, in vectors, through shared memory.

    Thread t writes its vector of T0 to shared memory and reads that of thread `threads - 1 - t`; n0 is a
    multiple of threads * width. Without the barrier it is a race.
    """
    n, n_param = size("n0", multiple_of=threads * width)
    x = tensor("T0", DataType.Float, n, 4 * width)
    y = tensor("T1", DataType.Float, n, 4 * width, output=True)
    t = index_symbol(BX, const(threads))
    start = symbol("start", multiple_of=threads * width)
    staged, held = shared("staged", DataType.Float, threads * width), local("held", DataType.Float, width)
    body: list[Stmt] = [
        Let(start, index_symbol(GX, n // (threads * width)) * (threads * width)),
        Alloc(staged),
        Alloc(held),
        Copy(at(staged, t * width), at(x.buffer, start + t * width), width),
        *([Barrier()] if with_barrier else []),
        Copy(at(held), at(staged, (threads - 1 - t) * width), width),
        Copy(at(y.buffer, start + t * width), at(held), width),
    ]
    grid = [n // (threads * width)]
    return kernel("block_reverse", [x, y, n_param], body, grid, [threads], threads * width * 4)


def _elementwise(
    name: str,
    ins: Sequence[TensorParam],
    out: TensorParam,
    n_param: ScalarParam,
    index: Symbol,
    body: Sequence[Stmt],
    extra: Sequence[Param] = (),
    index_dtype: DataType = DataType.Int32,
) -> Kernel:
    """`body` for each `index` below n0, a thread an element."""
    assert n_param.symbol is not None
    threads, n = 128, n_param.symbol
    blocks = ceildiv(n, threads)
    position = index_symbol(GX, blocks) * threads + index_symbol(BX, const(threads))
    guarded = If(lt(index, n), tuple(body))
    return kernel(
        name, [*ins, out, n_param, *extra], [Let(index, position), guarded], [blocks], [threads],
        index_dtype=index_dtype,
    )  # fmt: skip


def complex_product(dtype: DataType = DataType.ComplexFloat) -> Kernel:
    """T2 = T0 * T1 + (0.5 - 2j) for complex vectors of n0 elements."""
    n, n_param = size("n0")
    a, b = tensor("T0", dtype, n), tensor("T1", dtype, n)
    out = tensor("T2", dtype, n, output=True)
    i, product, result = symbol("i"), local("product", dtype), local("result", dtype)
    body = [
        Alloc(product),
        Alloc(result),
        Compute(MUL, at(product), (at(a.buffer, i), at(b.buffer, i)), dtype),
        Compute(ADD, at(result), (at(product), Imm(0.5 - 2j, dtype)), dtype),
        Copy(at(out.buffer, i), at(result)),
    ]
    return _elementwise("complex_product", [a, b], out, n_param, i, body)


def cast(source: DataType, target: DataType, width: int = 1) -> Kernel:
    """T1 = T0 converted from `source` to `target`, n0 elements, by way of both types' compute types."""
    n, n_param = size("n0")
    x, y = tensor("T0", source.in_memory, n), tensor("T1", target.in_memory, n, output=True)
    i, value, result = symbol("i"), local("value", source), local("result", target)
    body = [
        Alloc(value),
        Alloc(result),
        _moved(at(value), at(x.buffer, i)),
        Compute(CAST, at(result), (at(value),), source.compute),
        _moved(at(y.buffer, i), at(result)),
    ]
    return _elementwise("cast", [x], y, n_param, i, body)


def _moved(dst: Ref, src: Ref) -> Stmt:
    same = src.buffer.dtype is dst.buffer.dtype
    return Copy(dst, src) if same else Compute(CAST, dst, (src,), src.buffer.dtype.compute)


def iota_select(index_dtype: DataType = DataType.Int) -> Kernel:
    """T1 = where(T0 > 0, arange(n0), limit), Int, for Float T0 and an Int scalar parameter `limit`."""
    n, n_param = size("n0")
    x, y = tensor("T0", DataType.Float, n), tensor("T1", DataType.Int, n, output=True)
    limit = ScalarParam("limit", DataType.Int)
    i, positive, result = symbol("i"), local("positive", DataType.Bool), local("result", DataType.Int)
    choices: tuple[Operand, ...] = (at(positive), IndexValue(i, DataType.Int), ScalarRef(limit))
    body = [
        Alloc(positive),
        Alloc(result),
        Compute(GT, at(positive), (at(x.buffer, i), Imm(0.0, DataType.Float)), DataType.Float),
        Compute(WHERE, at(result), choices, DataType.Int),
        Copy(at(y.buffer, i), at(result)),
    ]
    return _elementwise("iota_select", [x], y, n_param, i, body, [limit], index_dtype)


def gathered_rows(index: DataType = DataType.Int, index_dtype: DataType = DataType.Int32) -> Kernel:
    """T2[i, :] = T0[T1[i], :] where T0 [rows, columns] has that row, else `pad`; columns <= 512."""
    rows, rows_param = size("rows", hi=2**31 - 1)
    count, count_param = size("count")
    columns, columns_param = size("columns", multiple_of=4, hi=512)
    x, wanted = tensor("T0", DataType.Float, rows * columns, 16), tensor("T1", index, count)
    y = tensor("T2", DataType.Float, count * columns, 16, output=True)
    pad = ScalarParam("pad", DataType.Float)
    i, column = index_symbol(GX, count), index_symbol(BX, const(128)) * 4
    row, loaded, values = (
        symbol("row", lo=-1, hi=rows - 1),
        local("loaded", index),
        local("values", DataType.Float, 4),
    )
    inside = lt(column, columns)
    body = [
        Alloc(loaded),
        Copy(at(loaded), at(wanted.buffer, i), pred=inside, fill=Imm(0, index)),
        LetValue(row, at(loaded), rows, inside),
        Alloc(values),
        Copy(
            at(values), at(x.buffer, row * columns + column), 4, pred=le(0, row), fill=ScalarRef(pad),
            fill_is_value=True,
        ),
        Copy(at(y.buffer, i * columns + column), at(values), 4, pred=inside),
    ]  # fmt: skip
    params = [x, wanted, y, rows_param, count_param, columns_param, pad]
    return kernel("gathered_rows", params, body, [count], [128], index_dtype=index_dtype)


def padded(cache: CacheOp = CacheOp.unspecified) -> Kernel:
    """T1 = T2 = T3 = T0 [n0] with 4 elements of 2.5 before it: in vectors from memory to memory, by way of
    registers, and by elements.
    """
    n, n_param = size("n0", multiple_of=4)
    x = tensor("T0", DataType.Float, n, 16)
    outs = [tensor(f"T{i}", DataType.Float, n + 4, 16, output=True) for i in (1, 2, 3)]
    blocks = ceildiv(n + 4, 4 * 64)
    i, k = symbol("i", multiple_of=4), symbol("k", hi=3)
    fill, held = local("fill", DataType.Float), local("held", DataType.Float, 4)
    before = lt(3, i)

    def pad(dst: Ref, src: Ref, width: int, cache: CacheOp = CacheOp.unspecified) -> Copy:
        return Copy(dst, src, width, cache, before, at(fill), fill_is_value=True)

    body: list[Stmt] = [
        Let(i, (index_symbol(GX, blocks) * 64 + index_symbol(BX, const(64))) * 4),
        If(
            lt(i, n + 4),
            (
                Alloc(fill),
                Copy(at(fill), Imm(2.5, DataType.Float)),
                Alloc(held),
                pad(at(outs[0].buffer, i), at(x.buffer, i - 4), 4, cache),
                Copy(at(held), at(x.buffer, i - 4), 4, cache, before),
                pad(at(outs[1].buffer, i), at(held), 4, cache),
                unrolled("k", 4, [pad(at(outs[2].buffer, i + k), at(x.buffer, i + k - 4), 1)]),
            ),
        ),
    ]
    return kernel("padded", [x, *outs, n_param], body, [blocks], [64])
