"""Compiled kernels: artefacts, names from content, machine code when it is needed, and failures."""

from __future__ import annotations

import dataclasses
import threading

import pytest

from fusewright.core.dtype import DataType
from fusewright.core.enums import ParallelType
from fusewright.core.errors import CompileError, ParamsError
from fusewright.core.hardware import described
from fusewright.core.options import Options
from fusewright.core.tracing import Tracer
from fusewright.cuda.nvrtc import NvrtcOptions, compile_cubin
from fusewright.ir import Fusion
from fusewright.ops.build_elementwise import apply
from fusewright.ops.build_inputs import add_output, define_scalar, define_tensor
from fusewright.runtime.arguments import Pointer, Size, Stride, Value
from fusewright.runtime.compiler import KernelCompiler
from fusewright.runtime.launch_sizes import LaunchSizes
from fusewright.runtime.machine_code import MachineCode, compile_all
from fusewright.schedule import Schedule
from fusewright.schedulers import Facts, PointwiseScheduler, propose
from fusewright.sym import Symbol

H200 = described("h200")
TRACER = Tracer()


def fusion() -> Fusion:
    f = Fusion()
    x, y = define_tensor(f, [-1, -1], True), define_tensor(f, [-1, -1], False)
    s = define_scalar(f, None, DataType.Float)
    add_output(f, apply(f, "mul", apply(f, "add", x, y), s))
    f.unify_extents()
    return f


def compile_kernel(f: Fusion, index_dtype: DataType = DataType.Int32, *, params=None, tracer=TRACER):
    scheduler = PointwiseScheduler()
    (x, *_) = f.tensors()
    sizes = {e: size for e, size in zip(x.extents, (64, 128)) if isinstance(e, Symbol)}
    facts = Facts(sizes, ((128, 1), (128, 1), ()), (16, 16, 16), index_dtype)
    if params is None:
        params = propose(scheduler, f, facts, H200)
    compiler = KernelCompiler(Options.from_environment())
    return compiler, compiler.compile(f, scheduler, params, H200, index_dtype, tracer=tracer)


def test_artefacts():
    _, kernel = compile_kernel(fusion())
    assert kernel.scheduler == "pointwise" and kernel.params is not None and kernel.reason
    assert kernel.name in kernel.cuda_text and kernel.cuda_text in kernel.full_text
    assert "schedule" in kernel.schedule_text and "T0" in kernel.scheduled_ir()
    assert "TransformPrinter" in kernel.scheduled_ir(transforms=True)
    assert len(kernel.arguments) == len(kernel.kernel.params)
    kinds = [type(source) for source in kernel.arguments]
    assert kinds[:3] == [Pointer] * 3 and kinds.count(Value) == 1
    assert {source.slot for source in kernel.arguments if isinstance(source, Pointer)} == {0, 1, 3}
    assert all(isinstance(source, (Size, Stride)) for source in kernel.symbols.values())


def test_name_is_made_of_the_content():
    names = {compile_kernel(fusion())[1].name for _ in range(2)}
    assert len(names) == 1
    assert compile_kernel(fusion(), index_dtype=DataType.Int)[1].name not in names


@pytest.mark.parametrize("parallel, threads", [(True, 2), (False, 1)])
def test_cubins_of_several_kernels(parallel, threads, monkeypatch):
    codes = [compile_kernel(fusion(), dtype)[1].code() for dtype in (DataType.Int32, DataType.Int)]
    used = set()
    together = threading.Barrier(threads)
    cubin = MachineCode.cubin

    def watched(code, tracer):
        used.add(threading.get_ident())
        together.wait(timeout=60)  # for ever, if kernels came one after another
        return cubin(code, tracer)

    with monkeypatch.context() as patch:
        patch.setattr(MachineCode, "cubin", watched)
        compile_all(codes, parallel)
    tracer = Tracer()
    assert [set(code.cubin(tracer).resources) for code in codes] == [{code.name} for code in codes]
    assert "nvrtc" not in tracer.stages
    assert len(used) == threads and (threading.get_ident() in used) == (threads == 1)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100"])
def test_cubin_for_any_architecture(arch):
    _, kernel = compile_kernel(fusion())
    cubin = kernel.cubin(arch)
    assert cubin.arch == arch and kernel.cubin(arch) is cubin
    resources = kernel.resources(arch)
    assert resources == compile_cubin(kernel.full_text, NvrtcOptions(arch)).resources[kernel.name]
    assert 0 < resources.registers <= 255 and resources.spill_stores == 0


def stages(tracer: Tracer) -> dict[str, int]:
    """How often each stage of compiling ran, of those that did."""
    made = {name: times.count for name, times in tracer.stages.items() if "/" not in name}
    return {name: made[name] for name in ("schedule", "lower", "print", "nvrtc") if name in made}


def test_another_register_limit_schedules_and_lowers_nothing():
    tracer = Tracer()
    _, kernel = compile_kernel(fusion(), tracer=tracer)
    assert stages(tracer) == {"schedule": 1, "lower": 1, "print": 1}
    params = dataclasses.replace(
        kernel.params, cparams=dataclasses.replace(kernel.params.cparams, maxrregcount=20)
    )
    assert params == kernel.with_register_limit(20).params
    limited = compile_kernel(fusion(), params=params, tracer=tracer)[1]
    assert limited is kernel.with_register_limit(20, tracer) is limited.with_register_limit(20)
    assert limited.schedule is kernel.schedule and limited.name != kernel.name
    assert (limited.register_limit, kernel.register_limit) == (20, None)
    assert limited.resources(tracer=tracer).registers <= 20 < kernel.resources().registers
    assert stages(tracer) == {"schedule": 1, "lower": 1, "print": 1, "nvrtc": 1}
    for wrong in (0, 256, "32"):
        with pytest.raises(ParamsError, match="`limit`: expected 1 to 255 registers"):
            kernel.with_register_limit(wrong)
    # A block has to fit: 1024 threads of 64 registers are all that an SM has.
    large = dataclasses.replace(kernel, kernel=dataclasses.replace(kernel.kernel, max_threads=1024))
    assert "__maxnreg__(64)" in large.with_register_limit(101).cuda_text
    assert "__maxnreg__(100)" in kernel.with_register_limit(100).cuda_text


def test_larger_blocks_are_compiled_for_once_each():
    """Where the block is a call's, machine code is made for 256 threads, for 512 and for all that there may
    be: by printing and NVRTC alone, and when a launch first needs it.
    """
    schedule = Schedule(fusion())
    (out,) = schedule.fusion.output_tensors()
    schedule.merge(out, 0)
    schedule.parallelize(out, 0, ParallelType.block_x)
    schedule.transform_like(out)
    schedule.parallelize_like(out)
    schedule.inline_most()
    compiler, tracer = KernelCompiler(Options()), Tracer()
    kernel = compiler.compile_schedule(schedule, H200, DataType.Int, tracer=Tracer())
    assert not kernel.has_fixed_block and kernel.launch_bounds == 1024
    counts = []
    for threads in (64, 256, 300, 512, 1000, 64, 300):
        code = kernel.code(threads, tracer=tracer)
        code.cubin(tracer)
        counts.append((stages(tracer).get("print", 0), stages(tracer)["nvrtc"]))
        bound = 256 if threads <= 256 else 512 if threads <= 512 else 1024
        assert f"__launch_bounds__({bound})" in code.text
    assert counts == [(1, 1), (1, 1), (2, 2), (2, 2), (2, 3), (2, 3), (2, 3)]
    assert set(stages(tracer)) == {"print", "nvrtc"} and kernel.code().text == kernel.full_text
    fixed = compile_kernel(fusion())[1]
    assert fixed.has_fixed_block and fixed.code(64) is fixed.code(1024) is fixed.code()


def test_text_that_nvrtc_refuses_comes_with_source():
    _, kernel = compile_kernel(fusion())
    broken = dataclasses.replace(
        kernel, source=dataclasses.replace(kernel.source, text=kernel.full_text + "\nint broken = ;\n")
    )
    with pytest.raises(CompileError) as error:
        broken.cubin()
    assert "int broken = ;" in str(error.value) and error.value.source == broken.full_text


def test_schedule_of_a_user():
    schedule = Schedule(fusion())
    schedule.inline_most()
    compiler = KernelCompiler(Options())
    kernel = compiler.compile_schedule(schedule, H200, DataType.Int, tracer=TRACER)
    assert "inline_most" in kernel.schedule_text
    assert kernel.scheduler == "user" and kernel.params is None and kernel.reason == ""
    shape = LaunchSizes(kernel).shape(dict.fromkeys(kernel.symbols, 8))
    assert shape.grid == shape.block == (1, 1, 1)
