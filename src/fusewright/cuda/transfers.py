"""Prints copies between registers and memory, and stores to positions that several threads may name."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fusewright.core.code import Code, call, conditional, subscript
from fusewright.core.enums import CacheOp
from fusewright.core.hardware import REGISTER_BYTES
from fusewright.cuda.spelling import CACHE_SUFFIX
from fusewright.kernel.ir import TRUE, Convert, Copy, Ref, Scatter, Space, Window
from fusewright.sym import Expr

if TYPE_CHECKING:
    from fusewright.cuda.printer import KernelPrinter

#: Bytes of the widest element that one register or two hold.
MOST_READ_ALONE = 8


def copy(printer: KernelPrinter, stmt: Copy) -> None:
    dst, src, fill, width = stmt.dst, stmt.src, stmt.fill, stmt.width
    if stmt.pred is not TRUE and fill is None:
        with printer.nested(f"if ({printer.expr(stmt.pred)})"):
            copy(printer, replace(stmt, pred=TRUE))
        return
    if stmt.asynchronous:
        assert isinstance(src, Ref)
        printer.required.add("copy_async")
        printer.line(f"fw::copy_async<{width}>({printer.address(dst)}, {printer.address(src)});")
        return
    suffix = CACHE_SUFFIX[stmt.cache]
    spaces = {ref.buffer.space for ref in (dst, src) if isinstance(ref, Ref)}
    hinted = suffix and Space.GLOBAL in spaces and isinstance(src, Ref)
    if not isinstance(src, Ref) or (not hinted and (width == 1 or spaces == {Space.LOCAL})):
        with printer.each(width) as w:
            printer.assign(dst, _filled(printer, stmt, w), w)
        return
    printer.required.add("vec")
    if dst.buffer.space is Space.LOCAL:
        _load(printer, stmt, src, printer.address(dst))
    elif src.buffer.space is Space.LOCAL and fill is None:
        _store(printer, stmt, printer.address(src))
    elif not hinted and fill is None:
        printer.line(f"fw::copy<{width}>({printer.address(dst)}, {printer.address(src)});")
    else:
        with printer.nested(""):
            printer.line(f"{printer.type(dst.buffer.dtype)} partial[{width}];")
            if src.buffer.space is Space.LOCAL:
                with printer.each(width) as w:
                    printer.line(f"{subscript('partial', printer.expr(w))} = {_filled(printer, stmt, w)};")
            else:
                _load(printer, stmt, src, "partial")
            _store(printer, stmt, "partial")


def _filled(printer: KernelPrinter, stmt: Copy, offset: Expr) -> Code:
    """The value of one element of the source, or the fill."""
    if _is_read_alone(printer, stmt):
        assert isinstance(stmt.src, Ref) and stmt.fill is not None
        printer.required.add("read_if")
        fill = printer.operand(stmt.fill, stmt.dst.buffer.dtype)
        return call("fw::read_if", printer.expr(stmt.pred), printer.address(stmt.src), fill)
    value = printer.operand(stmt.src, stmt.dst.buffer.dtype, offset)
    if stmt.fill is None:
        return value
    return conditional(printer.expr(stmt.pred), value, printer.operand(stmt.fill, stmt.dst.buffer.dtype))


def _is_read_alone(printer: KernelPrinter, stmt: Copy) -> bool:
    """Whether it loads one element of what the kernel only reads, at an address that takes divisions."""
    src = stmt.src
    return (
        stmt.fill is not None
        and stmt.pred is not TRUE
        and stmt.width == 1
        and isinstance(src, Ref)
        and src.buffer in printer.read_only
        and src.buffer.dtype.size <= MOST_READ_ALONE
        and src.buffer.dtype is stmt.dst.buffer.dtype
        and printer.divides(src.index)
    )


def _load(printer: KernelPrinter, stmt: Copy, src: Ref, to: str) -> None:
    """The vector at `src`, or the fill, into the registers at `to`."""
    suffix = CACHE_SUFFIX[stmt.cache] if src.buffer.space is Space.GLOBAL else ""
    operands = [to, printer.address(src)]
    filled = ""
    if stmt.fill is not None:
        filled = "_word_or" if _is_word_in_order(printer, stmt, src) else "_or"
        operands += [printer.expr(stmt.pred), printer.operand(stmt.fill, stmt.dst.buffer.dtype)]
    printer.line(f"fw::load{suffix}{filled}<{stmt.width}>({', '.join(operands)});")


def _is_word_in_order(printer: KernelPrinter, stmt: Copy, src: Ref) -> bool:
    """Whether a word that is read once keeps its place among the loads: where the kernel states its
    registers, they are for these. (Where they are the compiler's choice, so many would leave few threads:
    sums of three misaligned inputs take 1.1 times as long on an H200.)
    """
    is_word = src.buffer.space is Space.GLOBAL and stmt.width * src.buffer.dtype.size <= REGISTER_BYTES
    return stmt.cache is CacheOp.streaming and is_word and printer.kernel.max_registers > 0


def _store(printer: KernelPrinter, stmt: Copy, source: str) -> None:
    """The registers at `source` into the vector at dst."""
    suffix = CACHE_SUFFIX[stmt.cache] if stmt.dst.buffer.space is Space.GLOBAL else "_shared"
    printer.line(f"fw::store{suffix}<{stmt.width}>({printer.address(stmt.dst)}, {source});")


def window(printer: KernelPrinter, stmt: Window) -> None:
    """Elements of registers at a place that differs between threads."""
    printer.required.add("window")
    operands = [printer.address(stmt.dst), printer.address(stmt.src), printer.expr(stmt.offset)]
    printer.line(f"fw::window<{stmt.width}>({', '.join(operands)});")


def convert_run(printer: KernelPrinter, stmt: Convert) -> None:
    """Elements of registers as another type, two at a time."""
    printer.type(stmt.dst.buffer.dtype)
    operands = [printer.address(stmt.dst), printer.address(stmt.src)]
    printer.line(f"fw::convert<{stmt.width}>({', '.join(operands)});")


def scatter(printer: KernelPrinter, stmt: Scatter) -> None:
    """A store if any of several values may remain, else a call for all elements of the vector."""
    dst, dtype = stmt.dst, stmt.dst.buffer.dtype
    if stmt.op is None:
        copy(printer, Copy(dst, stmt.src, stmt.width, pred=stmt.pred))
        return
    if stmt.pred is not TRUE:
        with printer.nested(f"if ({printer.expr(stmt.pred)})"):
            scatter(printer, replace(stmt, pred=TRUE))
        return
    snippet = f"atomic_{stmt.op.name}"
    printer.required.add(snippet)
    if dtype.is_complex:
        printer.required.add(f"{snippet}_complex")
    if stmt.width == 1:
        operands = [printer.address(dst), printer.operand(stmt.src, dtype)]
        printer.line(call(f"fw::{snippet}", *operands) + ";")
        return
    assert isinstance(stmt.src, Ref)
    printer.line(call(f"fw::{snippet}<{stmt.width}>", printer.address(dst), printer.address(stmt.src)) + ";")
