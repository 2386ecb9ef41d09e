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
from fusewright.core.tracing import SILENT
from fusewright.cuda import nvrtc

if TYPE_CHECKING:
    from fusewright.core.options import Options
    from fusewright.host.memory import Memory
    from fusewright.host.plan import BoundProgram, LaunchPlan
    from fusewright.ir import Fusion
    from fusewright.runtime.compiler import CompiledKernel, KernelCompiler

# Hex digits of a definition's digest.
DIGEST_DIGITS = 16


class _Numbers:
    """How the programs of one fusion are counted in one folder."""

    def __init__(self, folder: DumpFolder, text: str) -> None:
        self.definition = hashlib.sha256(text.encode()).hexdigest()[:DIGEST_DIGITS]
        self.fusion = folder.add_fusion(text)
        # By segments, and for each by the kernels: what is a new number is a new key.
        self._known: dict[Hashable, dict[Hashable, int]] = {}

    def of(self, segments: Hashable, kernels: Hashable) -> tuple[int, int, bool]:
        """(concretization, runtime, whether it is new) of a program."""
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
        self, folder: DumpFolder, fusion: Fusion, program: BoundProgram
    ) -> tuple[_Numbers, int, int, bool]:
        """The numbers of the fusion, those of a program, whether it is new."""
        parts = [part.segment for launch in program.launches for part in launch.parts]
        segments = tuple("" if segment is None else segment.text for segment in parts)
        kernels = tuple(launch.op.kernel.name for launch in program.launches)
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


def dump_kernels(
    fusion: Fusion, program: BoundProgram, memory: Memory, compiler: KernelCompiler, options: Options
) -> None:
    """Writes each kernel of a program of `fusion` into `options.dump_dir`, unless it was written before.

    Files are those of the stages that `options.dump` names; all of them if it names none with files.

    Raises:
        OptionError: the folder cannot be made.
        CompileError: NVRTC refuses a kernel whose machine code is to be written.
        OSError: the folder cannot be written.
    """
    if not program.launches or options.dump_dir is None:
        return
    folder = _folder(Path(options.dump_dir).resolve())
    numbers, concretization, runtime, is_new = _numbering.of(folder, fusion, program)
    if not is_new:
        return
    stages = [stage for stage, _ in options.dump if stage in FILE_SUFFIXES] or list(FILE_SUFFIXES)
    if "sass" in stages and nvrtc.disassembler() is None:
        stages.remove("sass")
    for launch in program.launches:
        kernel = launch.op.kernel
        use = KernelUse(
            kernel.name,
            kernel.scheduler,
            numbers.fusion,
            concretization,
            runtime,
            launch.op.segment,
            running_test(),
            numbers.definition,
            asdict(compiler.nvrtc_options(kernel)),
            _launch_of(launch, memory),
        )
        made = _contents(kernel, compiler)
        folder.add_kernel(use, {stage: made[stage]() for stage in stages})


def _launch_of(launch: LaunchPlan, memory: Memory) -> dict[str, object] | None:
    shape = launch.shape(memory)
    if shape is None:
        return None
    return {"grid": shape.grid, "block": shape.block, "shared": shape.shared_bytes}


def _contents(kernel: CompiledKernel, compiler: KernelCompiler) -> Mapping[str, Callable[[], bytes]]:
    """What is in the file of each stage."""

    def resources() -> bytes:
        found = compiler.resources(kernel, tracer=SILENT)
        return (json.dumps(asdict(found), indent=1) + "\n").encode()

    return {
        "cuda": kernel.full_text.encode,
        "ptx": lambda: nvrtc.compile_ptx(kernel.full_text, compiler.nvrtc_options(kernel)).encode(),
        "cubin": lambda: compiler.cubin(kernel, tracer=SILENT).image,
        "sass": lambda: nvrtc.sass(compiler.cubin(kernel, tracer=SILENT)).encode(),
        "ptxas": resources,
    }
