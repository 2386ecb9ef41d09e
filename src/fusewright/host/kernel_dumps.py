"""Writes the kernels of bound programs into the dump folder that the options name."""

from __future__ import annotations

import hashlib
import json
import threading
import weakref
from collections.abc import Callable, Hashable, Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from fusewright.core.dump_folder import FILE_SUFFIXES, DumpFolder, KernelUse, running_test
from fusewright.core.errors import OptionError
from fusewright.core.forks import renew_in_child
from fusewright.cuda import nvrtc

if TYPE_CHECKING:
    from fusewright.core.options import Options
    from fusewright.host.inputs.memory import Memory
    from fusewright.host.program.programs import BoundProgram
    from fusewright.ir import Fusion
    from fusewright.runtime.launch_sizes import LaunchShape
    from fusewright.runtime.machine_code import MachineCode

# The length of a definition's digest, in hex digits.
DIGEST_DIGITS = 16


class _Numbers:
    """The numbers of one fusion and its programs in one folder."""

    def __init__(self, folder: DumpFolder, text: str) -> None:
        self.definition = hashlib.sha256(text.encode()).hexdigest()[:DIGEST_DIGITS]
        self.fusion = folder.add_fusion(text)
        # segments -> kernels -> runtime number; the position of the segments is the concretization number.
        self._known: dict[Hashable, dict[Hashable, int]] = {}

    def of(self, segments: Hashable, kernels: Hashable) -> tuple[int, int, bool]:
        """(concretization number, runtime number, whether they are new) for these segments and kernels."""
        cut = self._known.setdefault(segments, {})
        is_new = kernels not in cut
        runtime = cut.setdefault(kernels, len(cut))
        return list(self._known).index(segments), runtime, is_new


class _Numbering:
    """The numbers of all fusions of this process. A child of `fork` counts its fusions anew."""

    def __init__(self) -> None:
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        self._lock = threading.Lock()
        self._by_fusion: weakref.WeakKeyDictionary[Fusion, dict[DumpFolder, _Numbers]]
        self._by_fusion = weakref.WeakKeyDictionary()

    def of(
        self, folder: DumpFolder, fusion: Fusion, program: BoundProgram, kernels: tuple[str, ...]
    ) -> tuple[_Numbers, int, int, bool]:
        """The fusion's numbers, then `_Numbers.of` for a program with these kernels."""
        parts = [part.segment for launch in program.launches for part in launch.parts]
        segments = tuple("" if segment is None else segment.text for segment in parts)
        with self._lock:
            known = self._by_fusion.setdefault(fusion, {})
            if folder not in known:
                known[folder] = _Numbers(folder, str(fusion))
            return known[folder], *known[folder].of(segments, kernels)


_numbering = _Numbering()


@cache
def _folder(path: Path) -> DumpFolder:
    try:
        return DumpFolder(path)
    except OSError as error:
        raise OptionError(
            f"FUSEWRIGHT_DUMP_DIR: {path} cannot be made: {error.strerror}",
            expected="a folder, or the name of one to be made",
            given=str(path),
        ) from None


def dump_kernels(fusion: Fusion, program: BoundProgram, memory: Memory, options: Options) -> None:
    """Writes each kernel of a program of `fusion` into `options.dump_dir`, unless it was written before.

    It writes the files of the stages that `options.dump` names. If none of these has files, it writes all.

    Raises:
        OptionError: the folder cannot be made.
        CompileError: NVRTC rejects a kernel whose machine code must be written.
        OSError: the folder cannot be written.
    """
    if not program.launches or options.dump_dir is None:
        return
    folder = _folder(Path(options.dump_dir).resolve())
    shapes = [launch.shape(memory) for launch in program.launches]
    codes = [
        launch.op.kernel.code(None if shape is None else shape.threads)
        for launch, shape in zip(program.launches, shapes)
    ]
    names = tuple(code.name for code in codes)
    numbers, concretization, runtime, is_new = _numbering.of(folder, fusion, program, names)
    if not is_new:
        return
    stages = [stage for stage, _ in options.dump if stage in FILE_SUFFIXES] or list(FILE_SUFFIXES)
    if "sass" in stages and nvrtc.disassembler() is None:
        stages.remove("sass")
    for launch, shape, code in zip(program.launches, shapes, codes):
        use = KernelUse(
            code.name,
            launch.op.kernel.scheduler,
            numbers.fusion,
            concretization,
            runtime,
            launch.op.segment,
            running_test(),
            numbers.definition,
            asdict(code.options),
            None if shape is None else _launch_of(shape),
        )
        made = _contents(code)
        folder.add_kernel(use, {stage: made[stage]() for stage in stages})


def _launch_of(shape: LaunchShape) -> dict[str, object]:
    return {"grid": shape.grid, "block": shape.block, "shared": shape.shared_bytes}


def _contents(code: MachineCode) -> Mapping[str, Callable[[], bytes]]:
    """For each stage, a function that returns the contents of its file."""

    def resources() -> bytes:
        return (json.dumps(asdict(code.resources()), indent=1) + "\n").encode()

    return {
        "cuda": code.text.encode,
        "ptx": lambda: code.ptx().encode(),
        "cubin": lambda: code.cubin().image,
        "sass": lambda: code.sass().encode(),
        "ptxas": resources,
    }
