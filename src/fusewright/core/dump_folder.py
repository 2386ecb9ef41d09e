"""A folder of dumped kernels: what its files are called, and the index that maps their names to kernels.

The base name `fusewright_<scheduler>_f<fusion>_c<concretization>_r<runtime>_g<segment>` says where a kernel
is used:

* fusion: counted in the folder, in the order in which fusions are first compiled.
* concretization: counted in the fusion, a new one where it is cut into other segments.
* runtime: counted in the concretization, a new one where a segment gets another kernel.
* segment: its number in launch order; of several in one launch that of the first.

`index.jsonl` has one line for each base name. Threads and processes may write into one folder at once: files
appear complete under names that nobody else has, and a line of the index is one append.

This module uses the standard library alone, so that `fusewright codediff` can have an older revision of
Fusewright, without dump folders, write one.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

INDEX = "index.jsonl"
#: Of the index; a reader refuses others.
FORMAT = 1
# Set by pytest to the running test, also for the processes that it starts.
TEST_VARIABLE = "PYTEST_CURRENT_TEST"


@dataclass(frozen=True)
class KernelUse:
    """A line of the index: one kernel where it is used.

    Attributes:
        kernel: its name in CUDA. scheduler: the scheduler's name.
        fusion, concretization, runtime, segment: the numbers in the base name.
        test: the test that compiled it; "" outside of pytest.
        definition: digest of the fusion's text, by which runs are matched.
        options: the fields of `NvrtcOptions` that it is compiled with.
        launch: `grid`, `block` and bytes of `shared` memory in the first call; None: nothing was launched.
        files: by dump stage (`FILE_SUFFIXES`), names in the folder.
    """

    kernel: str
    scheduler: str
    fusion: int
    concretization: int
    runtime: int
    segment: int
    test: str
    definition: str
    options: Mapping[str, Any]
    launch: Mapping[str, Any] | None
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def base(self) -> str:
        return base_name(self.scheduler, self.fusion, self.concretization, self.runtime, self.segment)


#: By dump stage, what its file's name ends in.
FILE_SUFFIXES: Mapping[str, str] = {
    "cuda": ".cu",
    "ptx": ".ptx",
    "cubin": ".cubin",
    "sass": ".sass",
    "ptxas": ".json",
}


def base_name(scheduler: str, fusion: int, concretization: int, runtime: int, segment: int) -> str:
    """What the names of a kernel's files have in common; a third party's scheduler may be any text."""
    name = "".join(c if c.isascii() and c.isalnum() else "_" for c in scheduler)
    return f"fusewright_{name}_f{fusion}_c{concretization}_r{runtime}_g{segment}"


def running_test() -> str:
    """The test that runs, without the phase that pytest adds; "" outside of pytest."""
    return os.environ.get(TEST_VARIABLE, "").rpartition(" (")[0]


class DumpFolder:
    """Writes into a dump folder, which is made if need be. Safe to use from several threads and processes.

    Raises:
        OSError: the folder cannot be made or written.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.path.mkdir(parents=True, exist_ok=True)
        self._next = 0  # no number below it is free; a guess that saves attempts

    def add_fusion(self, text: str) -> int:
        """A number for a fusion that no other one in the folder has; `fusewright_f<number>.txt` has its text.

        The file claims the number: a link to an existing name fails, whoever made that.
        """
        temporary = self._temporary(text.encode())
        try:
            number = self._next
            while True:
                try:
                    os.link(temporary, self.path / f"fusewright_f{number}.txt")
                except FileExistsError:
                    number += 1
                    continue
                self._next = number + 1
                return number
        finally:
            temporary.unlink()

    def add_kernel(self, use: KernelUse, contents: Mapping[str, bytes]) -> None:
        """Writes a kernel's files, by dump stage, and then its line of the index."""
        files = {stage: f"{use.base}{FILE_SUFFIXES[stage]}" for stage in contents}
        for stage, content in contents.items():
            self._temporary(content).replace(self.path / files[stage])
        line = json.dumps({"format": FORMAT, "base": use.base, **asdict(use), "files": files}) + "\n"
        descriptor = os.open(self.path / INDEX, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)

    def _temporary(self, content: bytes) -> Path:
        path = self.path / f"tmp-{os.getpid()}-{secrets.token_hex(8)}"
        path.write_bytes(content)
        return path
