"""Whether the text of a kernel means what its IR says: `check_kernel`.

The text is parsed by C++'s grammar and walked beside the IR, statement by statement: every declaration, loop,
guard, address, conversion, constant and computation must be the IR's. What names stand for is read off the
text's declarations, and the IR decides what they must hold.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from fusewright.core.dtype import DataType
from fusewright.core.enums import CacheOp
from fusewright.core.op import ReductionOp
from fusewright.cuda.printer import CudaSource
from fusewright.kernel.access import written_buffers
from fusewright.kernel.ir import (
    BLOCK_AXES,
    THREAD_AXES,
    TRUE,
    Alloc,
    Barrier,
    BlockReduce,
    BlockScan,
    Buffer,
    Combine,
    Compute,
    Copy,
    For,
    GridReduce,
    If,
    Init,
    Kernel,
    Let,
    LetValue,
    Operand,
    Ref,
    ScalarParam,
    Scatter,
    Space,
    Stmt,
    TensorParam,
    index_name,
    operand_dtype,
    reduced_dtype,
    walk,
)
from fusewright.kernel.text import statement_text
from fusewright.sym import ZERO, Expr, as_int, symbol
from tests.readback.indices import Mismatch
from tests.readback.operands import (
    Matcher,
    Names,
    check_address,
    check_computed,
    check_constant,
    check_element,
    check_operand,
    is_variable,
    match,
)
from tests.readback.structs import Struct, parse_structs
from tests.readback.syntax import Expression, Statement, SyntaxFault, parse_body, parse_form

_CACHES = {
    "": CacheOp.unspecified,
    "_ca": CacheOp.all_levels,
    "_cs": CacheOp.streaming,
    "_cg": CacheOp.global_,
}
_MOVE = re.compile(r"fw::(load|store|copy)(_c[asg])?(_or)?")
_BUILTINS = {index_name(axis) for axis in (*THREAD_AXES, *BLOCK_AXES)}


def check_kernel(kernel: Kernel, source: CudaSource) -> None:
    """AssertionError, with the statement and the text, unless `source` is the text of `kernel`."""
    reader = _Reader(kernel, source)
    try:
        reader.read()
    except (Mismatch, SyntaxFault) as problem:
        at = f"\nat: {reader.line}\nfor: {reader.statement}" if reader.line else ""
        raise AssertionError(f"the text is not the kernel: {problem}{at}\n\n{source.kernel}") from None


class _Lines:
    """The statements of one pair of braces, taken one after another."""

    def __init__(self, reader: _Reader, body: Sequence[Statement]) -> None:
        self.reader = reader
        self.body = body
        self.at = 0

    def peek(self) -> Statement | None:
        return self.body[self.at] if self.at < len(self.body) else None

    def take(self, kind: str) -> Statement:
        found = self.peek()
        self.reader.line = found.line if found else "the end of the braces"
        if found is None or found.kind != kind:
            raise Mismatch(f"expected a statement of kind `{kind}`")
        self.at += 1
        return found

    def end(self) -> None:
        found = self.peek()
        if found is not None:
            self.reader.line = found.line
            raise Mismatch("a statement that the kernel does not have")


class _Reader:
    """The walk over one kernel and its text."""

    def __init__(self, kernel: Kernel, source: CudaSource) -> None:
        self.kernel = kernel
        self.source = source
        self.names = Names(kernel.index_dtype)
        self.index = kernel.index_dtype.cuda
        self.structs: dict[str, Struct] = {}
        self.line = self.statement = ""
        # Variables whose declaration comes with their first value.
        self.undeclared: set[Buffer] = set()
        self.has_arena = False

    # ---- the whole

    def read(self) -> None:
        text = self.source.kernel
        typedef = re.search(r"typedef ([\w ]+) index_t;", self.source.text)
        if ("fw::index_t" in text) != (typedef is not None) or (typedef and typedef[1] != self.index):
            raise Mismatch("index_t is not the index type")
        head, found, rest = text.partition('extern "C" __global__ void')
        if not found:
            raise SyntaxFault("no kernel")
        self.structs = parse_structs([line for line in head.splitlines() if not line.startswith("//")])
        signature, _, body = rest.partition(") {\n")
        self._signature(signature)
        lines = body.rstrip().splitlines()
        if lines.pop() != "}":
            raise SyntaxFault("the kernel does not end")
        statements = _Lines(self, parse_body(lines))
        self._prologue(statements)
        self.body(self.kernel.body, statements)

    def _signature(self, text: str) -> None:
        kernel = self.kernel
        self.line = text.splitlines()[0]
        head = re.fullmatch(r"( __launch_bounds__\((\d+)\))? (\w+)\(", self.line)
        if head is None or head[3] != self.source.name:
            raise Mismatch("the kernel's name")
        known = [as_int(extent) for extent in kernel.block]
        threads = kernel.max_threads
        if not threads and None not in known:
            threads = known[0] * known[1] * known[2]
        if int(head[2] or 0) != threads:
            raise Mismatch(f"launch bounds other than {threads}")
        written = {buffer for stmt in walk(kernel.body) for buffer in written_buffers(stmt)}
        lines = [line.strip().rstrip(",") for line in text.splitlines()[1:]]
        if len(lines) != len(kernel.params):
            raise Mismatch(f"{len(lines)} parameters instead of {len(kernel.params)}")
        self.passed: dict[str, ScalarParam] = {}
        for line, param in zip(lines, kernel.params):
            self.line = line
            kind, name = line.rsplit(" ", 1)
            if isinstance(param, ScalarParam):
                if kind != self.names.type(param.dtype):
                    raise Mismatch(f"{param.name} is {param.dtype.name}")
                if param.symbol is None:
                    self.names.declare(name, param, kind)
                elif kind == self.index:
                    self.names.define(name, kind, param.symbol)
                else:
                    self.passed[name] = param
                continue
            buffer = param.buffer
            read_only = kind.startswith("const ")
            if read_only and (getattr(param, "is_output", True) or buffer in written):
                raise Mismatch(f"{buffer.name} is written")
            wanted = self.names.type(buffer.dtype)
            if isinstance(param, TensorParam) and wanted != buffer.dtype.in_memory.cuda:
                raise Mismatch(f"the elements of {buffer.name} are {buffer.dtype.torch}, not {wanted}")
            is_home = getattr(param, "is_home", False)
            if kind not in (f"{wanted}*", f"const {wanted}*" if is_home else f"const {wanted}* __restrict__"):
                raise Mismatch(f"a pointer to {wanted} is expected")
            self.names.declare(name, buffer, wanted)
        self.line = ""

    def _prologue(self, lines: _Lines) -> None:
        """Constants for the built-ins and for sizes that come in another type; the arena."""
        while (statement := lines.peek()) is not None:
            if statement.kind == "arena":
                lines.take("arena")
                if statement.parts != (128, "unsigned char", "fw_smem"):
                    raise Mismatch("the arena")
                self.has_arena = True
                continue
            if statement.kind != "declare" or not statement.parts[0]:
                return
            _, kind, name, _, value = statement.parts
            if value is None or kind != self.index:
                return
            if value[0] == "." and value[1][0] == "name" and f"{value[1][1]}.{value[2]}" in _BUILTINS:
                self.names.define(name, kind, f"{value[1][1]}.{value[2]}")
            elif value[0] == "name" and value[1] in self.passed:
                self.names.define(name, kind, self.passed[value[1]].symbol)
            else:
                return
            lines.take("declare")

    # ---- statements

    @contextmanager
    def scope(self) -> Iterator[None]:
        outer, self.names = self.names, self.names.copy()
        yield
        self.names = outer

    def body(self, body: Sequence[Stmt], lines: _Lines) -> None:
        for stmt in body:
            self.statement = statement_text(stmt)
            STATEMENTS[type(stmt)](self, stmt, lines)
            if self.undeclared and not isinstance(stmt, Alloc):
                raise Mismatch(f"{next(iter(self.undeclared)).name} is not declared")
        lines.end()

    @contextmanager
    def each(self, width: int, lines: _Lines) -> Iterator[tuple[_Lines, Expr]]:
        """The statements for each of `width` elements, and the element's number."""
        if width == 1:
            yield lines, ZERO
            return
        lines.take("unroll")
        loop = lines.take("for")
        kind, name, first, extent = loop.parts
        if (kind, first, extent) != ("int", ("int", 0, "int"), ("int", width, "int")):
            raise Mismatch(f"a loop over {width} elements is expected")
        with self.scope():
            number = symbol(f"element {name}", lo=0, hi=width - 1)
            self.names.define(name, kind, number)
            inner = _Lines(self, loop.body)
            yield inner, number
            inner.end()

    def assigned(self, lines: _Lines, dst: Ref, offset: Expr = ZERO) -> Expression:
        """The value of the next statement, which assigns to `dst`."""
        if dst.buffer in self.undeclared:
            self.undeclared.discard(dst.buffer)
            const, kind, name, count, value = lines.take("declare").parts
            if const or count is not None or value is None or kind != self.names.type(dst.buffer.dtype):
                raise Mismatch(f"no declaration of {dst.buffer.name}")
            self.names.declare(name, dst.buffer, kind)
            return value
        target, value = lines.take("assign").parts
        check_element(self.names, target, dst, offset)
        return value

    # ---- reductions

    def reduced(self, op: ReductionOp, dst: Sequence[Ref]) -> DataType:
        dtype = reduced_dtype(op, [ref.buffer.dtype for ref in dst])
        assert dtype is not None
        return dtype

    def contributions(
        self, op: ReductionOp, dtype: DataType, src: Sequence[Operand], offset: Expr = ZERO
    ) -> list[Matcher]:
        """What each state of `src` must be in the text."""
        states = op.state_dtypes(dtype)
        if len(src) == len(states):
            return [
                lambda e, s=s, t=t: check_operand(self.names, e, s, t, offset)  # type: ignore[misc]
                for s, t in zip(src, states)
            ]
        x = {"x": lambda e: check_operand(self.names, e, src[0], dtype, offset)}
        forms = [parse_form(lift, (("T", dtype.cuda),)) for lift in op.lift]
        return [lambda e, form=form: match(form, e, x) for form in forms]  # type: ignore[misc]

    def combined(
        self, op: ReductionOp, dtype: DataType, lines: _Lines, into: list[Matcher], values: list[Matcher]
    ) -> None:
        """The next statement combines `values` into `into`."""
        found = lines.peek()
        if found is not None and found.kind == "assign":
            self.check_combined(op, dtype, ("assign", *lines.take("assign").parts), into, values)
        else:
            self.check_combined(op, dtype, lines.take("call").parts[0], into, values)

    def check_combined(
        self, op: ReductionOp, dtype: DataType, e: Expression, into: list[Matcher], values: list[Matcher]
    ) -> None:
        form = parse_form(op.combining(dtype).cuda, (("T", dtype.cuda),))
        operands = {f"a{i}": a for i, a in enumerate(into)} | {f"b{i}": b for i, b in enumerate(values)}
        match(form, e, operands)

    def collective(
        self, stmt: BlockReduce | GridReduce, lines: _Lines, call: Callable[[_Lines, str, Struct], None]
    ) -> None:
        """The states of `src` go into an array, `call` reduces it, and `dst` takes it up."""
        op, dtype = stmt.op, self.reduced(stmt.op, stmt.dst)
        inner = _Lines(self, lines.take("block").body)
        _, kind, partial, count, value = inner.take("declare").parts
        struct = self.structs.get(kind)
        if struct is None or count != stmt.width or value is not None:
            raise Mismatch(f"no array of {stmt.width} states")
        struct.check(op, dtype, self.names, published=isinstance(stmt, GridReduce))
        with self.each(stmt.width, inner) as (each, w):
            target, states = each.take("assign").parts
            self.check_partial(target, partial, w)
            if stmt.pred is not TRUE:
                if states[0] != "?:" or states[3] != ("call", f"{kind}::identity", (), ()):
                    raise Mismatch("threads without a part do not contribute the identity")
                self.names.index(states[1], stmt.pred)
                states = states[2]
            if states[:2] != ("braces", kind):
                raise Mismatch(f"no states of {kind}")
            matchers = self.contributions(op, dtype, stmt.src, w)
            if len(matchers) != len(states[2]):
                raise Mismatch(f"{len(matchers)} states are expected")
            for matcher, state in zip(matchers, states[2]):
                matcher(state)
        call(inner, partial, struct)
        with self.each(stmt.width, inner) as (each, w):
            into = [
                lambda e, ref=ref: check_element(self.names, e, ref, w)  # type: ignore[misc]
                for ref in stmt.dst
            ]
            values = [
                lambda e, field=field: self.check_field(e, partial, w, field)  # type: ignore[misc]
                for field in struct.fields
            ]
            self.combined(op, dtype, each, into, values)
        inner.end()

    def check_partial(self, e: Expression, name: str, w: Expr) -> None:
        if e[0] != "[]" or e[1] != ("name", name):
            raise Mismatch(f"no element of {name}")
        self.names.index(e[2], w)

    def check_field(self, e: Expression, name: str, w: Expr, field: str) -> None:
        if e[0] != "." or e[2] != field:
            raise Mismatch(f"no state {field}")
        self.check_partial(e[1], name, w)

    def memory(self, e: Expression, buffers: Sequence[Buffer | None]) -> None:
        """`e` is the initializer of a Memory over these buffers."""
        if e[:2] != ("braces", "") or len(e[2]) != len(buffers):
            raise Mismatch(f"{len(buffers)} buffers are expected")
        for part, buffer in zip(e[2], buffers):
            if buffer is None:
                if part != ("name", "nullptr"):
                    raise Mismatch("no null pointer")
            else:
                check_address(self.names, part, Ref(buffer, ZERO))

    def shape(self) -> tuple[Any, ...]:
        return "fw::block_shape", *(as_int(extent) or 0 for extent in self.kernel.block)


# ---- one function a class of statements --------------------------------------------------------------------


def _alloc(reader: _Reader, stmt: Alloc, lines: _Lines) -> None:
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


def _let(reader: _Reader, stmt: Let, lines: _Lines) -> None:
    const, kind, name, count, value = lines.take("declare").parts
    if not const or kind != reader.index or count is not None or value is None:
        raise Mismatch(f"no constant {stmt.symbol.name}")
    reader.names.index(value, stmt.value)
    reader.names.define(name, kind, stmt.symbol)


def _let_value(reader: _Reader, stmt: LetValue, lines: _Lines) -> None:
    const, kind, name, count, value = lines.take("declare").parts
    if not const or kind != reader.index or count is not None or value is None:
        raise Mismatch(f"no constant {stmt.symbol.name}")
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


def _for(reader: _Reader, stmt: For, lines: _Lines) -> None:
    if stmt.unroll:
        lines.take("unroll")
    loop = lines.take("for")
    kind, name, first, extent = loop.parts
    if kind != reader.index or first != ("int", 0, "int"):
        raise Mismatch("the loop does not count from 0 in the index type")
    reader.names.index(extent, stmt.extent)
    with reader.scope():
        reader.names.define(name, kind, stmt.symbol)
        reader.body(stmt.body, _Lines(reader, loop.body))


def _if(reader: _Reader, stmt: If, lines: _Lines) -> None:
    guard = lines.take("if")
    reader.names.index(guard.parts[0], stmt.cond)
    with reader.scope():
        reader.body(stmt.body, _Lines(reader, guard.body))


def _copy(reader: _Reader, stmt: Copy, lines: _Lines) -> None:
    dst, src = stmt.dst, stmt.src
    if stmt.pred is not TRUE and stmt.fill is None:
        guard = lines.take("if")
        reader.names.index(guard.parts[0], stmt.pred)
        inner = _Lines(reader, guard.body)
        _copy(reader, replace(stmt, pred=TRUE), inner)
        inner.end()
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


def _scatter(reader: _Reader, stmt: Scatter, lines: _Lines) -> None:
    """A store where any value may stay, else an addition of all elements of a vector at once."""
    if stmt.op is None:
        _copy(reader, Copy(stmt.dst, stmt.src, stmt.width, pred=stmt.pred), lines)
        return
    if stmt.pred is not TRUE:
        guard = lines.take("if")
        reader.names.index(guard.parts[0], stmt.pred)
        inner = _Lines(reader, guard.body)
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


def _filled(reader: _Reader, stmt: Copy, value: Expression, offset: Expr) -> None:
    """`value` is one element of the source, or the fill where the predicate does not hold."""
    dtype = stmt.dst.buffer.dtype
    if stmt.fill is not None:
        if value[0] != "?:":
            raise Mismatch("no fill")
        reader.names.index(value[1], stmt.pred)
        check_operand(reader.names, value[3], stmt.fill, dtype)
        value = value[2]
    check_operand(reader.names, value, stmt.src, dtype, offset)


def _move(reader: _Reader, stmt: Copy, src: Ref, lines: _Lines) -> None:
    """One call, or a load into an array and a store from it."""
    names = reader.names
    following = lines.peek()
    if following is not None and following.kind == "block":
        inner = _Lines(reader, lines.take("block").body)
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
    reader: _Reader, lines: _Lines, stmt: Copy, kind: str, memory: Buffer | None
) -> tuple[Expression, Expression]:
    """(destination, source) of the next statement: it moves all elements, with the hint if that is global.

    A load fills where the predicate does not hold.
    """
    _, function, template, operands = lines.take("call").parts[0]
    found = _MOVE.fullmatch(function)
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


def _compute(reader: _Reader, stmt: Compute, lines: _Lines) -> None:
    op = stmt.op
    value = reader.assigned(lines, stmt.dst)
    matchers = [
        lambda e, arg=arg, dtype=dtype: check_operand(reader.names, e, arg, dtype)  # type: ignore[misc]
        for arg, dtype in zip(stmt.args, op.operand_dtypes(stmt.dtype))
    ]
    result = op.result_of(stmt.dtype), stmt.dst.buffer.dtype
    check_computed(reader.names, value, stmt.spelling.cuda, stmt.dtype, result, matchers)


def _init(reader: _Reader, stmt: Init, lines: _Lines) -> None:
    dtype = reader.reduced(stmt.op, stmt.dst)
    values = list(zip(stmt.dst, stmt.op.identity(dtype), stmt.op.state_dtypes(dtype)))
    with reader.each(stmt.width, lines) as (each, w):
        for ref, value, state in values:
            check_constant(reader.names, reader.assigned(each, ref, w), value, state, state)


def _combine(reader: _Reader, stmt: Combine, lines: _Lines) -> None:
    op, names = stmt.op, reader.names
    into: list[Matcher] = [lambda e, ref=ref: check_element(names, e, ref) for ref in stmt.dst]  # type: ignore[misc]
    dtype = reader.reduced(op, stmt.dst)
    found = lines.peek()
    if stmt.pred is not TRUE and found is not None and found.kind == "if":
        names.index(lines.take("if").parts[0], stmt.pred)
        inner = _Lines(reader, found.body)
        _combine(reader, replace(stmt, pred=TRUE), inner)
        inner.end()
        return
    if stmt.width > 1:
        if stmt.pred is not TRUE:
            raise Mismatch("the predicate is lost")
        [run] = stmt.src
        assert isinstance(run, Ref)
        form = parse_form(op.combine_run, (("W", str(stmt.width)),))
        operands: dict[str, Matcher] = {f"a{i}": matcher for i, matcher in enumerate(into)}
        operands["x"] = lambda e: check_address(names, e, run)
        match(form, lines.take("call").parts[0], operands)
        return
    if stmt.pred is TRUE:
        reader.combined(op, dtype, lines, into, reader.contributions(op, dtype, stmt.src))
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


def _bits(axes: Sequence[Any], of: Sequence[Any]) -> int:
    return sum(2 ** of.index(axis) for axis in axes)


def _block_reduce(reader: _Reader, stmt: BlockReduce, lines: _Lines) -> None:
    def check(inner: _Lines, partial: str, struct: Struct) -> None:
        [e] = inner.take("call").parts
        template = struct.name, _bits(stmt.axes, THREAD_AXES), reader.shape()
        if e[:3] != ("call", "fw::block_reduce", template) or e[3][0] != ("name", partial):
            raise Mismatch(f"no reduction of {partial} over {', '.join(a.name for a in stmt.axes)}")
        reader.memory(e[3][1], stmt.workspace)

    reader.collective(stmt, lines, check)


def _block_scan(reader: _Reader, stmt: BlockScan, lines: _Lines) -> None:
    """What is brought and the carry go into arrays, one call scans, and both are taken up."""
    dtype = reader.reduced(stmt.op, stmt.dst)
    inner = _Lines(reader, lines.take("block").body)
    arrays = []
    for _ in range(2):
        const, kind, name, count, value = inner.take("declare").parts
        struct = reader.structs.get(kind)
        if const or struct is None or count != stmt.width or value is not None:
            raise Mismatch(f"no array of {stmt.width} states")
        struct.check(stmt.op, dtype, reader.names, published=False)
        arrays.append(name)
    scanned, carried = arrays
    if scanned == carried or reader.reduced(stmt.op, stmt.carry) is not dtype:
        raise Mismatch("what is scanned is not what is carried")
    with reader.each(stmt.width, inner) as (each, w):
        for name, refs in ((scanned, stmt.src), (carried, stmt.carry)):
            target, states = each.take("assign").parts
            reader.check_partial(target, name, w)
            if states[:2] != ("braces", struct.name) or len(states[2]) != len(refs):
                raise Mismatch(f"no states of {struct.name}")
            for e, ref in zip(states[2], refs):
                check_element(reader.names, e, ref, w)
    [e] = inner.take("call").parts
    template = struct.name, _bits((stmt.axis,), THREAD_AXES), reader.shape()
    if e[:3] != ("call", "fw::block_scan", template) or e[3][:2] != (("name", scanned), ("name", carried)):
        raise Mismatch(f"no scan along {stmt.axis.name}")
    reader.memory(e[3][2], stmt.workspace)
    with reader.each(stmt.width, inner) as (each, w):
        for name, refs in ((scanned, stmt.dst), (carried, stmt.carry)):
            for ref, field in zip(refs, struct.fields):
                target, value = each.take("assign").parts
                check_element(reader.names, target, ref, w)
                reader.check_field(value, name, w, field)
    inner.end()


def _grid_reduce(reader: _Reader, stmt: GridReduce, lines: _Lines) -> None:
    const, kind, last, count, value = lines.take("declare").parts
    if const or kind != reader.index or count is not None or value is not None:
        raise Mismatch(f"no declaration of {stmt.is_last.name}")
    reader.names.define(last, kind, stmt.is_last)

    def check(inner: _Lines, partial: str, struct: Struct) -> None:
        target, e = inner.take("assign").parts
        grid, threads = _bits(stmt.grid_axes, BLOCK_AXES), _bits(stmt.thread_axes, THREAD_AXES)
        template = struct.name, grid, threads, reader.shape()
        if target != ("name", last) or e[:3] != ("call", "fw::grid_reduce", template):
            raise Mismatch("no such reduction of the grid")
        values, workspace, partials, semaphore = e[3]
        if values != ("name", partial):
            raise Mismatch(f"{partial} is not what is reduced")
        reader.memory(workspace, stmt.workspace)
        reader.memory(partials, stmt.partials)
        check_address(reader.names, semaphore, Ref(stmt.semaphore, ZERO))

    reader.collective(stmt, lines, check)


def _barrier(reader: _Reader, stmt: Barrier, lines: _Lines) -> None:
    if lines.take("call").parts != (("call", "__syncthreads", (), ()),):
        raise Mismatch("no barrier")


STATEMENTS: dict[type, Callable[[_Reader, Any, _Lines], None]] = {
    Alloc: _alloc,
    Let: _let,
    LetValue: _let_value,
    For: _for,
    If: _if,
    Copy: _copy,
    Scatter: _scatter,
    Compute: _compute,
    Init: _init,
    Combine: _combine,
    BlockReduce: _block_reduce,
    BlockScan: _block_scan,
    GridReduce: _grid_reduce,
    Barrier: _barrier,
}
