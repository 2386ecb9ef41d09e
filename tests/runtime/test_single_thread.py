"""torch's number of threads while a launch is simulated, and after it."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch

from fusewright.runtime.single_thread import SingleThread


@pytest.fixture(autouse=True)
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def test_one_thread_within_and_as_many_as_before_after_it() -> None:
    single = SingleThread()
    with single:
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 3


def test_an_error_restores_the_number() -> None:
    with pytest.raises(ValueError, match="inside"), SingleThread():
        raise ValueError("inside")
    assert torch.get_num_threads() == 3


def test_blocks_that_overlap_in_two_threads_restore_the_first_number() -> None:
    single = SingleThread()
    entered, leave = threading.Event(), threading.Event()
    seen: list[int] = []

    def other() -> None:
        with single:
            entered.set()
            leave.wait()
        seen.append(torch.get_num_threads())

    with single:
        thread = threading.Thread(target=other)
        thread.start()
        entered.wait()
    assert torch.get_num_threads() == 3
    leave.set()
    thread.join()
    assert seen == [3]
    assert torch.get_num_threads() == 3
