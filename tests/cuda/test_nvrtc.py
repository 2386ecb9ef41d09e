"""NVRTC: cubins for every architecture, the resource report, and errors that show the source."""

import pytest

from fusewright.core.errors import CompileError
from fusewright.cuda import nvrtc
from fusewright.cuda.nvrtc import NvrtcOptions, Resources, compile_cubin, compile_ptx, parse_resources

REVERSE = """
extern "C" __global__ void reverse(const float* in, float* out) {
  __shared__ float tile[256];
  tile[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = tile[255 - threadIdx.x] * FACTOR;
}
"""
DOUBLED = (("FACTOR", "2.0f"),)

# Printed by CUDA 12.9 and 13.0 alike: a spilling kernel, one that calls a function that was not inlined.
PTXAS_13 = """\
ptxas info    : Overriding maximum register limit 256 for '_Z2k3Pf' with  24 of maxrregcount option
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z2k3Pf' for 'sm_90a'
ptxas info    : Function properties for _Z2k3Pf
ptxas         .     456 bytes stack frame, 840 bytes spill stores, 832 bytes spill loads
ptxas info    : Used 24 registers, used 1 barriers, 456 bytes cumulative stack size
ptxas info    : Compile time = 62.834 ms
ptxas info    : Compiling entry function '_Z2k2Pf' for 'sm_90a'
ptxas info    : Function properties for _Z2k2Pf
ptxas         .     128 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 23 registers, used 0 barriers, 128 bytes cumulative stack size
ptxas info    : Compile time = 2.973 ms
ptxas info    : Function properties for _Z1ffi
ptxas         .     8 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads
"""
# The layout of earlier releases: no prefix before the stack line, other items in the last line.
PTXAS_OLD = """\
ptxas info    : Compiling entry function 'k' for 'sm_80'
ptxas info    : Function properties for k
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 40 registers, used 2 barriers, 1024 bytes smem, 400 bytes cmem[0], 8 bytes cmem[2]
"""


def test_resources_from_the_assemblers_log() -> None:
    assert parse_resources(PTXAS_13) == {
        "_Z2k3Pf": Resources(24, 840, 832, 0, 456, 1),
        "_Z2k2Pf": Resources(23, 0, 0, 0, 128, 0),
    }
    assert parse_resources(PTXAS_OLD) == {"k": Resources(40, 0, 0, 1024, 0, 2)}
    assert parse_resources("") == {}


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90a", "sm_100", "sm_120"])
def test_compiles_for_each_architecture(arch: str) -> None:
    cubin = compile_cubin(REVERSE, NvrtcOptions(arch, defines=DOUBLED))
    assert cubin.image.startswith(b"\x7fELF") and cubin.arch == arch and cubin.compile_seconds > 0
    resources = cubin.resources["reverse"]
    assert resources.static_shared >= 1024 and resources.barriers == 1 and 0 < resources.registers < 64
    assert resources.spill_stores == 0


def test_options_reach_the_compiler() -> None:
    loads = "\n".join(f"  float a{i} = in[n * {i}];" for i in range(64))
    stores = "\n".join(f"  out[n * {i}] = a{i} * a{63 - i} + a{i};" for i in range(64))
    source = f'extern "C" __global__ void k(const float* in, float* out, int n) {{\n{loads}\n{stores}\n}}'
    free = compile_cubin(source, NvrtcOptions("sm_90a"))
    capped = compile_cubin(source, NvrtcOptions("sm_90a", max_registers=32))
    assert free.resources["k"].spill_stores == 0
    assert capped.resources["k"].registers <= 32 and capped.resources["k"].spill_stores > 0
    assert "fma" in compile_ptx(source, NvrtcOptions("sm_90a"))
    assert "fma" not in compile_ptx(source, NvrtcOptions("sm_90a", fma=False))
    division = 'extern "C" __global__ void k(float* a) { a[0] = a[1] / a[2]; }'
    assert "div.approx" in compile_ptx(division, NvrtcOptions("sm_90a", fast_math=True))
    assert "div.full" in compile_ptx(division, NvrtcOptions("sm_90a"))
    assert "div.rn" in compile_ptx(division, NvrtcOptions("sm_90a", precise_division=True))
    assert ".loc" in compile_ptx(division, NvrtcOptions("sm_90a", line_info=True))


def test_linker_names_of_templates_and_overloads() -> None:
    source = "template <class T> __global__ void scale(T* a) { a[0] *= 2; }"
    cubin = compile_cubin(source, NvrtcOptions("sm_80"), names=("scale<float>", "scale<double>"))
    assert set(cubin.lowered_names) == {"scale<float>", "scale<double>"}
    assert set(cubin.lowered_names.values()) == set(cubin.resources)


def test_an_error_shows_the_log_and_the_numbered_lines() -> None:
    source = "\n".join(
        ["// line"] * 10 + ['extern "C" __global__ void k(float* a) {', "  a[0] = nothing;", "}"]
    )
    with pytest.raises(CompileError, match='identifier "nothing" is undefined') as caught:
        compile_cubin(source, NvrtcOptions("sm_90a"))
    error = caught.value
    assert (
        "> 12 |   a[0] = nothing;" in error.excerpt
        and "  11 |" in error.excerpt
        and " 8 |" not in error.excerpt
    )
    assert error.source == source and error.repro is None
    assert "--gpu-architecture=sm_90a" in error.facts["arguments"]


def test_excerpts_of_distant_errors_are_set_apart() -> None:
    source = "\n".join(f"l{i}" for i in range(1, 31))
    reports = ("(2): error: a", "(20): error: b", "(9): warning: c")
    log = "\n".join(nvrtc.PROGRAM_NAME + report for report in reports)
    lines = nvrtc.error_excerpt(source, log).splitlines()
    assert [line.split()[0] for line in lines].count("...") == 1
    assert [line for line in lines if line.startswith(">")] == [">  2 | l2", "> 20 | l20"]


def test_an_unknown_architecture_is_a_compile_error() -> None:
    with pytest.raises(CompileError, match="gpu-architecture"):
        compile_cubin(REVERSE, NvrtcOptions("sm_93"))


def test_sass_says_when_no_disassembler_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert "nvdisasm" in nvrtc.sass(compile_cubin(REVERSE, NvrtcOptions("sm_80", defines=DOUBLED)))
