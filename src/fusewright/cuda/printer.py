"""Kernel IR -> CUDA C++ text.

`print_kernel` walks the statements. Each type of statement, operand and parameter has one function in a table
(`STATEMENTS`, `OPERANDS`, `PARAMS`), so a new node takes one function and one line. Expressions are in
expressions.py, spellings of types and constants in spelling.py, and statements in statements.py, except
collectives (collectives.py), copies (transfers.py), mbarriers and roles (waits.py). states.py has the
reduction states that kernels define for their snippets.

The text depends only on the kernel: the same kernel gives the same bytes in every process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fusewright.core.code import Code, address, primary, subscript
from fusewright.core.dtype import DataType
from fusewright.core.enums import CacheOp
from fusewright.core.errors import InternalError
from fusewright.core.op import ReductionOp
from fusewright.cuda import collectives, snippets, statements, transfers, waits
from fusewright.cuda.expressions import ExpressionPrinter, has_division
from fusewright.cuda.spelling import TYPE_SNIPPETS, convert, converted_literal, identifier, type_name
from fusewright.cuda.states import StateStruct
from fusewright.kernel import ir as k
from fusewright.kernel.access import written_buffers
from fusewright.sym import ZERO, Expr, Symbol, as_int, symbol, to_text

_INDENT = "  "
_BUILTINS = {k.index_name(axis) for axis in k.THREAD_AXES + k.BLOCK_AXES}
# Lets the compiler assume the alignment of any access; 128 bytes also suits bulk copies.
_ARENA = f"extern __shared__ __align__(128) unsigned char {statements.ARENA_NAME}[];"
# The number of an element in a loop that the printer itself makes. A name with a dot is nobody else's.
_ELEMENT = symbol("printer.w")


@dataclass(frozen=True, slots=True)
class CudaSource:
    """A printed kernel.

    Attributes:
        name: the name of the `extern "C"` entry.
        kernel: the text of this kernel alone, for readers.
        snippets: the device snippets that it needs, each after those that it uses.
        text: the text to compile: the snippets, then the kernel.
    """

    name: str
    kernel: str
    snippets: tuple[str, ...]
    text: str


def print_kernel(kernel: k.Kernel) -> CudaSource:
    """The CUDA C++ text of `kernel`. InternalError for a kernel that the verifier would refuse."""
    printer = KernelPrinter(kernel)
    text = printer.print()
    wanted = snippets.closure(printer.required)
    parts = [f"typedef {kernel.index_dtype.cuda} index_t;"]
    parts = [f"namespace fw {{\n{parts[0]}\n}}\n"] if "fw::index_t" in text else []
    parts += [snippets.text(name) for name in wanted]
    return CudaSource(identifier(kernel.name), text, wanted, "\n".join([*parts, text]))


class KernelPrinter:
    """The state of one printing: the lines so far, the assigned names, the needed snippets."""

    def __init__(self, kernel: k.Kernel) -> None:
        self.kernel = kernel
        self.index_dtype = kernel.index_dtype
        self.spares_registers = k.spares_registers(kernel)
        self.required: set[str] = set()
        self.states: dict[str, StateStruct] = {}
        self.role: k.Role | None = None  # the one whose statements are printed
        self.written = {buffer for stmt in k.walk(kernel.body) for buffer in written_buffers(stmt)}
        self.read_only = {
            param.buffer
            for param in kernel.params
            if isinstance(param, k.TensorParam)
            and not (param.is_output or param.is_home or param.buffer in self.written)
        }
        self.divided: set[Symbol] = set()  # those whose values take a division
        self._names = {_ELEMENT.name: "w"}
        self._taken: set[str] = {identifier(kernel.name)}
        self._builtins: dict[str, str] = {}
        self._lines: list[str] = []
        self._depth = 1
        self._declaring: k.Buffer | None = None
        self.multipliers: dict[Expr, str] = {}
        self._expressions = ExpressionPrinter(
            self.index_dtype, self.symbol_name, self.required.add, self.multipliers
        )

    # ---- the whole -------------------------------------------------------------------------------

    def print(self) -> str:
        params = list(map(self.declaration, self.kernel.params))
        self.statements(self.kernel.body)
        body, self._lines = self._lines, []
        index = self.type(DataType.Index)
        for param in self.kernel.params:
            if isinstance(param, k.ScalarParam) and self.passed_as_other_type(param):
                self.line(f"const {index} {self.name(param.name)} = {self.name(param.name)}_passed;")
        for name in sorted(self._builtins):
            self.line(f"const {index} {self._builtins[name]} = {name};")
        if any(isinstance(s, k.Alloc) and s.buffer.space is k.Space.SHARED for s in k.walk(self.kernel.body)):
            self.line(_ARENA)
        if any(isinstance(s, k.ClusterReduce) for s in k.walk(self.kernel.body)):
            self.line(f"int {collectives.TURN} = 0;")
            self.line("fw::cluster_begin();")
        of_grid = [stmt for stmt in k.walk(self.kernel.body) if isinstance(stmt, (k.GridReduce, k.GridScan))]
        for line in collectives.begin(self, of_grid):
            self.line(line)
        structs = [struct.text for struct in self.states.values()]
        return "\n".join([*structs, *self._signature(params), *self._lines, *body, "}", ""])

    def _signature(self, params: Sequence[str]) -> list[str]:
        kernel = self.kernel
        grid, block = (", ".join(map(to_text, extents)) for extents in (kernel.grid, kernel.block))
        shared = to_text(kernel.shared_bytes)
        known = [as_int(extent) for extent in kernel.block]
        threads = kernel.max_threads
        if not threads and None not in known:
            threads = known[0] * known[1] * known[2]  # type: ignore[operator]
        bounds = f" __launch_bounds__({threads})" if threads else ""
        if kernel.max_registers:  # CUDA takes one of the two, and ignores NVRTC's option beside bounds
            bounds = f" __maxnreg__({kernel.max_registers})"
        listed = ",\n".join(_INDENT * 2 + param for param in params)
        clusters = f", clusters of {kernel.cluster}" if kernel.cluster > 1 else ""
        return [
            f"// grid ({grid}), block ({block}){clusters}, {shared} bytes of shared memory",
            f'extern "C" __global__ void{bounds} {identifier(kernel.name)}(',
            f"{listed}) {{",
        ]

    def line(self, text: str) -> None:
        self._lines.append(_INDENT * self._depth + text)

    @contextmanager
    def nested(self, head: str) -> Iterator[None]:
        """A context whose lines are in braces after `head`."""
        self.line(f"{head} {{" if head else "{")
        self._depth += 1
        yield
        self._depth -= 1
        self.line("}")

    @contextmanager
    def each(self, width: int) -> Iterator[Expr]:
        """A context whose lines run for each of `width` elements; it yields the number of the element."""
        if width == 1:
            yield ZERO
            return
        self.line("#pragma unroll")
        with self.nested(f"for (int w = 0; w < {width}; ++w)"):
            yield _ELEMENT

    # ---- names and types -------------------------------------------------------------------------

    def name(self, given: str) -> str:
        """The identifier of a buffer, parameter or symbol, one for each name."""
        found = self._names.get(given)
        if found is None:
            base = found = identifier(given)
            number = 1
            while found in self._taken:
                number += 1
                found = f"{base}_{number}"
            self._taken.add(found)
            self._names[given] = found
        return found

    def call(self, given: str, identifier: str) -> None:
        """From now on `given` is printed as `identifier`."""
        self._names[given] = identifier

    def symbol_name(self, symbol: Symbol) -> str:
        name = self.name(symbol.name)
        if symbol.name in _BUILTINS:
            self._builtins[symbol.name] = name
        return name

    def declaration(self, param: k.Param) -> str:
        """What a parameter of the kernel, or a variable in its place, is declared as."""
        return PARAMS[type(param)](self, param)

    def param_name(self, param: k.Param) -> str:
        return self.name(k.param_name(param))

    def type(self, dtype: DataType) -> str:
        if dtype in TYPE_SNIPPETS:
            self.required.add(TYPE_SNIPPETS[dtype])
        return type_name(dtype, self.index_dtype)

    def passed_as_other_type(self, param: k.ScalarParam) -> bool:
        return param.symbol is not None and param.dtype not in (DataType.Index, self.index_dtype)

    # ---- operands and expressions ----------------------------------------------------------------

    def expr(self, e: Expr) -> Code:
        """An index expression."""
        return self._expressions.text(e)

    def value(self, e: Expr, dtype: DataType) -> Code:
        """An index expression as a value of `dtype`."""
        printed = self._expressions.typed(e)
        return convert(printed.code, printed.dtype, dtype, self.index_dtype)

    def divides(self, e: Expr) -> bool:
        """Whether an index takes a division."""
        return has_division(e) or not self.divided.isdisjoint(e.free_symbols)

    def element(self, ref: k.Ref, offset: Expr = ZERO) -> Code:
        """An element as an lvalue; `offset` is added to the index."""
        name = primary(self.name(ref.buffer.name))
        return name if _is_scalar(ref.buffer) else subscript(name, self.expr(ref.index + offset))

    def address(self, ref: k.Ref) -> Code:
        if as_int(ref.index) == 0 and not _is_scalar(ref.buffer):
            return primary(self.name(ref.buffer.name))
        return address(self.element(ref))

    def operand(self, operand: k.Operand, dtype: DataType, offset: Expr = ZERO) -> Code:
        """The operand's value as `dtype`."""
        self.type(dtype)
        return OPERANDS[type(operand)](self, operand, dtype, offset)

    # ---- statements ------------------------------------------------------------------------------

    def statements(self, body: Sequence[k.Stmt]) -> None:
        """The statements in order; a variable that the next statement assigns is declared with it."""
        for stmt, following in zip(body, (*body[1:], None)):
            if isinstance(stmt, k.Alloc) and _is_scalar(stmt.buffer) and _sets(following, stmt.buffer):
                self._declaring = stmt.buffer
                continue
            STATEMENTS[type(stmt)](self, stmt)

    def assign(self, dst: k.Ref, value: str, offset: Expr = ZERO) -> None:
        """`dst = value;`, as a declaration if it is the first that is heard of dst."""
        if self._declaring is dst.buffer:
            self._declaring = None
            self.line(f"{self.type(dst.buffer.dtype)} {self.name(dst.buffer.name)} = {value};")
        else:
            self.line(f"{self.element(dst, offset)} = {value};")

    def state_struct(self, op: ReductionOp, dst: Sequence[k.Ref], clustered: bool = False) -> StateStruct:
        """The struct of `op`'s states, defined before the kernel.

        Args:
            clustered: blocks of a cluster store them in each other's shared memory.
        """
        struct = StateStruct(op, self.reduced(op, dst), self.index_dtype, clustered)
        known = self.states.get(struct.name)
        if known is not None:
            struct.clustered |= known.clustered
        self.states[struct.name] = struct
        self.required.update(struct.snippets)
        return struct

    def reduced(self, op: ReductionOp, dst: Sequence[k.Ref]) -> DataType:
        """The type of the inputs that `op` reduces into states such as `dst`."""
        dtypes = [ref.buffer.dtype for ref in dst]
        dtype = k.reduced_dtype(op, dtypes)
        if dtype is None:
            raise InternalError(f"{op.name} has no states of types {', '.join(map(str, dtypes))}")
        for used in (dtype, *dtypes):
            self.type(used)
        self.required.update(op.combining(dtype).snippets)
        return dtype

    def contributions(
        self, op: ReductionOp, dtype: DataType, src: Sequence[k.Operand], offset: Expr = ZERO
    ) -> list[Code]:
        """The text of each state of `src`, which holds the states themselves or one value to be lifted."""
        if len(src) == len(op.states):
            states = op.state_dtypes(dtype)
            return [self.operand(operand, state, offset) for operand, state in zip(src, states)]
        return op.render_lift(self.operand(src[0], dtype, offset), dtype)


def _is_scalar(buffer: k.Buffer) -> bool:
    """Whether the buffer is printed as a variable instead of an array."""
    return buffer.space is k.Space.LOCAL and as_int(buffer.size) == 1


def _sets(stmt: k.Stmt | None, buffer: k.Buffer) -> bool:
    """Whether all that `stmt` prints is one assignment to this variable, which it does not read."""
    if isinstance(stmt, k.Compute):
        return stmt.dst.buffer is buffer and all(
            getattr(arg, "buffer", None) is not buffer for arg in stmt.args
        )
    if isinstance(stmt, k.Init):
        return stmt.width == 1 and len(stmt.dst) == 1 and stmt.dst[0].buffer is buffer
    return (
        isinstance(stmt, k.Copy)
        and stmt.cache is CacheOp.unspecified
        and stmt.dst.buffer is buffer
        and (stmt.pred is k.TRUE or stmt.fill is not None)
        and all(getattr(operand, "buffer", None) is not buffer for operand in (stmt.src, stmt.fill))
    )


# ---- parameters ---------------------------------------------------------------------------------


def _tensor_param(printer: KernelPrinter, param: k.TensorParam) -> str:
    kind, name = printer.type(param.buffer.dtype), printer.name(param.buffer.name)
    if param.is_output or param.buffer in printer.written:
        return f"{kind}* {name}"
    return f"const {kind}* {name}" if param.is_home else f"const {kind}* __restrict__ {name}"


def _scalar_param(printer: KernelPrinter, param: k.ScalarParam) -> str:
    passed = "_passed" if printer.passed_as_other_type(param) else ""
    name = printer.name(param.name)
    if param.divisor is not None:
        printer.multipliers[param.divisor] = name
    if param.symbol is not None:
        printer.call(param.symbol.name, name)
    return f"{printer.type(param.dtype)} {name}{passed}"


def _workspace_param(printer: KernelPrinter, param: k.WorkspaceParam) -> str:
    return f"{printer.type(param.buffer.dtype)}* {printer.name(param.buffer.name)}"


PARAMS: dict[type, Callable[[KernelPrinter, Any], str]] = {
    k.TensorParam: _tensor_param,
    k.ScalarParam: _scalar_param,
    k.WorkspaceParam: _workspace_param,
}


# ---- operands -----------------------------------------------------------------------------------


def _ref(printer: KernelPrinter, ref: k.Ref, dtype: DataType, offset: Expr) -> Code:
    return convert(printer.element(ref, offset), ref.buffer.dtype, dtype, printer.index_dtype)


def _imm(printer: KernelPrinter, imm: k.Imm, dtype: DataType, offset: Expr) -> Code:
    return converted_literal(imm.value, imm.dtype, dtype, printer.index_dtype)


def _scalar_ref(printer: KernelPrinter, ref: k.ScalarRef, dtype: DataType, offset: Expr) -> Code:
    return convert(primary(printer.name(ref.param.name)), ref.param.dtype, dtype, printer.index_dtype)


def _index_value(printer: KernelPrinter, value: k.IndexValue, dtype: DataType, offset: Expr) -> Code:
    constant = as_int(value.expr)
    if constant is not None:
        return converted_literal(constant, value.dtype, dtype, printer.index_dtype)
    return convert(printer.value(value.expr, value.dtype), value.dtype, dtype, printer.index_dtype)


OPERANDS: dict[type, Callable[[KernelPrinter, Any, DataType, Expr], Code]] = {
    k.Ref: _ref,
    k.Imm: _imm,
    k.ScalarRef: _scalar_ref,
    k.IndexValue: _index_value,
}


# ---- statements ---------------------------------------------------------------------------------


STATEMENTS: dict[type, Callable[[KernelPrinter, Any], None]] = {
    k.Alloc: statements.alloc,
    k.Let: statements.let,
    k.LetValue: statements.let_value,
    k.LetMisalignment: statements.let_misalignment,
    k.For: statements.for_,
    k.If: statements.if_,
    k.Bind: statements.bind,
    k.Copy: transfers.copy,
    k.Window: transfers.window,
    k.Convert: transfers.convert_run,
    k.Scatter: transfers.scatter,
    k.Compute: statements.compute,
    k.Init: statements.init,
    k.Combine: statements.combine,
    k.BlockReduce: collectives.block_reduce,
    k.ClusterReduce: collectives.cluster_reduce,
    k.BlockScan: collectives.block_scan,
    k.GridReduce: collectives.grid_reduce,
    k.GridScan: collectives.grid_scan,
    k.GridReduces: collectives.grid_reduces,
    k.GridBarrier: collectives.grid_barrier,
    k.Barrier: waits.barrier,
    k.Hold: statements.hold,
    k.IssueLoads: statements.issue_loads,
    k.InitMbarriers: waits.init_mbarriers,
    k.BulkCopy: waits.bulk_copy,
    k.Arrive: waits.arrive,
    k.ProxyFence: waits.proxy_fence,
    k.Wait: waits.wait,
    k.WaitForCopies: waits.wait_for_copies,
    k.Roles: waits.roles,
    k.Role: waits.role,
}
