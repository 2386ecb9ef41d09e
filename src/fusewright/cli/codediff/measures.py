"""The resources of a dumped kernel. Its text is compiled here, so that both sides use one compiler."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from typing import Any

from fusewright.cli.codediff.dumped import NEUTRAL_NAME, DumpedKernel
from fusewright.core.errors import CompileError
from fusewright.cuda.instructions import read_code
from fusewright.cuda.nvrtc import NvrtcOptions, compile_cubin_and_ptx, disassembler, sass


@dataclass(frozen=True)
class Code:
    """A compiled text. registers: a thread. spilled: bytes of stores and loads. shared: static bytes.

    instructions: counted in `language`, "SASS" or "PTX". image: the machine code; problem: why there is none.
    """

    registers: int = 0
    spilled: int = 0
    shared: int = 0
    instructions: int = 0
    language: str = ""
    image: bytes = b""
    problem: str = ""


class Measurer:
    """Compiles texts, each distinct one once, several side by side."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, str], Code] = {}

    def measure(self, kernels: Iterable[DumpedKernel], progress: Callable[[int, int], None]) -> None:
        """Compiles what `of` will be asked for; `progress(done, of all)` is told."""
        todo = {_key(kernel): kernel for kernel in kernels}
        todo = {key: kernel for key, kernel in todo.items() if key not in self._made}
        with ThreadPoolExecutor(max(2, os.cpu_count() or 1)) as pool:
            found = zip(todo, pool.map(_compiled, todo.values()))
            for done, (key, code) in enumerate(found, 1):
                self._made[key] = code
                progress(done, len(todo))

    def of(self, kernel: DumpedKernel) -> Code | None:
        """None: it was not compiled."""
        return self._made.get(_key(kernel))


def _key(kernel: DumpedKernel) -> tuple[str, str]:
    return kernel.digest, json.dumps(kernel.use.options, sort_keys=True)


def _compiled(kernel: DumpedKernel) -> Code:
    try:
        cubin, ptx = compile_cubin_and_ptx(kernel.text, _options(kernel))
    except CompileError as error:
        return Code(problem=error.message)
    taken = cubin.resources[NEUTRAL_NAME]
    language = "PTX" if disassembler() is None else "SASS"
    code, _ = read_code(ptx if language == "PTX" else sass(cubin), language)
    spilled = taken.spill_stores + taken.spill_loads
    return Code(taken.registers, spilled, taken.static_shared, len(code), language, cubin.image)


def _options(kernel: DumpedKernel) -> NvrtcOptions:
    """Fields that another version had, and this one has not, have no effect here."""
    given = kernel.use.options
    known: dict[str, Any] = {f.name: given[f.name] for f in fields(NvrtcOptions) if f.name in given}
    known["defines"] = tuple((name, value) for name, value in known.get("defines", ()))
    return NvrtcOptions(**known)
