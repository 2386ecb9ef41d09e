"""Matches the kernels of two dumps: those with the same use, whatever their text and names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

from fusewright.cli.codediff.dumped import DumpedKernel


@dataclass(frozen=True)
class Pair:
    """The kernels of one use; None where a dump has none."""

    old: DumpedKernel | None
    new: DumpedKernel | None


@dataclass(frozen=True)
class _Fusion:
    """The kernels of one fusion, by (concretization, runtime, segment)."""

    definition: str
    kernels: dict[tuple[int, int, int], DumpedKernel]

    @property
    def texts(self) -> Hashable:
        return tuple((key, kernel.digest) for key, kernel in self.kernels.items())


def matched(old: Iterable[DumpedKernel], new: Iterable[DumpedKernel]) -> list[Pair]:
    """Pairs in the order of the new dump's kernels, those that only the old one has after them.

    Fusions of one test correspond if they have the same definition, else if they have the same kernels, else
    by their order. Kernels of two such fusions correspond if they have the same numbers.
    """
    olds, news = _by_test(old), _by_test(new)
    pairs: list[Pair] = []
    for test in dict.fromkeys([*news, *olds]):
        for before, after in _matched_fusions(olds.get(test, []), news.get(test, [])):
            ours = {} if before is None else before.kernels
            theirs = {} if after is None else after.kernels
            pairs += [Pair(ours.get(key), theirs.get(key)) for key in dict.fromkeys([*theirs, *ours])]
    return pairs


def _by_test(kernels: Iterable[DumpedKernel]) -> dict[str, list[_Fusion]]:
    found: dict[str, dict[int, _Fusion]] = defaultdict(dict)
    for kernel in kernels:
        use = kernel.use
        fusion = found[use.test].setdefault(use.fusion, _Fusion(use.definition, {}))
        fusion.kernels[use.concretization, use.runtime, use.segment] = kernel
    return {test: list(fusions.values()) for test, fusions in found.items()}


def _matched_fusions(
    old: Sequence[_Fusion], new: Sequence[_Fusion]
) -> Iterable[tuple[_Fusion | None, _Fusion | None]]:
    keys: list[Callable[[_Fusion], Hashable]] = [
        lambda fusion: fusion.definition,
        lambda fusion: fusion.texts,
        lambda fusion: None,  # whatever is left, in order
    ]
    partners: dict[int, _Fusion] = {}
    left_old, left_new = list(old), list(new)
    for key in keys:
        if not left_old or not left_new:
            break
        waiting: dict[Hashable, list[_Fusion]] = defaultdict(list)
        for fusion in reversed(left_old):
            waiting[key(fusion)].append(fusion)
        for fusion in left_new:
            if candidates := waiting.get(key(fusion)):
                partners[id(fusion)] = candidates.pop()
        taken = {id(fusion) for fusion in partners.values()}
        left_old = [fusion for fusion in left_old if id(fusion) not in taken]
        left_new = [fusion for fusion in left_new if id(fusion) not in partners]
    return [*((partners.get(id(fusion)), fusion) for fusion in new), *((fusion, None) for fusion in left_old)]
