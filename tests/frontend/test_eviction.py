"""The cache of definitions is bounded: the least recently used one goes, and what only it needs."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from fusewright import FusionCache, FusionDefinition
from fusewright.core.errors import ArgumentTypeError, DefinitionError, OptionError
from fusewright.core.options import Options
from fusewright.frontend.recorded.cache import TrieNode
from tests.frontend.test_recording import defined, scaled_by, softmax


def _small_cache(limit: int) -> FusionCache:
    FusionCache.reset()
    return FusionCache.get(max_fusions=limit)


def _nodes(node: TrieNode) -> int:
    return 1 + sum(map(_nodes, node.children.values()))


def test_the_least_recently_used_definition_is_evicted() -> None:
    cache = _small_cache(2)
    first, second = defined(scaled_by(1.0)), defined(scaled_by(2.0))
    assert defined(scaled_by(1.0)).id() == first.id()  # used again
    third = defined(scaled_by(3.0))
    assert (cache.num_fusions(), first.id(), third.id()) == (2, 0, 2)
    with pytest.raises(DefinitionError, match=r"no cached definition with id 1(.*\n)*.*evicted"):
        FusionDefinition(1)
    x = torch.randn(4)
    torch.testing.assert_close(second.execute([x])[0], 2 * x)  # whoever holds it may go on
    assert repr(FusionDefinition(0)) == repr(first)  # a look-up is a use
    assert defined(scaled_by(2.0)).id() == 3
    with pytest.raises(DefinitionError, match="id 2"):
        FusionDefinition(2)
    assert "Total Fusions: 2" in cache.stats() and "Cache Hits: 1 " in cache.stats()


def test_eviction_frees_the_definition_and_its_nodes() -> None:
    cache = _small_cache(3)
    sizes = []
    leaves = []
    for i in range(20):
        leaves.append(weakref.ref(defined(scaled_by(float(i)))._complete()))
        sizes.append(_nodes(cache.root))
    gc.collect()
    assert len(set(sizes[3:])) == 1
    assert [leaf() is not None for leaf in leaves] == [False] * 17 + [True] * 3


def test_a_prefix_of_another_definition_is_evicted_alone() -> None:
    def short(fd: FusionDefinition) -> None:
        fd.add_output(fd.define_tensor([-1]) * 2.0)

    def long(fd: FusionDefinition) -> None:
        short(fd)
        fd.add_output(fd.define_tensor([-1]))

    for evicted, kept in ((short, long), (long, short)):
        _small_cache(2)
        defined(evicted)
        number = defined(kept).id()
        defined(scaled_by(9.0))
        assert defined(kept).id() == number
        assert defined(evicted).id() == 3, evicted.__name__


def test_a_definition_that_is_evicted_while_it_is_written_again() -> None:
    _small_cache(1)
    defined(softmax)
    fd = FusionDefinition()
    with fd:
        x = fd.define_tensor([-1])
        y = x * 2.0
        with FusionDefinition() as other:
            other.add_output(other.define_tensor([-1, -1]))
        fd.add_output(y)
    torch.testing.assert_close(fd.execute([torch.ones(3)])[0], torch.full((3,), 2.0))


def test_the_limit_is_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSEWRIGHT_MAX_FUSIONS", "2")
    assert Options.from_environment().max_fusions == 2
    FusionCache.reset()
    for i in range(5):
        defined(scaled_by(float(i)))
    assert FusionCache.get().num_fusions() == 2
    for wrong in ("0", "-1", "many", "1e3", "9" * 5000):
        monkeypatch.setenv("FUSEWRIGHT_MAX_FUSIONS", wrong)
        with pytest.raises(OptionError, match="FUSEWRIGHT_MAX_FUSIONS"):
            Options.from_environment()
    for bad in (0, -1, 1.5, "3", True):
        with pytest.raises(ArgumentTypeError, match="max_fusions"):
            FusionCache(bad)  # type: ignore[arg-type]
