"""Kernels that tests generate are compiled by NVRTC, for an architecture that Fusewright serves.

Its digest says for which one: each architecture gets its share of any kind of kernel, the same in every run.
A kernel with text of its own for some architectures is compiled for all of them, and so is the first one that
includes a device snippet with such text. These, and a share of all others, become machine code, with little
optimization: it finds the same errors in less time, seconds less where much is unrolled. The rest is held to
the rules of the language (types, templates, operands of assembler), in a fifteenth of the time: what else may
be refused is what snippets say, and what a kernel takes of registers and memory. One with clusters or
mbarriers is compiled for those architectures that have them.

Kernels are collected as they are printed and compiled many to a program: the device snippets are then parsed
once (30 ms).
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from fusewright.core.errors import CompileError
from fusewright.cuda import snippets
from fusewright.cuda.nvrtc import NvrtcOptions, compile_cubin, compile_ptx
from fusewright.cuda.printer import CudaSource

ARCHITECTURES = ("sm_80", "sm_90a", "sm_100")
# More kernels a program save little: 0.4 ms each from 20 to 40.
BATCH = 32
_SINCE_HOPPER = ("sm_90a", "sm_100")
# Of each so many kernels one is assembled: with 8, these took two thirds of the time.
ASSEMBLED_EACH = 24
_INDEX_TYPE = re.compile(r"typedef ([\w ]+) index_t;")
# Whether it compiles, and to what, is a question of the architecture.
_OF_AN_ARCHITECTURE = re.compile(r"__CUDA_ARCH__|\basm\b")


@dataclass(frozen=True)
class Unoptimized(NvrtcOptions):
    """NVRTC's options for the least time up to a cubin: `min` and `max` take longer."""

    def arguments(self) -> list[str]:
        return [*super().arguments(), "--Ofast-compile=mid"]


@dataclass(frozen=True)
class SyntaxOnly(NvrtcOptions):
    """NVRTC's options for finding errors of the language, and making no code."""

    def arguments(self) -> list[str]:
        virtual = NvrtcOptions(self.arch.replace("sm_", "compute_"))
        return [*virtual.arguments(), "--fdevice-syntax-only"]


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

    def __init__(self, claim: Callable[[str], bool] = lambda name: True, each: int = 1) -> None:
        """`claim(name)`: whether a text, or a snippet for all architectures, is this check's to compile, and
        no other worker's. Of `each` so many kernels that need no machine code one is compiled.
        """
        self.test = ""
        self.misread: AssertionError | None = None
        self._claim = claim
        self._each = each
        # By options and index type, which the kernels of a program have in common.
        self._waiting: dict[tuple[NvrtcOptions, str], list[Printed]] = defaultdict(list)
        self._seen: set[str] = set()
        self._tried: set[str] = set()  # snippets that were compiled for all architectures

    def add(self, source: CudaSource) -> None:
        if source.text in self._seen:
            return
        self._seen.add(source.text)
        digest = hashlib.sha256(source.text.encode()).hexdigest()
        if self._claim(digest):
            printed = Printed(source, self.test)
            for options in self._options(source, int(digest, 16)):
                self._waiting[options, printed.index_type].append(printed)

    def _options(self, source: CudaSource, digest: int) -> Sequence[NvrtcOptions]:
        """What a kernel is compiled with, each in turn."""
        known = _SINCE_HOPPER if {"cluster_reduce", "mbarrier"} & set(source.snippets) else ARCHITECTURES
        untried = {
            name
            for name in snippets.closure(source.snippets)
            if name not in self._tried and _OF_AN_ARCHITECTURE.search(snippets.text(name))
        }
        self._tried |= untried
        claimed = [name for name in sorted(untried) if self._claim(f"snippet-{name}")]
        if claimed or _OF_AN_ARCHITECTURE.search(source.kernel):
            return [Unoptimized(arch) for arch in known]
        share, arch = divmod(digest, len(known))
        if share % ASSEMBLED_EACH == 0:
            return [Unoptimized(known[arch])]
        return [SyntaxOnly(known[arch])] if share % self._each == 0 else []

    def raise_misread(self) -> None:
        """AssertionError if the text of a kernel was not the kernel."""
        misread, self.misread = self.misread, None
        if misread is not None:
            raise misread

    def compile(self, least: int = 1) -> None:
        """Compiles what waits, of the options and index types for which that are `least` kernels.

        Raises:
            AssertionError: NVRTC refuses some; with the log, the source and the test of the first.
        """
        failures: list[str] = []
        for (options, index_type), waiting in self._waiting.items():
            if len(waiting) < least:
                continue
            self._waiting[options, index_type] = []
            for first in range(0, len(waiting), BATCH):
                batch = waiting[first : first + BATCH]
                if not _compiles(batch, options):
                    failures += _failures(batch, options)
        if failures:
            raise AssertionError("\n\n".join([f"{len(failures)} kernels do not compile", failures[0]]))


def _compiles(batch: Sequence[Printed], options: NvrtcOptions) -> bool:
    """All kernels as one program, each in a namespace of its own."""
    wanted = snippets.closure(name for p in batch for name in p.source.snippets)
    parts = [f"namespace fw {{\ntypedef {batch[0].index_type} index_t;\n}}"]
    parts += [snippets.text(name) for name in wanted]
    parts += [f"namespace kernel{i} {{\n{p.source.kernel}\n}}" for i, p in enumerate(batch)]
    try:
        found = check_text("\n".join(parts), options)
    except CompileError:
        return False
    return found is None or found >= {p.source.name for p in batch}


def check_text(text: str, options: NvrtcOptions) -> set[str] | None:
    """The names of a text's kernels; None: options ask for no code. CompileError if it does not compile."""
    if isinstance(options, SyntaxOnly):
        compile_ptx(text, options)
        return None
    return set(compile_cubin(text, options).resources)


def _failures(batch: Sequence[Printed], options: NvrtcOptions) -> Iterator[str]:
    """Each kernel by itself, to say which ones fail."""
    found = False
    for printed in batch:
        try:
            check_text(printed.source.text, options)
        except CompileError as error:
            found = True
            yield f"{printed.test}, {options.arch}:\n{error}\n{printed.source.kernel}"
    if not found:
        names = ", ".join(p.source.name for p in batch)
        yield f"{options.arch}: these kernels compile one by one, but not together: {names}"
