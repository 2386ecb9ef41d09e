"""Prints declarations, loops, branches and computation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fusewright.core.code import binary, call, conditional, primary
from fusewright.core.dtype import DataType
from fusewright.core.errors import InternalError
from fusewright.cuda.spelling import convert, literal
from fusewright.kernel import ir as k
from fusewright.kernel.access import is_at_hand
from fusewright.sym import as_int, const, lt, to_text

if TYPE_CHECKING:
    from fusewright.cuda.printer import KernelPrinter

#: The shared memory of a block.
ARENA_NAME = "fw_smem"


def alloc(printer: KernelPrinter, stmt: k.Alloc) -> None:
    buffer = stmt.buffer
    kind, name = printer.type(buffer.dtype), printer.name(buffer.name)
    if buffer.space is k.Space.SHARED:
        if buffer.offset is None:
            raise InternalError(f"shared buffer {buffer.name} has no place in the arena")
        place = primary(ARENA_NAME)
        if as_int(buffer.offset) != 0:
            place = binary("+", place, printer.expr(buffer.offset))
        printer.line(f"{kind}* {name} = reinterpret_cast<{kind}*>({place});")
        return
    elements = as_int(buffer.size)
    if elements is None:
        raise InternalError(f"local buffer {buffer.name} has the size {to_text(buffer.size)}, not a constant")
    printer.line(f"{kind} {name};" if elements == 1 else f"{kind} {name}[{elements}];")


def let(printer: KernelPrinter, stmt: k.Let) -> None:
    value = printer.expr(stmt.value)
    if printer.divides(stmt.value):
        printer.divided.add(stmt.symbol)
    printer.line(f"const {printer.type(DataType.Index)} {printer.symbol_name(stmt.symbol)} = {value};")


def let_value(printer: KernelPrinter, stmt: k.LetValue) -> None:
    index = printer.type(DataType.Index)
    if stmt.symbol.lo == 0:
        value = printer.operand(stmt.value, DataType.Index)
        printer.line(f"const {index} {printer.symbol_name(stmt.symbol)} = {value};")
        return
    printer.required.add("index_below")
    value = printer.operand(stmt.value, k.operand_dtype(stmt.value))
    value = call(f"fw::index_below<{index}>", value, printer.expr(stmt.extent))
    if stmt.pred is not k.TRUE:
        value = conditional(printer.expr(stmt.pred), value, printer.expr(const(-1)))
    printer.line(f"const {index} {printer.symbol_name(stmt.symbol)} = {value};")


def let_misalignment(printer: KernelPrinter, stmt: k.LetMisalignment) -> None:
    printer.required.add("misalignment")
    value = call(f"fw::misalignment<{stmt.width}>", printer.name(stmt.buffer.name))
    printer.line(f"const {printer.type(DataType.Index)} {printer.symbol_name(stmt.symbol)} = {value};")


def for_(printer: KernelPrinter, stmt: k.For) -> None:
    extent, name = printer.expr(stmt.extent), printer.symbol_name(stmt.symbol)
    if stmt.unroll:
        printer.line("#pragma unroll")
    kind = printer.type(DataType.Index)
    with printer.nested(f"for ({kind} {name} = 0; {name} < {extent}; ++{name})"):
        printer.statements(stmt.body)


def if_(printer: KernelPrinter, stmt: k.If) -> None:
    with printer.nested(f"if ({printer.expr(stmt.cond)})"):
        printer.statements(stmt.body)


def bind(printer: KernelPrinter, stmt: k.Bind) -> None:
    """Variables for the names, which the block finds the values of by halving; then the body."""
    with printer.nested(""):
        for name in stmt.names:
            if isinstance(name, k.ScalarParam):
                printer.line(f"{printer.declaration(name)};")
            else:
                qualifier = "" if name.buffer in printer.written else "const "
                printer.line(f"{qualifier}{printer.type(name.buffer.dtype)}* {printer.param_name(name)};")
        _choice(printer, stmt, 0, len(stmt.choices))
        printer.statements(stmt.body)


def _choice(printer: KernelPrinter, stmt: k.Bind, first: int, end: int) -> None:
    """Assigns the choice among those from `first` to `end`."""
    if end - first == 1:
        for name, param in zip(stmt.names, stmt.choices[first]):
            printer.line(f"{printer.param_name(name)} = {printer.param_name(param)};")
        return
    half = (first + end) // 2
    start = stmt.starts[half - 1]
    with printer.nested(f"if ({printer.expr(lt(stmt.position, start))})"):
        _choice(printer, stmt, first, half)
    with printer.nested("else"):
        _choice(printer, stmt, half, end)


def compute(printer: KernelPrinter, stmt: k.Compute) -> None:
    op, target = stmt.op, stmt.dst.buffer.dtype
    spelling = stmt.spelling
    if printer.spares_registers:
        spelling = spelling.sparing or spelling
    printer.required.update(spelling.snippets)
    args = [printer.operand(arg, dtype) for arg, dtype in zip(stmt.args, op.operand_dtypes(stmt.dtype))]
    value = spelling.render(args, stmt.dtype)
    result = op.result_of(stmt.dtype)
    for used in (result, target):
        printer.type(used)
    printer.assign(stmt.dst, convert(value, result, target, printer.index_dtype))


def init(printer: KernelPrinter, stmt: k.Init) -> None:
    dtype = printer.reduced(stmt.op, stmt.dst)
    values = zip(stmt.dst, stmt.op.identity(dtype), stmt.op.state_dtypes(dtype))
    texts = [(ref, literal(value, state, printer.index_dtype)) for ref, value, state in values]
    with printer.each(stmt.width) as w:
        for ref, text in texts:
            printer.assign(ref, text, w)


def combine(printer: KernelPrinter, stmt: k.Combine) -> None:
    """Where a predicate only chooses between two values of a register, the machine needs no branch."""
    dtype = printer.reduced(stmt.op, stmt.dst)
    into = [printer.element(ref) for ref in stmt.dst]
    if stmt.width > 1:
        [run] = stmt.src
        assert isinstance(run, k.Ref)
        if run.buffer.dtype is not dtype:
            printer.required.add("extremum_run")
        text = stmt.op.render_run(into, printer.address(run), stmt.width, run.buffer.dtype)
    else:
        values = printer.contributions(stmt.op, dtype, stmt.src)
        text = stmt.op.combining(dtype).render(into, values, dtype, stmt.in_order)
    if stmt.pred is k.TRUE:
        printer.line(text + ";")
        return
    pred = printer.expr(stmt.pred)
    target, is_assignment, value = text.partition(" = ")
    if is_assignment and all(map(is_at_hand, stmt.src)):
        printer.required.add("select")
        printer.line(f"{target} = {call('fw::select', pred, value, target)};")
        return
    with printer.nested(f"if ({pred})"):
        printer.line(text + ";")


def hold(printer: KernelPrinter, stmt: k.Hold) -> None:
    printer.required.add("hold")
    printer.line(f"fw::hold({printer.name(stmt.buffer.name)});")


def issue_loads(printer: KernelPrinter, stmt: k.IssueLoads) -> None:
    printer.required.add("issue_loads")
    printer.line("fw::issue_loads();")
