"""Worker processes that hang or die lose what they were doing, and nothing else."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest

from fusewright.core.errors import TuneError
from fusewright.tune.pool import Done, Pool, wait_for
from fusewright.tune.process import Fatal, untimed


def _work() -> Callable[[str], str]:
    def do(job: str) -> str:
        if job == "hang":
            time.sleep(60)
        if job == "long":
            time.sleep(1.0)
        if job == "busy":
            start = time.process_time()
            while time.process_time() < start + 0.6:
                pass
        if job == "wait":
            with untimed():
                time.sleep(0.8)
        if job == "die":
            os._exit(9)
        if job == "fatal":
            raise Fatal("the GPU is lost")
        if job == "fail":
            raise ValueError("no such thing")
        return job.upper()

    return do


def _broken() -> Callable[[str], str]:
    raise ValueError("no GPU")


def _all(pool: Pool[str]) -> dict[str, Done[str]]:
    found = {}
    while pool.pending:
        found.update({done.job: done for done in pool.step()})
        wait_for([pool], 0.05)
    return found


def test_a_job_that_hangs_or_dies_is_lost_alone():
    with Pool[str](_work, 1, seconds=0.5) as pool:
        for job in ("a", "hang", "b", "wait", "die", "fatal", "fail", "c"):
            pool.submit(job)
        done = _all(pool)
    assert [done[job].result for job in "abc"] == ["A", "B", "C"]
    assert done["hang"].hung and done["hang"].problem == "took longer than 0.5 s"
    assert done["wait"].result == "WAIT"
    assert done["die"].problem == "the process ended with exit code 9"
    assert done["fatal"].problem == "the GPU is lost"
    assert done["fail"].problem == "ValueError: no such thing"


def test_nobody_waits_for_a_job_that_is_disowned_and_its_process_does_others_then():
    with Pool[str](_work, 1, seconds=30.0) as pool:
        for job in ("long", "a", "b"):
            pool.submit(job)
        while not pool.begun:
            assert not list(pool.step())
            wait_for([pool], 0.05)
        [(job, seconds)] = pool.begun
        assert job == "long" and 0 <= seconds < 30
        pool.disown([job])
        assert pool.pending == 2 and pool.begun == []
        [process] = [worker.process.pid for worker in pool._workers]
        assert {job: done.result for job, done in _all(pool).items()} == {"a": "A", "b": "B"}
        pool.submit("long")
        while not pool.begun:
            list(pool.step())
        pool.submit("a")
        pool.disown()
        assert pool.pending == 0
        pool.submit("b")
        assert [done.result for done in _all(pool).values()] == ["B"]
        assert [worker.process.pid for worker in pool._workers] == [process]


def test_what_a_job_takes_of_a_processor_is_known_and_sleep_is_none_of_it():
    most = {}
    with Pool[str](_work, 1, seconds=30.0) as pool:
        for job in ("long", "busy"):
            pool.submit(job)
        while pool.pending:
            most.update(pool.begun)
            list(pool.step())
            wait_for([pool], 0.02)
    assert most["long"] < 0.3 < most["busy"] < 1.0


def test_processes_that_cannot_start_are_an_error():
    with Pool[str](_broken, 1, seconds=1.0) as pool, pytest.raises(TuneError, match="no GPU"):
        pool.submit("a")
        _all(pool)
