"""The arguments of a combined kernel: the arguments of each part, and the first block of each part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fusewright.kernel.combine import block_count, part_symbol
from fusewright.kernel.ir import Kernel, ScalarParam
from fusewright.runtime.arguments import Pointer, Size, Source, Stride, Value
from fusewright.sym import ZERO, Expr, Symbol, substitute

if TYPE_CHECKING:
    from fusewright.runtime.compiled_kernel import CompiledKernel


def combined_sources(
    kernel: Kernel, parts: Sequence[CompiledKernel], slots: Sequence[int]
) -> tuple[tuple[Source, ...], Mapping[Symbol, Size | Stride]]:
    """The source of each parameter of `kernel` (`kernel.combine` of these parts), and of each of its symbols.

    The slots are those of the parts in order; a size of a part's fusion has the name `part_symbol`.

    Args:
        slots: how many each part has.
    """
    arguments: list[Source] = []
    symbols: dict[Symbol, Size | Stride] = {}
    starts: list[Size] = []
    first = 0
    blocks: Expr = ZERO
    for number, (part, count) in enumerate(zip(parts, slots)):
        arguments += [_moved(source, number, first) for source in part.arguments]
        for own, meaning in part.symbols.items():
            source = _moved(meaning, number, first)
            assert isinstance(source, (Size, Stride))
            symbols[part_symbol(number, own)] = source
        starts.append(Size(blocks))
        blocks = blocks + _renamed(_block_count(part), number)
        first += count
    starts.append(Size(blocks))
    for param, start in zip(kernel.params[len(arguments) :], starts):
        assert isinstance(param, ScalarParam) and param.symbol is not None
        symbols[param.symbol] = start
    return (*arguments, *starts), symbols


def _block_count(part: CompiledKernel) -> Expr:
    """Over the size symbols of the part's fusion."""
    sizes = {s: source.extent for s, source in part.symbols.items() if isinstance(source, Size)}
    return substitute(block_count(part.kernel.grid), sizes)


def _moved(source: Source, part: int, first: int) -> Source:
    if isinstance(source, Pointer):
        return Pointer(first + source.slot)
    if isinstance(source, Stride):
        return Stride(first + source.slot, source.dim)
    if isinstance(source, Value):
        return Value(first + source.slot, source.dtype)
    assert isinstance(source, Size)  # a part has no workspace
    return Size(_renamed(source.extent, part))


def _renamed(extent: Expr, part: int) -> Expr:
    return substitute(extent, {own: part_symbol(part, own) for own in extent.free_symbols})
