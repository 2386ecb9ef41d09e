"""A worker process: how it starts, what it runs, and when it ends.

It is a fresh interpreter that imports the modules that its setup needs, but not its parent's script. So the
script needs no `if __name__ == "__main__"`, and an interactive session works, too.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

#: Makes in a worker what does its jobs.
Setup = Callable[[], Callable[[Any], Any]]

# How often a worker looks whether its parent is still there.
WATCH_SECONDS = 1.0
_START = (  # nothing is imported before the path is the parent's
    "import sys; sys.path[:] = sys.argv[2].split('\\n'); "
    "from fusewright.tune.process import serve; serve(int(sys.argv[1]), int(sys.argv[3]))"
)
# What a worker executes is not tuned, nor what modules execute that it imports.
_REMOVED = ("FUSEWRIGHT_TUNE",)

#: Of a worker process: to its parent.
_parent: list[Connection] = []


class Fatal(Exception):
    """Raised by a job after which its process can do no other job, for example because its GPU reported an
    error.
    """


def start(setup: Setup) -> tuple[subprocess.Popen[bytes], Connection]:
    """Starts a process that serves requests, in its own session, so that an interrupt goes only to its
    parent.
    """
    ours, theirs = multiprocessing.Pipe()
    paths = "\n".join(path or os.getcwd() for path in sys.path)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-c", _START, str(theirs.fileno()), paths, str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=2,  # what a user's module prints is no output of the parent
            env={name: value for name, value in os.environ.items() if name not in _REMOVED},
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    with suppress(OSError):  # it ended at once, as its exit code says
        ours.send(setup)
    return process, ours


@contextmanager
def untimed(seconds: float | None = None) -> Iterator[None]:
    """A block of a job that waits for other processes: the time that the job may take counts anew after it.

    seconds: that it may take then; None: as any job.
    """
    for connection in _parent:
        connection.send(("waits", None))
    try:
        yield
    finally:
        for connection in _parent:
            connection.send(("goes on", seconds))


def processor_seconds(pid: int) -> float:
    """The processor time of a process; if the system does not tell, the time of a clock."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return time.monotonic()
    user, system = map(int, fields[11:13])  # "man proc": the 14th and the 15th, of which ")" ends the 2nd
    return (user + system) / os.sysconf("SC_CLK_TCK")


def serve(handle: int, parent: int) -> None:
    """What a worker process runs, until its parent closes the connection or ends."""
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    connection = Connection(handle)
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        _parent[:] = [connection]
        try:
            work = connection.recv()()
        except (EOFError, OSError):
            raise
        except Exception as error:
            connection.send(("unable", _text(error)))
            return
        connection.send(("ready", None))
        while True:
            job = connection.recv()
            try:
                reply = "done", work(job)
            except Fatal as error:
                connection.send(("fatal", str(error)))
                return
            except Exception as error:
                reply = "failed", _text(error)
            connection.send(reply)


def _watch(parent: int) -> None:
    """Ends this process with its parent, even while a kernel runs that never ends."""
    while os.getppid() == parent:
        time.sleep(WATCH_SECONDS)
    os._exit(1)


def _text(error: Exception) -> str:
    return "".join(traceback.format_exception_only(error)).strip()
