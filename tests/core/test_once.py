"""OnceCache: one computation a key, errors are not kept, and no more values than the limit."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from functools import partial

import pytest

from fusewright.core.once import OnceCache, cached_property


def test_values_may_weigh_more_than_one():
    cache: OnceCache[str, str] = OnceCache(limit=10, weight=len)
    for value in ("aaaa", "bbbb", "cc"):
        cache.put(value, value)
    cache.put("aaaa", "a")
    cache.put("dddd", "dddd")
    assert [key for key in ("a", "bbbb", "cc", "dddd") if key in cache] == ["bbbb", "cc", "dddd"]
    cache.put("longer than all", "longer than all")
    assert len(cache) == 1 and "longer than all" in cache
    cache.forget("longer than all")
    cache.put("e", "e")
    cache.clear()
    assert len(cache) == 0


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


def test_oldest_goes_when_there_are_too_many():
    cache: OnceCache[int, int] = OnceCache(limit=3)
    for key in range(3):
        cache.put(key, key)
    cache.put(0, 10)
    assert cache.find(0) == 10 and len(cache) == 3
    cache.put(3, 3)
    assert [key for key in range(5) if key in cache] == [1, 2, 3] and cache.find(0) is None


def test_threads_that_insert_and_evict_at_once():
    """Every insertion of one thread may come between two steps of another's eviction."""
    cache: OnceCache[tuple[int, int], int] = OnceCache(limit=4)
    errors: list[BaseException] = []

    def fill(thread: int) -> None:
        try:
            for i in range(5000):
                assert cache.get((thread, i), partial(int, i)) == i
        except BaseException as error:
            errors.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=fill, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not errors and len(cache) == 4


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


class Slow:
    """An object whose property takes until it is let go."""

    started, free = threading.Event(), threading.Event()

    def __init__(self, waits: bool) -> None:
        self.waits = waits

    @cached_property
    def value(self) -> list[int]:
        if self.waits:
            self.started.set()
            self.free.wait()
        return [1]


def test_a_property_is_kept_and_holds_up_no_other_object_nor_a_child():
    slow = Slow(waits=True)
    thread = threading.Thread(target=lambda: slow.value)
    thread.start()
    Slow.started.wait()
    quick = Slow(waits=False)
    assert quick.value is quick.value
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)
        os._exit(0 if Slow(waits=False).value == [1] else 1)
    Slow.free.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert slow.value is slow.value
