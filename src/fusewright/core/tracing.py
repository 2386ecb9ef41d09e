"""Tracing: the seconds of each stage, and printed forms of the requested stages.

A `Tracer` is passed as an argument through the stages of one compilation; there is no global tracer. If
nothing is requested, a stage costs one call, a dump costs one dictionary look-up, and no text is built.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from time import perf_counter
from typing import TextIO

from fusewright.core.dump_folder import FILE_SUFFIXES
from fusewright.core.errors import OptionError
from fusewright.core.options import DUMP_STAGES, Options

#: The dumps of what happens once for equal segments.
COMPILATION_STAGES = frozenset({"params", "schedule", "kernel", "cuda", "ptxas", "ptx", "sass"})

_NOTHING: AbstractContextManager[None] = nullcontext()


@dataclass(slots=True)
class StageTime:
    """Time of one stage, inclusive of the stages inside it. `depth` is its nesting."""

    depth: int = 0
    seconds: float = 0.0
    count: int = 0


class _Stage:
    """Times one `with tracer.stage(name)` block."""

    __slots__ = ("_name", "_start", "_times", "_tracer")

    def __init__(self, tracer: Tracer, name: str) -> None:
        self._tracer = tracer
        self._name = name

    def __enter__(self) -> None:
        self._times = self._tracer._enter(self._name)
        self._start = perf_counter()

    def __exit__(self, *_: object) -> None:
        self._times.seconds += perf_counter() - self._start
        self._times.count += 1
        self._tracer._leave()


class _Nesting(threading.local):
    """The open stages of a thread: several threads may compile segments under one tracer."""

    def __init__(self) -> None:
        self.path: list[str] = []


class Tracer:
    """Collects the times of named stages and prints the dumps that `options` request.

    Args:
        options: whose `dump` requests are honoured.
        stream: where dumps go; None: what `sys.stderr` is at the time.
        timing: whether to time stages (about a microsecond each).
    """

    def __init__(
        self, options: Options | None = None, stream: TextIO | None = None, *, timing: bool = True
    ) -> None:
        self._dumps = dict(options.dump) if options is not None else {}
        if options is not None and options.dump_dir is not None:
            # Written to files once it is known where a kernel is used.
            self._dumps = {s: titles for s, titles in self._dumps.items() if s not in FILE_SUFFIXES}
        self._stream = stream
        self._timing = timing or "time" in self._dumps
        self._nesting = _Nesting()
        #: whether there is nothing that it shows
        self.is_silent = not self._timing and not self._dumps
        self.stages: dict[str, StageTime] = {}

    # ---- stages ----------------------------------------------------------------------------------

    def stage(self, name: str) -> AbstractContextManager[None]:
        """Time the block under `name`. Nested stages are keyed by their path: `lower/index`."""
        return _Stage(self, name) if self._timing else _NOTHING

    def _enter(self, name: str) -> StageTime:
        path = self._nesting.path
        key = f"{path[-1]}/{name}" if path else name
        times = self.stages.get(key)
        if times is None:
            times = self.stages.setdefault(key, StageTime(depth=len(path)))
        path.append(key)
        return times

    def _leave(self) -> None:
        self._nesting.path.pop()

    def to_dict(self) -> dict[str, dict[str, float | int]]:
        """Maps the path of a stage to its seconds and its number of runs, in the order in which stages first
        began.
        """
        return {key: {"seconds": times.seconds, "count": times.count} for key, times in self.stages.items()}

    def table(self) -> str:
        """The same as aligned text, in milliseconds, inner stages indented."""
        if not self.stages:
            return "no stages were timed"
        rows = [
            ("  " * times.depth + key.rpartition("/")[2], times.seconds * 1e3, times.count)
            for key, times in self.stages.items()
        ]
        width = max(len(name) for name, _, _ in rows)
        return "\n".join(
            f"{name:<{width}}  {milliseconds:9.3f} ms" + (f"  x{count}" if count > 1 else "")
            for name, milliseconds, count in rows
        )

    # ---- dumps -----------------------------------------------------------------------------------

    def wants(self, stage: str, title: str = "") -> bool:
        """Whether a dump of `stage` is requested; with a title, whether this one is.

        Raises:
            OptionError: `stage` is none of `DUMP_STAGES`.
        """
        titles = self._dumps.get(stage)
        if titles is None:
            if stage not in DUMP_STAGES:
                raise OptionError(option="dump stage", given=repr(stage), expected=", ".join(DUMP_STAGES))
            return False
        return not titles or not title or title in titles

    @property
    def dumps_compilation(self) -> bool:
        """Whether a step between a segment and its machine code is dumped."""
        return not COMPILATION_STAGES.isdisjoint(self._dumps)

    def dump(self, stage: str, text: str | Callable[[], str], title: str = "") -> None:
        """Print `text` (called only if wanted) under a heading; `title` tells several of a stage apart."""
        if not self.wants(stage, title):
            return
        body = text if isinstance(text, str) else text()
        heading = f"{stage}: {title}" if title else stage
        stream = sys.stderr if self._stream is None else self._stream
        # One write: dumps of compilations in other threads do not come between the lines.
        stream.write(f"==== fusewright {heading} ====\n{body.rstrip()}\n\n")
        stream.flush()


#: Times and prints nothing, and holds nothing: for callers that have no tracer.
SILENT = Tracer(timing=False)
