"""Kernels of hand-written statements for the tests of single passes."""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.core.dtype import DataType
from fusewright.kernel import ir as k
from fusewright.kernel.text import kernel_text
from fusewright.sym import Expr, as_expr, symbol
from tests.kernel import builders as b

T = k.index_symbol(b.BX, as_expr(32))
N = symbol("n", lo=0)
I = symbol("i", lo=0)  # noqa: E741
J = symbol("j", lo=0, hi=1)

X = b.tensor("X", DataType.Float, as_expr(1024))
Y = b.tensor("Y", DataType.Float, as_expr(1024), output=True)
S, U = b.shared("S", DataType.Float, 32), b.shared("U", DataType.Float, 64)
R = b.local("R", DataType.Float, 8)


def copy(dst: k.Buffer, src: k.Buffer, dst_index: Expr | int = 0, src_index: Expr | int = 0) -> k.Copy:
    return k.Copy(b.at(dst, dst_index), b.at(src, src_index))


def loop(extent: Expr | int, *body: k.Stmt, index: Expr = I, unroll: bool = False) -> k.For:
    return k.For(index, as_expr(extent), body, unroll)


def kernel(*body: k.Stmt, allocs: Sequence[k.Buffer] = (S, U, R)) -> k.Kernel:
    size = k.ScalarParam("n", DataType.Index, N)
    return b.kernel("k", [X, Y, size], [*map(k.Alloc, allocs), *body], [1], [32])


def lines(result: k.Kernel) -> list[str]:
    """The statements as text, one a line, without parameters and allocations."""
    text = kernel_text(result).splitlines()
    return [line.strip() for line in text[1:] if line.startswith("  ") and not _is_header(line.strip())]


def _is_header(line: str) -> bool:
    return line.startswith(("param", "grid", "require", "align")) or ": shared" in line or ": local" in line
