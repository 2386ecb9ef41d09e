"""Whether the text of a kernel means what its IR says: `check_kernel`.

The text is parsed by C++'s grammar and walked beside the IR, statement by statement: every declaration, loop,
guard, address, conversion, constant and computation must be the IR's. What names stand for is read off the
text's declarations, and the IR decides what they must hold.
"""

from __future__ import annotations

import re
from dataclasses import replace

from fusewright.core.dtype import DataType
from fusewright.core.enums import CacheOp
from fusewright.cuda.printer import CudaSource
from fusewright.kernel.access import written_buffers
from fusewright.kernel.ir import (
    TRUE,
    Alloc,
    Arrive,
    Barrier,
    Bind,
    BlockReduce,
    BlockScan,
    Buffer,
    BulkCopy,
    ClusterReduce,
    Combine,
    Compute,
    Convert,
    Copy,
    For,
    GridBarrier,
    GridReduce,
    GridReduces,
    GridScan,
    Hold,
    If,
    Init,
    InitMbarriers,
    IssueLoads,
    Kernel,
    Let,
    LetMisalignment,
    LetValue,
    ProxyFence,
    Ref,
    Role,
    Roles,
    ScalarParam,
    Scatter,
    Space,
    TensorParam,
    Wait,
    WaitForCopies,
    Window,
    operand_dtype,
    spares_registers,
    walk,
)
from fusewright.sym import ZERO, Expr, as_int, lt
from tests.readback.collectives import (
    read_beginnings,
    read_block_reduce,
    read_block_scan,
    read_cluster_reduce,
    read_grid_barrier,
    read_grid_reduce,
    read_grid_reduces,
    read_grid_scan,
)
from tests.readback.indices import Mismatch
from tests.readback.operands import (
    Matcher,
    check_address,
    check_computed,
    check_constant,
    check_element,
    check_operand,
    is_variable,
    match,
)
from tests.readback.reader import Lines, Reader, Readers
from tests.readback.syntax import Expression, SyntaxFault, parse_form
from tests.readback.waits import (
    read_arrive,
    read_barrier,
    read_bulk_copy,
    read_init_mbarriers,
    read_proxy_fence,
    read_role,
    read_roles,
    read_wait,
    read_wait_for_copies,
)

_CACHES = {
    "": CacheOp.unspecified,
    "_ca": CacheOp.all_levels,
    "_cs": CacheOp.streaming,
    "_cs_word": CacheOp.streaming,
    "_cg": CacheOp.global_,
    "_el": CacheOp.evict_last,
}
_MOVE = re.compile(r"fw::(load|store_shared|store|copy)(_cs_word|_c[asg]|_el)?(_or)?")


def check_kernel(kernel: Kernel, source: CudaSource) -> None:
    """AssertionError, with the statement and the text, unless `source` is the text of `kernel`."""
    reader = Reader(kernel, source, STATEMENTS, read_beginnings)
    try:
        reader.read()
    except (Mismatch, SyntaxFault) as problem:
        at = f"\nat: {reader.line}\nfor: {reader.statement}" if reader.line else ""
        raise AssertionError(f"the text is not the kernel: {problem}{at}\n\n{source.kernel}") from None


# ---- one function a class of statements --------------------------------------------------------------------


def _alloc(reader: Reader, stmt: Alloc, lines: Lines) -> None:
    buffer, names = stmt.buffer, reader.names
    kind = names.type(buffer.dtype)
    found = lines.peek()
    if buffer.space is Space.SHARED:
        assert buffer.offset is not None
        const, given, name, count, value = lines.take("declare").parts
        if const or given != f"{kind}*" or count is not None or value is None:
            raise Mismatch(f"no pointer for {buffer.name}")
        if value[:3] != ("call", "reinterpret_cast", (f"{kind}*",)) or len(value[3]) != 1:
            raise Mismatch(f"no place of {buffer.name}")
        place = value[3][0]
        if not reader.has_arena:
            raise Mismatch("there is no arena")
        if place[:3] == ("binary", "+", ("name", "fw_smem")):
            names.index(place[3], buffer.offset)
        elif place != ("name", "fw_smem") or as_int(buffer.offset) != 0:
            raise Mismatch(f"the place of {buffer.name} is byte {buffer.offset}")
        names.declare(name, buffer, kind)
        return
    if is_variable(buffer) and (found is None or found.kind != "declare" or found.parts[4] is not None):
        reader.undeclared.add(buffer)
        return
    const, given, name, count, value = lines.take("declare").parts
    size = None if is_variable(buffer) else as_int(buffer.size)
    if const or (given, count) != (kind, size) or value is not None:
        raise Mismatch(f"no declaration of {buffer.name}")
    names.declare(name, buffer, kind)


def _let(reader: Reader, stmt: Let, lines: Lines) -> None:
    const, kind, name, count, value = lines.take("declare").parts
    if not const or kind != reader.index or count is not None or value is None:
        raise Mismatch(f"no constant {stmt.symbol.name}")
    reader.names.index(value, stmt.value)
    reader.names.define(name, kind, stmt.symbol)


def _let_value(reader: Reader, stmt: LetValue, lines: Lines) -> None:
    const, kind, name, count, value = lines.take("declare").parts
    if not const or kind != reader.index or count is not None or value is None:
        raise Mismatch(f"no constant {stmt.symbol.name}")
    if stmt.symbol.lo == 0:
        check_operand(reader.names, value, stmt.value, DataType.Index)
        reader.names.define(name, kind, stmt.symbol)
        return
    if stmt.pred is not TRUE:
        if value[0] != "?:" or value[3] != ("unary", "-", ("int", 1, "int")):
            raise Mismatch("-1 where the predicate does not hold is expected")
        reader.names.index(value[1], stmt.pred)
        value = value[2]
    if value[:3] != ("call", "fw::index_below", (reader.index,)) or len(value[3]) != 2:
        raise Mismatch("no check of a loaded index")
    check_operand(reader.names, value[3][0], stmt.value, operand_dtype(stmt.value))
    reader.names.index(value[3][1], stmt.extent)
    reader.names.define(name, kind, stmt.symbol)


def _let_misalignment(reader: Reader, stmt: LetMisalignment, lines: Lines) -> None:
    const, kind, name, count, value = lines.take("declare").parts
    if not const or kind != reader.index or count is not None or value is None:
        raise Mismatch(f"no constant {stmt.symbol.name}")
    if value[:3] != ("call", "fw::misalignment", (stmt.width,)) or len(value[3]) != 1:
        raise Mismatch(f"no misalignment in vectors of {stmt.width}")
    check_address(reader.names, value[3][0], Ref(stmt.buffer, ZERO))
    reader.names.define(name, kind, stmt.symbol)


def _window(reader: Reader, stmt: Window, lines: Lines) -> None:
    [e] = lines.take("call").parts
    if e[:3] != ("call", "fw::window", (stmt.width,)) or len(e[3]) != 3:
        raise Mismatch(f"no window of {stmt.width} elements")
    check_address(reader.names, e[3][0], stmt.dst)
    check_address(reader.names, e[3][1], stmt.src)
    reader.names.index(e[3][2], stmt.offset)


def _convert(reader: Reader, stmt: Convert, lines: Lines) -> None:
    [e] = lines.take("call").parts
    if e[:3] != ("call", "fw::convert", (stmt.width,)) or len(e[3]) != 2:
        raise Mismatch(f"no conversion of {stmt.width} elements")
    check_address(reader.names, e[3][0], stmt.dst)
    check_address(reader.names, e[3][1], stmt.src)


def _for(reader: Reader, stmt: For, lines: Lines) -> None:
    if stmt.unroll:
        lines.take("unroll")
    loop = lines.take("for")
    kind, name, first, extent = loop.parts
    if kind != reader.index or first != ("int", 0, "int"):
        raise Mismatch("the loop does not count from 0 in the index type")
    reader.names.index(extent, stmt.extent)
    with reader.scope():
        reader.names.define(name, kind, stmt.symbol)
        reader.body(stmt.body, Lines(reader, loop.body))


def _if(reader: Reader, stmt: If, lines: Lines) -> None:
    guard = lines.take("if")
    reader.names.index(guard.parts[0], stmt.cond)
    with reader.scope():
        reader.body(stmt.body, Lines(reader, guard.body))


def _bind(reader: Reader, stmt: Bind, lines: Lines) -> None:
    written = {buffer for inner in walk(stmt.body) for buffer in written_buffers(inner)}
    inside = Lines(reader, lines.take("block").body)
    with reader.scope():
        names = reader.names
        given: list[str] = []
        for wanted in stmt.names:
            const, kind, name, count, value = inside.take("declare").parts
            if count is not None or value is not None:
                raise Mismatch(f"{name} has a value before its choice")
            given.append(name)
            if not isinstance(wanted, ScalarParam):
                of = names.type(wanted.buffer.dtype)
                if kind != f"{of}*" or const == (wanted.buffer in written):
                    raise Mismatch(f"a pointer to {of} is expected")
                names.declare(name, wanted.buffer, of)
            elif const or kind != names.type(wanted.dtype):
                raise Mismatch(f"{wanted.name} is {wanted.dtype.name}")
            elif wanted.symbol is None:
                names.declare(name, wanted, kind)
            else:
                names.define(name, kind, wanted.symbol)
        _choices(reader, stmt, given, range(len(stmt.choices)), inside)
        reader.body(stmt.body, inside)


def _choices(reader: Reader, stmt: Bind, given: list[str], among: range, lines: Lines) -> None:
    if len(among) > 1:
        half = len(among) // 2
        guard = lines.take("if")
        reader.names.index(guard.parts[0], lt(stmt.position, stmt.starts[among[half] - 1]))
        for part, body in ((among[:half], guard.body), (among[half:], lines.take("else").body)):
            inner = Lines(reader, body)
            _choices(reader, stmt, given, part, inner)
            inner.end()
        return
    for name, param in zip(given, stmt.choices[among[0]]):
        target, value = lines.take("assign").parts
        if target != ("name", name):
            raise Mismatch(f"{name} is expected to be chosen")
        if isinstance(param, ScalarParam) and param.symbol is not None:
            reader.names.index(value, param.symbol)
        else:
            what = param if isinstance(param, ScalarParam) else param.buffer
            if value[0] != "name" or reader.names.memory.get(value[1], (None,))[0] is not what:
                raise Mismatch(f"{name} is not the one of choice {among[0]}")


def _copy(reader: Reader, stmt: Copy, lines: Lines) -> None:
    dst, src = stmt.dst, stmt.src
    if stmt.pred is not TRUE and stmt.fill is None:
        guard = lines.take("if")
        reader.names.index(guard.parts[0], stmt.pred)
        inner = Lines(reader, guard.body)
        _copy(reader, replace(stmt, pred=TRUE), inner)
        inner.end()
        return
    if stmt.asynchronous:
        [e] = lines.take("call").parts
        if e[:3] != ("call", "fw::copy_async", (stmt.width,)) or len(e[3]) != 2:
            raise Mismatch("no copy that goes on by itself")
        assert isinstance(src, Ref)
        check_address(reader.names, e[3][0], dst)
        check_address(reader.names, e[3][1], src)
        return
    following = lines.peek()
    if following is not None and following.kind in ("call", "block") and isinstance(src, Ref):
        _move(reader, stmt, src, lines)
        return
    spaces = {dst.buffer.space, src.buffer.space} if isinstance(src, Ref) else set()
    if stmt.cache is not CacheOp.unspecified and Space.GLOBAL in spaces:
        raise Mismatch("the cache hint is lost")
    if stmt.width > 1 and any(isinstance(o, Ref) and o.buffer is dst.buffer for o in (src, stmt.fill)):
        raise Mismatch("elements are stored before all are read")
    with reader.each(stmt.width, lines) as (each, w):
        _filled(reader, stmt, reader.assigned(each, dst, w), w)


def _scatter(reader: Reader, stmt: Scatter, lines: Lines) -> None:
    """A store where any value may stay, else an addition of all elements of a vector at once."""
    if stmt.op is None:
        _copy(reader, Copy(stmt.dst, stmt.src, stmt.width, pred=stmt.pred), lines)
        return
    if stmt.pred is not TRUE:
        guard = lines.take("if")
        reader.names.index(guard.parts[0], stmt.pred)
        inner = Lines(reader, guard.body)
        _scatter(reader, replace(stmt, pred=TRUE), inner)
        inner.end()
        return
    _, function, template, operands = lines.take("call").parts[0]
    if function != f"fw::atomic_{stmt.op.name}" or template != ((stmt.width,) if stmt.width > 1 else ()):
        raise Mismatch(f"no addition of {stmt.width} elements at once")
    check_address(reader.names, operands[0], stmt.dst)
    if stmt.width > 1:
        assert isinstance(stmt.src, Ref)
        check_address(reader.names, operands[1], stmt.src)
    else:
        check_operand(reader.names, operands[1], stmt.src, stmt.dst.buffer.dtype)


def _filled(reader: Reader, stmt: Copy, value: Expression, offset: Expr) -> None:
    """`value` is one element of the source, or the fill where the predicate does not hold."""
    dtype = stmt.dst.buffer.dtype
    if stmt.fill is not None and value[:2] == ("call", "fw::read_if"):
        pred, source, fill = value[3]
        assert isinstance(stmt.src, Ref)
        if stmt.src.buffer in written_by(reader.kernel) or stmt.src.buffer.dtype is not dtype:
            raise Mismatch("no element of another type, or of what the kernel writes, is read so")
        reader.names.index(pred, stmt.pred)
        check_address(reader.names, source, replace(stmt.src, index=stmt.src.index + offset))
        check_operand(reader.names, fill, stmt.fill, dtype)
        return
    if stmt.fill is not None:
        if value[0] != "?:":
            raise Mismatch("no fill")
        reader.names.index(value[1], stmt.pred)
        check_operand(reader.names, value[3], stmt.fill, dtype)
        value = value[2]
    check_operand(reader.names, value, stmt.src, dtype, offset)


def written_by(kernel: Kernel) -> set[Buffer]:
    """What it stores to, or may, as an output lies there."""
    written = {buffer for stmt in walk(kernel.body) for buffer in written_buffers(stmt)}
    homes = (p.buffer for p in kernel.params if isinstance(p, TensorParam) and (p.is_output or p.is_home))
    return written.union(homes)


def _move(reader: Reader, stmt: Copy, src: Ref, lines: Lines) -> None:
    """One call, or a load into an array and a store from it."""
    names = reader.names
    following = lines.peek()
    if following is not None and following.kind == "block":
        inner = Lines(reader, lines.take("block").body)
        _, kind, partial, count, value = inner.take("declare").parts
        if (kind, count, value) != (names.type(src.buffer.dtype), stmt.width, None):
            raise Mismatch("no array for the vector")
        if src.buffer.space is Space.LOCAL:
            with reader.each(stmt.width, inner) as (each, w):
                target, value = each.take("assign").parts
                reader.check_partial(target, partial, w)
                _filled(reader, stmt, value, w)
        else:
            to, from_ = _moved(reader, inner, stmt, "load", src.buffer)
            check_address(names, from_, src)
            if to != ("name", partial):
                raise Mismatch(f"no load into {partial}")
        to, from_ = _moved(reader, inner, stmt, "store", stmt.dst.buffer)
        check_address(names, to, stmt.dst)
        if from_ != ("name", partial):
            raise Mismatch(f"no store from {partial}")
        inner.end()
        return
    if stmt.dst.buffer.space is Space.LOCAL:
        to, from_ = _moved(reader, lines, stmt, "load", src.buffer)
    elif stmt.fill is not None:
        raise Mismatch("no fill")
    elif src.buffer.space is Space.LOCAL:
        to, from_ = _moved(reader, lines, stmt, "store", stmt.dst.buffer)
    else:
        to, from_ = _moved(reader, lines, stmt, "copy", None)
    check_address(names, to, stmt.dst)
    check_address(names, from_, src)


def _moved(
    reader: Reader, lines: Lines, stmt: Copy, kind: str, memory: Buffer | None
) -> tuple[Expression, Expression]:
    """(destination, source) of the next statement: it moves all elements, with the hint if that is global.

    A load fills where the predicate does not hold.
    """
    _, function, template, operands = lines.take("call").parts[0]
    found = _MOVE.fullmatch(function)
    if kind == "store" and memory is not None and memory.space is Space.SHARED:
        kind = "store_shared"
    if found is None or found[1] != kind or template != (stmt.width,):
        raise Mismatch(f"no {kind} of {stmt.width} elements")
    fills = kind == "load" and stmt.fill is not None
    if bool(found[3]) != fills or len(operands) != (4 if fills else 2):
        raise Mismatch("no fill" if fills else "a fill that the kernel does not have")
    if fills:
        assert stmt.fill is not None
        reader.names.index(operands[2], stmt.pred)
        check_operand(reader.names, operands[3], stmt.fill, stmt.dst.buffer.dtype)
    hinted = memory is not None and memory.space is Space.GLOBAL
    if _CACHES[found[2] or ""] is not (stmt.cache if hinted else CacheOp.unspecified):
        raise Mismatch(f"a cache hint other than {stmt.cache.name}")
    if kind == "copy" and stmt.cache is not CacheOp.unspecified:
        raise Mismatch("the cache hint is lost")
    return operands[0], operands[1]


def _compute(reader: Reader, stmt: Compute, lines: Lines) -> None:
    op = stmt.op
    value = reader.assigned(lines, stmt.dst)
    matchers = [
        lambda e, arg=arg, dtype=dtype: check_operand(reader.names, e, arg, dtype)  # type: ignore[misc]
        for arg, dtype in zip(stmt.args, op.operand_dtypes(stmt.dtype))
    ]
    result = op.result_of(stmt.dtype), stmt.dst.buffer.dtype
    spelling = stmt.spelling
    if spares_registers(reader.kernel):
        spelling = spelling.sparing or spelling
    check_computed(reader.names, value, spelling.cuda, stmt.dtype, result, matchers)


def _init(reader: Reader, stmt: Init, lines: Lines) -> None:
    dtype = reader.reduced(stmt.op, stmt.dst)
    values = list(zip(stmt.dst, stmt.op.identity(dtype), stmt.op.state_dtypes(dtype)))
    with reader.each(stmt.width, lines) as (each, w):
        for ref, value, state in values:
            check_constant(reader.names, reader.assigned(each, ref, w), value, state, state)


def _combine(reader: Reader, stmt: Combine, lines: Lines) -> None:
    op, names = stmt.op, reader.names
    into: list[Matcher] = [lambda e, ref=ref: check_element(names, e, ref) for ref in stmt.dst]  # type: ignore[misc]
    dtype = reader.reduced(op, stmt.dst)
    found = lines.peek()
    if stmt.pred is not TRUE and found is not None and found.kind == "if":
        names.index(lines.take("if").parts[0], stmt.pred)
        inner = Lines(reader, found.body)
        _combine(reader, replace(stmt, pred=TRUE), inner)
        inner.end()
        return
    if stmt.width > 1:
        if stmt.pred is not TRUE:
            raise Mismatch("the predicate is lost")
        [run] = stmt.src
        assert isinstance(run, Ref)
        form = parse_form(op.run_of(run.buffer.dtype), (("W", str(stmt.width)),))
        operands: dict[str, Matcher] = {f"a{i}": matcher for i, matcher in enumerate(into)}
        operands["x"] = lambda e: check_address(names, e, run)
        match(form, lines.take("call").parts[0], operands)
        return
    if stmt.pred is TRUE:
        reader.combined(op, dtype, lines, into, reader.contributions(op, dtype, stmt.src), stmt.in_order)
        return
    if any(isinstance(operand, Ref) and operand.buffer.space is not Space.LOCAL for operand in stmt.src):
        raise Mismatch("memory is read where the predicate does not hold")
    # dst = fw::select(pred, the combination, dst)
    target, value = lines.take("assign").parts
    if value[:3] != ("call", "fw::select", ()) or len(value[3]) != 3:
        raise Mismatch("the predicate is lost")
    pred, combination, other = value[3]
    names.index(pred, stmt.pred)
    into[0](other)
    reader.check_combined(
        op, dtype, ("assign", target, combination), into, reader.contributions(op, dtype, stmt.src)
    )


def _hold(reader: Reader, stmt: Hold, lines: Lines) -> None:
    [e] = lines.take("call").parts
    if e[:3] != ("call", "fw::hold", ()) or len(e[3]) != 1:
        raise Mismatch(f"{stmt.buffer.name} is not held")
    check_address(reader.names, e[3][0], Ref(stmt.buffer, ZERO))


def _issue_loads(reader: Reader, stmt: IssueLoads, lines: Lines) -> None:
    [e] = lines.take("call").parts
    if e != ("call", "fw::issue_loads", (), ()):
        raise Mismatch("loads are not issued")


STATEMENTS: Readers = {
    Alloc: _alloc,
    Let: _let,
    LetValue: _let_value,
    LetMisalignment: _let_misalignment,
    For: _for,
    If: _if,
    Bind: _bind,
    Copy: _copy,
    Window: _window,
    Convert: _convert,
    Scatter: _scatter,
    Compute: _compute,
    Init: _init,
    Combine: _combine,
    BlockReduce: read_block_reduce,
    ClusterReduce: read_cluster_reduce,
    BlockScan: read_block_scan,
    GridReduce: read_grid_reduce,
    GridReduces: read_grid_reduces,
    GridScan: read_grid_scan,
    GridBarrier: read_grid_barrier,
    Barrier: read_barrier,
    Hold: _hold,
    IssueLoads: _issue_loads,
    InitMbarriers: read_init_mbarriers,
    BulkCopy: read_bulk_copy,
    Arrive: read_arrive,
    ProxyFence: read_proxy_fence,
    Wait: read_wait,
    WaitForCopies: read_wait_for_copies,
    Roles: read_roles,
    Role: read_role,
}
