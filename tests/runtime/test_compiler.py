"""KernelCompiler: artefacts, names from content, machine code for any architecture, and failures."""

from __future__ import annotations

import dataclasses
import threading

import pytest

from fusewright.core.dtype import DataType
from fusewright.core.errors import CompileError
from fusewright.core.hardware import described
from fusewright.core.options import Options
from fusewright.core.tracing import Tracer
from fusewright.ir import Fusion
from fusewright.ops.build_elementwise import apply
from fusewright.ops.build_inputs import add_output, define_scalar, define_tensor
from fusewright.runtime.arguments import Pointer, Size, Stride, Value
from fusewright.runtime.compiler import KernelCompiler
from fusewright.runtime.launch_sizes import LaunchSizes
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


def compile_kernel(f: Fusion, index_dtype: DataType = DataType.Int32):
    scheduler = PointwiseScheduler()
    (x, *_) = f.tensors()
    sizes = {e: size for e, size in zip(x.extents, (64, 128)) if isinstance(e, Symbol)}
    facts = Facts(sizes, ((128, 1), (128, 1), ()), (16, 16, 16), index_dtype)
    params = propose(scheduler, f, facts, H200)
    compiler = KernelCompiler(Options.from_environment())
    return compiler, compiler.compile(f, scheduler, params, H200, index_dtype, tracer=TRACER)


def test_artefacts():
    _, kernel = compile_kernel(fusion())
    assert kernel.scheduler == "pointwise" and kernel.params is not None and kernel.reason
    assert kernel.name in kernel.cuda_text and kernel.cuda_text in kernel.full_text
    assert "schedule" in kernel.schedule_python and "T0" in kernel.scheduled_ir()
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


@pytest.mark.parametrize("disable, threads", [((), 2), ((("parallel_compile", ()),), 1)])
def test_cubins_of_several_kernels(disable, threads, monkeypatch):
    compiler = KernelCompiler(Options(disable=disable))
    kernels = [compile_kernel(fusion(), index_dtype)[1] for index_dtype in (DataType.Int32, DataType.Int)]
    used = set()
    together = threading.Barrier(threads)
    cubin = compiler.cubin

    def watched(kernel, **kwargs):
        used.add(threading.get_ident())
        together.wait(timeout=60)  # for ever, if kernels came one after another
        return cubin(kernel, **kwargs)

    monkeypatch.setattr(compiler, "cubin", watched)
    cubins = compiler.cubins(kernels, tracer=Tracer())
    assert [set(c.resources) for c in cubins] == [{kernel.name} for kernel in kernels]
    assert len(used) == threads and (threading.get_ident() in used) == (threads == 1)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100"])
def test_cubin_for_any_architecture(arch):
    compiler, kernel = compile_kernel(fusion())
    cubin = compiler.cubin(kernel, arch, tracer=TRACER)
    assert cubin.arch == arch and compiler.cubin(kernel, arch, tracer=TRACER) is cubin
    resources = compiler.resources(kernel, arch, tracer=TRACER)
    assert 0 < resources.registers <= 255 and resources.spill_stores == 0


def test_register_limit_reaches_the_compiler():
    compiler, kernel = compile_kernel(fusion())
    params = dataclasses.replace(
        kernel.params, cparams=dataclasses.replace(kernel.params.cparams, maxrregcount=32)
    )
    assert compiler._nvrtc_options(params, "sm_80").max_registers == 32
    assert compiler._nvrtc_options(kernel.params, "sm_80").max_registers is None
    assert not KernelCompiler(Options(disable=(("fma", ()),)))._nvrtc_options(None, "sm_80").fma


def test_text_that_nvrtc_refuses_comes_with_source():
    compiler, kernel = compile_kernel(fusion())
    broken = dataclasses.replace(
        kernel, source=dataclasses.replace(kernel.source, text=kernel.full_text + "\nint broken = ;\n")
    )
    with pytest.raises(CompileError) as error:
        compiler.cubin(broken, tracer=TRACER)
    assert "int broken = ;" in str(error.value) and error.value.source == broken.full_text


def test_schedule_of_a_user():
    schedule = Schedule(fusion())
    schedule.inline_most()
    compiler = KernelCompiler(Options())
    kernel = compiler.compile_schedule(schedule, H200, DataType.Int, tracer=TRACER)
    assert "inline_most" in kernel.schedule_python
    assert kernel.scheduler == "user" and kernel.params is None and kernel.reason == ""
    shape = LaunchSizes(kernel).shape(dict.fromkeys(kernel.symbols, 8))
    assert shape.grid == shape.block == (1, 1, 1)
