"""The disk cache trusts nobody but its user: directory and entries are checked whenever they are used."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from fusewright.runtime.disk_cache import DiskCache
from tests.runtime.test_disk_cache import a_cubin, the_entry


@pytest.fixture
def cache(tmp_path: Path) -> DiskCache:
    """A cache with one entry."""
    cache = DiskCache(tmp_path / "cache")
    cache.store("key", a_cubin())
    assert cache.load("key") == a_cubin()
    return cache


def _directory(cache: DiskCache) -> Path:
    assert cache.directory is not None
    return cache.directory


def _refuses(cache: DiskCache) -> None:
    before = cache.stats()
    assert cache.load("key") is None
    assert cache.stats().misses == before.misses + 1 and cache.stats().hits == before.hits


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_directory_that_others_may_write_by_now(cache: DiskCache, mode: int) -> None:
    _directory(cache).chmod(mode)
    _refuses(cache)
    cache.store("other", a_cubin())
    assert len(list(_directory(cache).iterdir())) == 1
    _directory(cache).chmod(0o700)
    assert cache.load("key") == a_cubin()


def _owned_by_another(monkeypatch: pytest.MonkeyPatch, kind: Callable[[int], bool]) -> None:
    real = os.fstat

    def fstat(handle: int) -> os.stat_result:
        facts = real(handle)
        if not kind(facts.st_mode):
            return facts
        return os.stat_result([*facts[:4], facts.st_uid + 1, *facts[5:10]])

    monkeypatch.setattr(os, "fstat", fstat)


def test_a_directory_of_another_user_in_its_place(cache: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        _owned_by_another(patch, stat.S_ISDIR)
        _refuses(cache)
        cache.store("other", a_cubin())
    assert [entry.name for entry in _directory(cache).iterdir()] == ["key.cubin"]
    assert cache.load("key") == a_cubin()


def test_an_entry_of_another_user(cache: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        _owned_by_another(patch, stat.S_ISREG)
        _refuses(cache)
    cache.store("key", a_cubin())
    assert cache.load("key") == a_cubin()


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_an_entry_that_others_may_write(cache: DiskCache, mode: int) -> None:
    the_entry(_directory(cache)).chmod(mode)
    _refuses(cache)
    cache.store("key", a_cubin())
    assert cache.load("key") == a_cubin()


@pytest.mark.parametrize("what", ["link", "dangling link", "directory", "pipe"])
def test_an_entry_that_is_no_plain_file(cache: DiskCache, what: str, tmp_path: Path) -> None:
    entry = the_entry(_directory(cache))
    elsewhere = tmp_path / "elsewhere"
    content = entry.read_bytes()
    entry.unlink()
    if what == "link":
        elsewhere.write_bytes(content)
        entry.symlink_to(elsewhere)
    elif what == "dangling link":
        entry.symlink_to(elsewhere)
    elif what == "directory":
        entry.mkdir()
    else:
        os.mkfifo(entry)
    _refuses(cache)
    if what != "directory":
        cache.store("key", a_cubin())
        assert cache.load("key") == a_cubin()
        assert not entry.is_symlink()
    assert what != "link" or elsewhere.read_bytes() == content


def test_a_temporary_file_is_never_written_through_a_link(
    cache: DiskCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("secrets.token_hex", lambda _: "guessed")
    target = tmp_path / "target"
    (_directory(cache) / "tmp-guessed").symlink_to(target)
    cache.store("other", a_cubin())
    assert not target.exists() and cache.load("other") is None
