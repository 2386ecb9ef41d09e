"""Names sizes that are products if the kernel does not need the factors.

    x[i0, i1 * i2]      becomes      x[i0, i3], where i3 is i1 * i2

So the size of a merged dimension is one number to the kernel, which can be assumed to be constant, or to be a
multiple of a vector width, like any other size. Element counts use it, too: a mean over all of x divides by
i0 * i3, which can then be a constant.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fusewright.ir.fusion import Fusion
from fusewright.sym import ZERO, Expr, Mul, Symbol, replace, symbol


def name_products(fusion: Fusion) -> None:
    """Names the sizes of `fusion` that are products whose factors are not needed, in place."""
    products = list(dict.fromkeys([a.extent for a in fusion.axes() if isinstance(a.extent, Mul)]))
    elsewhere: set[Symbol] = set()
    for e in _sizes(fusion) if products else ():
        elsewhere |= _symbols_beside(products, e)
    alone = (e for e in products if elsewhere.isdisjoint(e.free_symbols))
    fusion.name_sizes({e: e.coefficient for e in alone})


def _symbols_beside(products: Sequence[Expr], e: Expr) -> frozenset[Symbol]:
    """The symbols of `e` outside the products, and outside larger products that contain one of them."""
    try:
        return replace(e, dict.fromkeys(products, ZERO), {}).free_symbols
    except ZeroDivisionError:  # a product is a divisor, so it cannot be replaced by 0
        return replace(e, {each: symbol(f"product{i}") for i, each in enumerate(products)}, {}).free_symbols


def _sizes(fusion: Fusion) -> Iterator[Expr]:
    for axis in fusion.axes():
        yield from (e for e in (axis.extent, axis.expanded) if e is not None)
    for node in fusion.nodes:
        yield from node.index_expressions()
