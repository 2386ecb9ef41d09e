"""Reads a dump folder (`core.dump_folder`)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from fusewright.core.dump_folder import FORMAT, INDEX, KernelUse
from fusewright.core.errors import DumpError
from fusewright.core.once import cached_property
from fusewright.runtime.identity import NAME_DIGITS

# What a kernel is called in a text whose kernels are compared.
NEUTRAL_NAME = "fusewright_kernel"
_KERNEL_NAME = re.compile(rf"\bfusewright_\w+?_[0-9a-f]{{{NAME_DIGITS}}}\b")


@dataclass(frozen=True)
class DumpedKernel:
    """A kernel where it is used."""

    use: KernelUse
    folder: Path

    @property
    def text(self) -> str:
        """The CUDA text without the kernel's own name. It is read each time: a suite's take a gigabyte."""
        name = self.use.files.get("cuda")
        if name is None:
            raise DumpError(
                f"{self.folder}: the CUDA text of {self.use.base} was not dumped",
                hint="dump with FUSEWRIGHT_DUMP_DIR alone, or with cuda in FUSEWRIGHT_DUMP",
            )
        try:
            text = (self.folder / name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise DumpError(f"{self.folder / name} cannot be read: {error}") from None
        return _KERNEL_NAME.sub(NEUTRAL_NAME, text)

    @cached_property
    def digest(self) -> str:
        """Of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def label(self) -> str:
        """Its base name, behind the test that it comes from, if any."""
        return f"{self.use.test}: {self.use.base}" if self.use.test else self.use.base


def is_dump_folder(path: Path) -> bool:
    return (path / INDEX).is_file()


def read_folder(path: Path) -> Sequence[DumpedKernel]:
    """The kernels of a dump folder, in the order of their numbers.

    Raises:
        DumpError: it has no index, or one that does not fit.
    """
    try:
        lines = (path / INDEX).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DumpError(f"{path} is no dump folder: {INDEX} cannot be read: {error}") from None
    kernels = [DumpedKernel(_use(line, f"{path / INDEX}:{i}"), path) for i, line in enumerate(lines, 1)]

    def order(kernel: DumpedKernel) -> tuple[int, int, int, int]:
        use = kernel.use
        return use.fusion, use.concretization, use.runtime, use.segment

    return sorted(kernels, key=order)


def _use(line: str, where: str) -> KernelUse:
    try:
        found = json.loads(line)
        given = found["format"]
        if given == FORMAT:
            return KernelUse(**{field.name: found[field.name] for field in fields(KernelUse)})
    except (ValueError, KeyError, TypeError) as error:
        problem = f"{type(error).__name__}: {error}"
        raise DumpError(f"{where} is no line of an index of kernels ({problem})") from None
    raise DumpError(f"{where} is of another version of Fusewright", expected=f"format {FORMAT}", given=given)
