"""A folder of dumped kernels: the names of its files, and the index that maps these names to kernels.

The base name `fusewright_<scheduler>_f<fusion>_c<concretization>_r<runtime>_g<segment>` says where a kernel
is used:

* fusion: numbers the fusions of the folder, in the order in which they are first compiled.
* concretization: numbers the partitions of the fusion into segments.
* runtime: numbers the sets of kernels of the concretization; a segment with another kernel starts a new one.
* segment: numbers the segments in launch order; several in one launch have the number of the first.

`index.jsonl` has one line for each base name. Several threads and processes may write to one folder: each
file appears complete under a unique name, and each line of the index is written by one append.

This module uses only the standard library, so that `fusewright codediff` can use it in an older revision of
Fusewright that has no dump folders.
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
    """A line of the index: one use of a kernel.

    Attributes:
        kernel: the kernel's name in CUDA.
        scheduler: the scheduler's name.
        fusion, concretization, runtime, segment: the numbers in the base name.
        test: the test that compiled it; "" outside of pytest.
        definition: a digest of the fusion's text, which matches fusions of two runs.
        options: the fields of the `NvrtcOptions` that compiled it.
        launch: `grid`, `block` and bytes of `shared` memory in the first call; None if it was not launched.
        files: the names of its files in the folder, by dump stage (`FILE_SUFFIXES`).
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
    """The common start of the names of a kernel's files. The type of a user's scheduler may be any text."""
    name = "".join(c if c.isascii() and c.isalnum() else "_" for c in scheduler)
    return f"fusewright_{name}_f{fusion}_c{concretization}_r{runtime}_g{segment}"


def running_test() -> str:
    """The test that runs, without the phase that pytest adds; "" outside of pytest."""
    return os.environ.get(TEST_VARIABLE, "").rpartition(" (")[0]


class DumpFolder:
    """Writes into a dump folder and creates it if necessary. Several threads and processes may use one
    folder.

    Raises:
        OSError: the folder cannot be made or written.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.path.mkdir(parents=True, exist_ok=True)
        self._next = 0  # no number below it is free; a guess that saves attempts

    def add_fusion(self, text: str) -> int:
        """A number for a fusion, unique in the folder; `fusewright_f<number>.txt` has the fusion's text.

        The file claims the number: creating a link fails if another thread or process has made the name.
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
