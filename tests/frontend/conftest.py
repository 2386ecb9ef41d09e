"""A cache of definitions of its own for every test of the front end."""

from collections.abc import Iterator

import pytest

from fusewright import FusionCache


@pytest.fixture(autouse=True)
def cache() -> Iterator[FusionCache]:
    FusionCache.reset()
    yield FusionCache.get()
    FusionCache.reset()
