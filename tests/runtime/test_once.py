"""OnceCache: one computation a key, errors are not kept."""

from __future__ import annotations

import threading
import time

import pytest

from fusewright.runtime.once import OnceCache


def test_threads_wait_for_one_computation():
    cache: OnceCache[str, int] = OnceCache()
    computed = []

    def compute() -> int:
        computed.append(1)
        time.sleep(0.05)
        return 7

    results: list[int] = []
    threads = [threading.Thread(target=lambda: results.append(cache.get("k", compute))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [7] * 6 and len(computed) == 1


def test_error_is_raised_and_not_kept():
    cache: OnceCache[str, int] = OnceCache()

    def fail() -> int:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        cache.get("k", fail)
    assert cache.get("k", lambda: 1) == 1
    cache.forget("k")
    assert len(cache) == 0


def test_one_key_does_not_hold_up_another():
    cache: OnceCache[str, int] = OnceCache()
    release = threading.Event()
    slow = threading.Thread(target=lambda: cache.get("slow", lambda: (release.wait(5) and 1) or 0))
    slow.start()
    assert cache.get("fast", lambda: 2) == 2
    release.set()
    slow.join()
    assert sorted(cache.values()) == [1, 2]
