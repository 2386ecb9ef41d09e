"""What the walk over a kernel and its text holds: the lines, the names, and what they stand for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from fusewright.core.dtype import DataType
from fusewright.core.op import ReductionOp
from fusewright.cuda.printer import CudaSource
from fusewright.kernel.access import written_buffers
from fusewright.kernel.ir import (
    BLOCK_AXES,
    THREAD_AXES,
    Alloc,
    Buffer,
    ClusterReduce,
    Kernel,
    Operand,
    Ref,
    Role,
    ScalarParam,
    Stmt,
    TensorParam,
    index_name,
    reduced_dtype,
    walk,
)
from fusewright.kernel.text import statement_text
from fusewright.sym import ZERO, Expr, as_int, symbol
from tests.readback.indices import Mismatch
from tests.readback.operands import Matcher, Names, check_element, check_operand, match
from tests.readback.structs import Struct, parse_structs
from tests.readback.syntax import Expression, Statement, SyntaxFault, parse_body, parse_form

_BUILTINS = {index_name(axis) for axis in (*THREAD_AXES, *BLOCK_AXES)}


#: The variable that counts a kernel's reductions across the blocks of a cluster.
TURN = "fw_turn"


def _called(name: str) -> Expression:
    """A call without arguments."""
    return "call", name, (), ()


class Lines:
    """The statements of one pair of braces, taken one after another."""

    def __init__(self, reader: Reader, body: Sequence[Statement]) -> None:
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


class Reader:
    """The walk over one kernel and its text.

    readers: what reads each class of statement. begin: what reads the lines that these need before all
    others.
    """

    def __init__(
        self,
        kernel: Kernel,
        source: CudaSource,
        readers: Readers,
        begin: Callable[[Reader, Lines], None],
    ) -> None:
        self.readers = readers
        self.begin = begin
        self.kernel = kernel
        self.source = source
        self.names = Names(kernel.index_dtype)
        self.index = kernel.index_dtype.cuda
        self.structs: dict[str, Struct] = {}
        self.line = self.statement = ""
        # Variables whose declaration comes with their first value.
        self.undeclared: set[Buffer] = set()
        self.has_arena = False
        # Of what blocks of the grid exchange through: the names of the count of rounds, and of how many
        # blocks have started before, or of the round before the first.
        self.exchanges: dict[Buffer, tuple[str, str | None]] = {}
        self.role: Role | None = None  # the one whose statements are read, and its number, from 1 on
        self.role_number = 0

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
        parsed = parse_body(lines)
        meets = any(isinstance(stmt, ClusterReduce) for stmt in walk(self.kernel.body))
        statements = Lines(self, parsed)
        self._prologue(statements)
        if meets:
            const, kind, name, count, value = statements.take("declare").parts
            if (const, kind, name, count) != (False, "int", TURN, None) or value[:2] != ("int", 0):
                raise Mismatch("reductions across clusters are not counted from 0")
            if statements.take("call").parts[0] != _called("fw::cluster_begin"):
                raise Mismatch("nothing sets up the mbarriers of the cluster")
        self.begin(self, statements)
        self.body(self.kernel.body, statements)

    def _signature(self, text: str) -> None:
        kernel = self.kernel
        self.line = text.splitlines()[0]
        head = re.fullmatch(r"(?: (__launch_bounds__|__maxnreg__)\((\d+)\))? (\w+)\(", self.line)
        if head is None or head[3] != self.source.name:
            raise Mismatch("the kernel's name")
        known = [as_int(extent) for extent in kernel.block]
        threads = kernel.max_threads
        if not threads and None not in known:
            threads = known[0] * known[1] * known[2]
        if kernel.max_registers:
            if (head[1], int(head[2] or 0)) != ("__maxnreg__", kernel.max_registers):
                raise Mismatch(f"a limit other than {kernel.max_registers} registers")
        elif (head[1] or "__launch_bounds__", int(head[2] or 0)) != ("__launch_bounds__", threads):
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

    def _prologue(self, lines: Lines) -> None:
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

    def body(self, body: Sequence[Stmt], lines: Lines) -> None:
        for stmt in body:
            self.statement = statement_text(stmt)
            self.readers[type(stmt)](self, stmt, lines)
            if self.undeclared and not isinstance(stmt, Alloc):
                raise Mismatch(f"{next(iter(self.undeclared)).name} is not declared")
        lines.end()

    @contextmanager
    def each(self, width: int, lines: Lines) -> Iterator[tuple[Lines, Expr]]:
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
            inner = Lines(self, loop.body)
            yield inner, number
            inner.end()

    def assigned(self, lines: Lines, dst: Ref, offset: Expr = ZERO) -> Expression:
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
        self,
        op: ReductionOp,
        dtype: DataType,
        lines: Lines,
        into: list[Matcher],
        values: list[Matcher],
        in_order: bool = False,
    ) -> None:
        """The next statement combines `values` into `into`."""
        found = lines.peek()
        if found is not None and found.kind == "assign":
            statement: Expression = ("assign", *lines.take("assign").parts)
        else:
            statement = lines.take("call").parts[0]
        self.check_combined(op, dtype, statement, into, values, in_order)

    def check_combined(
        self,
        op: ReductionOp,
        dtype: DataType,
        e: Expression,
        into: list[Matcher],
        values: list[Matcher],
        in_order: bool = False,
    ) -> None:
        spelling = op.combining(dtype)
        form = parse_form(spelling.in_order if in_order else spelling.cuda, (("T", dtype.cuda),))
        operands = {f"a{i}": a for i, a in enumerate(into)} | {f"b{i}": b for i, b in enumerate(values)}
        match(form, e, operands)

    def check_partial(self, e: Expression, name: str, w: Expr) -> None:
        if e[0] != "[]" or e[1] != ("name", name):
            raise Mismatch(f"no element of {name}")
        self.names.index(e[2], w)

    def check_field(self, e: Expression, name: str, w: Expr, field: str) -> None:
        if e[0] != "." or e[2] != field:
            raise Mismatch(f"no state {field}")
        self.check_partial(e[1], name, w)


#: For each class of statement what takes its text off the lines.
Readers = Mapping[type, Callable[[Reader, Any, Lines], None]]
