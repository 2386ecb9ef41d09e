"""What tests that count work have in common."""

from __future__ import annotations

import gc
import importlib
import pkgutil

from fusewright import sym


def forget_proofs() -> None:
    """Empties the caches of `sym`, so that a count does not depend on the tests before.

    What other tests hold is frozen: the collector would look through it at each call, for longer than most
    of the work takes that is counted.
    """
    for module in pkgutil.iter_modules(sym.__path__):
        for value in vars(importlib.import_module(f"{sym.__name__}.{module.name}")).values():
            if hasattr(value, "cache_clear"):
                value.cache_clear()
    gc.collect()
    gc.freeze()
