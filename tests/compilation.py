"""Every kernel that a test generates is compiled by NVRTC, for each architecture that Fusewright serves.

Kernels are collected as they are printed and compiled many to a program: the device snippets, which take most
of NVRTC's time, are then parsed once (10 ms a kernel and architecture instead of 31).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fusewright.core.errors import CompileError
from fusewright.cuda import snippets
from fusewright.cuda.nvrtc import NvrtcOptions, compile_cubin
from fusewright.cuda.printer import CudaSource

ARCHITECTURES = ("sm_80", "sm_90a", "sm_100")
# More kernels a program save little: 0.4 ms each from 20 to 40.
BATCH = 32
_INDEX_TYPE = re.compile(r"typedef ([\w ]+) index_t;")


@dataclass(frozen=True)
class Printed:
    """A kernel, and the test that it comes from."""

    source: CudaSource
    test: str

    @property
    def index_type(self) -> str:
        found = _INDEX_TYPE.search(self.source.text)
        return found[1] if found else "int"


class CompileCheck:
    """Kernels that wait to be compiled; each distinct one is compiled once.

    Attributes:
        test: what is running.
        misread: of the first kernel of this test whose text is not the kernel: what is wrong.
    """

    def __init__(self) -> None:
        self.test = ""
        self.misread: AssertionError | None = None
        self._waiting: dict[str, Printed] = {}
        self._seen: set[str] = set()

    def add(self, source: CudaSource) -> None:
        if source.text not in self._seen:
            self._seen.add(source.text)
            self._waiting[source.text] = Printed(source, self.test)

    def raise_misread(self) -> None:
        """AssertionError if the text of a kernel was not the kernel."""
        misread, self.misread = self.misread, None
        if misread is not None:
            raise misread

    def compile(self, least: int = 1) -> None:
        """Compiles what waits, if that are `least` kernels.

        Raises:
            AssertionError: NVRTC refuses some; with the log, the source and the test of the first.
        """
        if len(self._waiting) < least:
            return
        waiting, self._waiting = list(self._waiting.values()), {}
        failures = [
            failure
            for batch in _batches(waiting)
            for arch in ARCHITECTURES
            if not _compiles(batch, arch)
            for failure in _failures(batch, arch)
        ]
        if failures:
            raise AssertionError("\n\n".join([f"{len(failures)} kernels do not compile", failures[0]]))


def _batches(printed: Sequence[Printed]) -> Iterator[list[Printed]]:
    for index_type in sorted({p.index_type for p in printed}):
        alike = [p for p in printed if p.index_type == index_type]
        for first in range(0, len(alike), BATCH):
            yield alike[first : first + BATCH]


def _compiles(batch: Sequence[Printed], arch: str) -> bool:
    """All kernels as one program, each in a namespace of its own."""
    wanted = snippets.closure(name for p in batch for name in p.source.snippets)
    parts = [f"namespace fw {{\ntypedef {batch[0].index_type} index_t;\n}}"]
    parts += [snippets.text(name) for name in wanted]
    parts += [f"namespace kernel{i} {{\n{p.source.kernel}\n}}" for i, p in enumerate(batch)]
    try:
        cubin = compile_cubin("\n".join(parts), NvrtcOptions(arch))
    except CompileError:
        return False
    return cubin.resources.keys() >= {p.source.name for p in batch}


def _failures(batch: Sequence[Printed], arch: str) -> Iterator[str]:
    """Each kernel by itself, to say which ones fail."""
    found = False
    for printed in batch:
        try:
            compile_cubin(printed.source.text, NvrtcOptions(arch))
        except CompileError as error:
            found = True
            yield f"{printed.test}, {arch}:\n{error}\n{printed.source.kernel}"
    if not found:
        names = ", ".join(p.source.name for p in batch)
        yield f"{arch}: these kernels compile one by one, but not together: {names}"
