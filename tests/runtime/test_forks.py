"""A child of `fork` compiles and runs at once, whatever the parent's other threads were in the middle of."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch

from fusewright import FusionCache, FusionDefinition
from fusewright.core.once import OnceCache
from fusewright.core.options import Options
from fusewright.cuda import nvrtc
from fusewright.runtime.disk_cache import DiskCache, open_cache
from fusewright.runtime.random_states import random_states
from fusewright.runtime.single_thread import SINGLE_THREAD
from fusewright.sym import nodes

# Seconds after which a child hangs; it needs less than one.
LIMIT = 120
# While threads compile, which each child does once, too.
FORKS = 6
pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")


def _in_child(work: Callable[[], object]) -> int:
    """The exit code of a child that does the work; negative if it hung."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(LIMIT)
        try:
            work()
            os._exit(0)
        except BaseException:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _define_and_run(number: float) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1])
        fd.add_output(x * number)
    given = torch.ones(3)
    assert torch.equal(fd.execute([given])[0], given * number)
    nvrtc.compile_cubin(fd.last_cuda_code(intrinsic_code=True), nvrtc.NvrtcOptions("sm_90a"))


@contextmanager
def _held(*locks: threading.Lock) -> Iterator[None]:
    """A thread holds the locks meanwhile."""
    taken, done = threading.Event(), threading.Event()

    def hold() -> None:
        for lock in locks:
            lock.acquire()
        taken.set()
        done.wait()
        for lock in reversed(locks):
            lock.release()

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait()
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_every_lock_is_held_at_the_fork() -> None:
    _define_and_run(1.0)
    disk = open_cache(Options.from_environment())
    states = random_states(torch.device("cpu"))
    locks = [nodes._TABLE._lock, disk._lock, states._lock, SINGLE_THREAD._lock, FusionCache.get()._lock]
    with _held(*locks, FusionCache._guard):

        def in_child() -> None:
            _define_and_run(2.5)
            disk.stats()
            disk._count("hits")
            states.take()

        code = _in_child(in_child)
    assert code == 0


def test_a_value_that_another_thread_computes_at_the_fork() -> None:
    cache: OnceCache[int, str] = OnceCache()
    started, go_on = threading.Event(), threading.Event()

    def compute() -> str:
        started.set()
        go_on.wait()
        return "parent"

    thread = threading.Thread(target=lambda: cache.get(1, compute))
    thread.start()
    started.wait()

    def in_child() -> None:
        assert cache.get(1, lambda: "child") == "child"

    assert _in_child(in_child) == 0
    go_on.set()
    thread.join()
    assert cache.get(1, lambda: "late") == "parent"


def test_a_definition_that_another_thread_writes_at_the_fork() -> None:
    inside, go_on = threading.Event(), threading.Event()

    class Slow(FusionDefinition):
        def definition(self) -> None:
            self.add_output(self.define_tensor([-1]) * 3.0)
            if threading.current_thread() is not threading.main_thread():
                inside.set()
                go_on.wait()

    fd = Slow()
    thread = threading.Thread(target=lambda: fd.execute([torch.ones(2)]))
    thread.start()
    inside.wait()

    def in_child() -> None:
        assert torch.equal(fd.execute([torch.ones(2)])[0], torch.full((2,), 3.0))

    assert _in_child(in_child) == 0
    go_on.set()
    thread.join()
    assert torch.equal(fd.execute([torch.ones(2)])[0], torch.full((2,), 3.0))


def test_forks_wait_for_nvrtc() -> None:
    inside, go_on, forked = threading.Event(), threading.Event(), threading.Event()

    def compile_() -> None:
        with nvrtc._GATE.passage():
            inside.set()
            go_on.wait()
            assert not forked.is_set()

    def fork() -> None:
        assert _in_child(lambda: _define_and_run(4.0)) == 0
        forked.set()

    compiling, forking = threading.Thread(target=compile_), threading.Thread(target=fork)
    compiling.start()
    inside.wait()
    forking.start()
    assert not forked.wait(timeout=0.05)
    go_on.set()
    forking.join()
    compiling.join()
    assert forked.is_set()


def test_many_forks_while_threads_compile() -> None:
    stop = threading.Event()

    def work(first: int) -> None:
        number = first
        while not stop.is_set():
            number += 3
            _define_and_run(number / 8)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    try:
        codes = [_in_child(lambda: _define_and_run(0.5)) for _ in range(FORKS)]
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert codes == [0] * FORKS


def test_a_cache_on_disk_in_a_child() -> None:
    cache = DiskCache(None)
    with _held(cache._lock):
        assert _in_child(lambda: cache._count("hits")) == 0
