"""The disk cache: what it keys on, verification, eviction, permissions, and many processes at once."""

import multiprocessing
import os
from dataclasses import replace
from pathlib import Path

import pytest

from fusewright.core.errors import TuneError
from fusewright.core.options import Options
from fusewright.cuda.nvrtc import Cubin, NvrtcOptions, Resources
from fusewright.frontend.tuned.tuned_calls import journal_path
from fusewright.runtime import disk_cache
from fusewright.runtime.disk_cache import DiskCache, cubin_key, open_cache

SOURCE = 'extern "C" __global__ void k(float* a) { a[threadIdx.x] = 1.0f; }'
OPTIONS = NvrtcOptions("sm_90a")


def a_cubin(image: bytes = b"\x7fELF image") -> Cubin:
    return Cubin(image, "sm_90a", "log", {"k": Resources(8, 1, 2, 3, 4, 5)}, {"k<1>": "_Zk"}, 0.25)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def the_entry(directory: Path) -> Path:
    (entry,) = directory.glob("*.cubin")
    return entry


def test_an_entry_comes_back_whole_and_private(directory: Path) -> None:
    DiskCache(directory).store("key", a_cubin())
    assert DiskCache(directory).load("key") == a_cubin()
    assert directory.stat().st_mode & 0o777 == 0o700
    assert the_entry(directory).stat().st_mode & 0o777 == 0o600


def test_the_second_compilation_comes_from_the_disk(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = DiskCache(directory).compile(SOURCE, OPTIONS)
    monkeypatch.setattr(disk_cache, "compile_cubin", lambda *_: pytest.fail("compiled again"))
    cache = DiskCache(directory)
    assert cache.compile(SOURCE, OPTIONS) == first
    assert (cache.stats().hits, cache.stats().misses, cache.stats().entries) == (1, 0, 1)


def test_the_key_covers_all_that_the_code_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def keys() -> set[str]:
        return {
            cubin_key(SOURCE, OPTIONS),
            cubin_key(SOURCE + " ", OPTIONS),
            cubin_key(SOURCE, replace(OPTIONS, arch="sm_80")),
            cubin_key(SOURCE, replace(OPTIONS, max_registers=64)),
            cubin_key(SOURCE, replace(OPTIONS, fma=False)),
            cubin_key(SOURCE, replace(OPTIONS, defines=(("A", "1"),))),
            cubin_key(SOURCE, OPTIONS, names=("k",)),
        }

    before = keys()
    assert len(before) == 7 and before == keys()
    monkeypatch.setattr(disk_cache, "nvrtc_version", lambda: (99, 0))
    other_compiler = keys()
    monkeypatch.setattr(disk_cache, "__version__", "99")
    assert len(before | other_compiler | keys()) == 21


@pytest.mark.parametrize("damage", ["truncate", "flip image", "flip metadata", "empty", "other entry"])
def test_a_damaged_entry_is_deleted_and_compiled_again(directory: Path, damage: str) -> None:
    cache = DiskCache(directory)
    whole = cache.compile(SOURCE, OPTIONS)
    entry = the_entry(directory)
    content = bytearray(entry.read_bytes())
    if damage == "truncate":
        del content[-1]
    elif damage == "flip image":
        content[-1] ^= 1
    elif damage == "flip metadata":
        content[content.index(b"sm_90a")] ^= 1
    elif damage == "empty":
        content.clear()
    else:  # a valid entry under a wrong name
        cache.store("other", a_cubin())
        content[:] = (directory / "other.cubin").read_bytes()
        (directory / "other.cubin").unlink()
    entry.write_bytes(content)
    assert cache.load(entry.stem) is None and not entry.exists()
    assert cache.compile(SOURCE, OPTIONS).image == whole.image
    assert cache.load(entry.stem) is not None and cache.stats().corrupt == 1


def test_a_directory_that_others_may_write_is_not_used(directory: Path) -> None:
    directory.mkdir()
    directory.chmod(0o770)
    with pytest.warns(RuntimeWarning, match="not cached on disk: .*can be written by other users"):
        cache = DiskCache(directory)
    assert cache.compile(SOURCE, OPTIONS).image and list(directory.iterdir()) == []
    disabled = cache.stats().disabled
    assert disabled is not None and "other users" in disabled


def test_a_directory_of_another_user_is_not_used(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory.mkdir(mode=0o700)
    monkeypatch.setattr(os, "getuid", lambda: directory.stat().st_uid + 1)
    with pytest.warns(RuntimeWarning, match="belongs to another user"):
        cache = DiskCache(directory)
    cache.store("key", a_cubin())
    assert list(directory.iterdir()) == []


def test_where_no_directory_can_be_made_kernels_still_compile(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = DiskCache(tmp_path / "file" / "cache")
    assert cache.compile(SOURCE, OPTIONS).image and cache.stats().entries == 0


def test_a_disk_that_refuses_ends_storing_and_leaves_nothing(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = DiskCache(directory)
    cache.store("kept", a_cubin())

    def refuse(*_: object, **__: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", refuse)
    cache.store("lost", a_cubin())
    assert [path.name for path in directory.iterdir()] == ["kept.cubin"]
    assert cache.load("kept") == a_cubin()  # reading goes on


def test_the_entries_used_longest_ago_are_evicted(directory: Path) -> None:
    cache = DiskCache(directory, max_bytes=10 * 1300)
    for number in range(10):
        cache.store(str(number), a_cubin(bytes(1000)))
        os.utime(directory / f"{number}.cubin", (number, number))
    assert cache.load("0") is not None  # used just now
    cache.store("10", a_cubin(bytes(1000)))
    for number in range(11, 14):
        cache.store(str(number), a_cubin(bytes(1000)))
    kept = {path.stem for path in directory.glob("*.cubin")}
    assert {"0", "13"} <= kept and "1" not in kept
    stats = cache.stats()
    assert stats.bytes <= cache.max_bytes and stats.evicted == 14 - stats.entries > 0


def test_abandoned_temporary_files_go_and_recent_ones_stay(directory: Path) -> None:
    cache = DiskCache(directory)
    for name, age in (("tmp-old", disk_cache.ABANDONED_SECONDS + 60), ("tmp-new", 0)):
        (directory / name).write_bytes(b"")
        past = (directory / name).stat().st_mtime - age
        os.utime(directory / name, (past, past))
    cache.store("key", a_cubin())
    assert {path.name for path in directory.iterdir()} == {"tmp-new", "key.cubin"}
    cache.clear()
    assert cache.load("key") is None


def test_options_choose_the_directory(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_cache(Options(cache_dir=str(directory))).directory == directory
    assert open_cache(Options(disable=(("nvrtc_caching", ()),))).directory is None
    monkeypatch.setenv("XDG_CACHE_HOME", str(directory))
    assert open_cache(Options()).directory == directory / "fusewright"


def test_a_user_without_a_home_directory_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(number: int) -> None:
        raise KeyError(number)

    for name in ("XDG_CACHE_HOME", "HOME", "FUSEWRIGHT_CACHE_DIR", "FUSEWRIGHT_TUNE_JOURNAL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    assert open_cache(Options()).disabled == "no directory"
    with pytest.raises(TuneError, match=r"(?s)no home directory.*FUSEWRIGHT_CACHE_DIR"):
        journal_path()


def _write_and_read(directory: Path) -> tuple[int, int, int]:
    """(corrupt, stored, evicted) of what another process writes and evicts at the same time."""
    cache = DiskCache(directory, max_bytes=30_000)
    for step in range(200):
        key = str(step % 20)
        found = cache.load(key)
        assert found is None or found.image == key.encode() * 2000, f"wrong content for {key}"
        cache.store(key, Cubin(key.encode() * 2000, "sm_90a", "", {}, {}, 0.0))
    stats = cache.stats()
    return stats.corrupt, stats.stores, stats.evicted


def test_processes_share_a_directory_while_it_evicts(directory: Path) -> None:
    # Forked, they need not import torch.
    with multiprocessing.get_context("fork").Pool(2) as pool:
        for corrupt, stored, evicted in pool.map(_write_and_read, [directory] * 2, chunksize=1):
            assert (corrupt, stored) == (0, 200) and evicted > 0
    assert not list(directory.glob("tmp-*"))
