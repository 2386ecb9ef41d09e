"""The cyclic collector is off while something is compiled, and on again however that ends."""

from __future__ import annotations

import gc
import threading

import pytest

from fusewright.core.collector import paused_collector


@pytest.fixture(autouse=True)
def collector():
    gc.enable()
    yield
    gc.enable()


def test_it_is_on_again_after_an_error():
    with pytest.raises(ValueError, match="in it"), paused_collector():
        assert not gc.isenabled()
        raise ValueError("in it")
    assert gc.isenabled()


def test_the_last_of_several_threads_turns_it_on():
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with paused_collector():
            entered.set()
            leave.wait()

    thread = threading.Thread(target=other)
    thread.start()
    entered.wait()
    with paused_collector():
        pass
    assert not gc.isenabled()
    leave.set()
    thread.join()
    assert gc.isenabled()


def test_who_had_turned_it_off_finds_it_off():
    gc.disable()
    with paused_collector():
        pass
    assert not gc.isenabled()
