"""The autotuner's own heuristics, one per file. Users add theirs to `default_heuristics()`."""

from __future__ import annotations

from fusewright.tune.heuristic import HeuristicRegistry
from fusewright.tune.heuristics.broadcasts import Broadcasts
from fusewright.tune.heuristics.built_in import BuiltIn
from fusewright.tune.heuristics.few_columns import FewColumns
from fusewright.tune.heuristics.near_sizes import NearSizes
from fusewright.tune.heuristics.persistent_rows import PersistentRows
from fusewright.tune.heuristics.seed_table import SeedTable
from fusewright.tune.heuristics.transposes import Transposes
from fusewright.tune.heuristics.variations import Variations
from fusewright.tune.heuristics.wide_vectors import WideVectors

__all__ = [
    "Broadcasts",
    "BuiltIn",
    "FewColumns",
    "NearSizes",
    "PersistentRows",
    "SeedTable",
    "Transposes",
    "Variations",
    "WideVectors",
    "default_heuristics",
]

_DEFAULT = HeuristicRegistry(
    [
        BuiltIn(),
        WideVectors(),
        Variations(),
        PersistentRows(),
        FewColumns(),
        Broadcasts(),
        Transposes(),
    ]
)


def default_heuristics() -> HeuristicRegistry:
    """The heuristics of a search that is given no others."""
    return _DEFAULT
