"""`RtcKernel`: compiling anywhere, checking arguments, launching where there is a GPU."""

import ctypes
from pathlib import Path

import pytest
import torch

from fusewright.core.errors import ArgumentTypeError, DeviceError, InputError, KernelSourceError, ShapeError
from fusewright.core.once import clear_shared_caches
from fusewright.cuda.driver import ArgLayout
from fusewright.cuda.nvrtc import NvrtcOptions
from fusewright.runtime.disk_cache import DiskCache
from fusewright.runtime.rtc_kernel import RtcKernel, _check_sizes, _classify

SCALE = """
template <class T>
__global__ void scale(const T* in, T* out, T factor, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i] * factor;
}
__device__ int helper(int a) { return a; }
extern "C" __global__ void plain(float* a) {
  __shared__ float s[64];
  s[threadIdx.x] = *a;
  __syncthreads();
  *a = s[63 - threadIdx.x];
}
"""
no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")


@pytest.fixture
def cache(tmp_path: Path) -> DiskCache:
    return DiskCache(tmp_path / "cache")


def test_templates_and_plain_kernels_compile_and_report(cache: DiskCache) -> None:
    kernel = RtcKernel(SCALE, "scale<float>", cache=cache)
    assert 0 < kernel.resources.registers < 64 and "registers" in repr(kernel)
    assert RtcKernel(SCALE, "plain", cache=cache).resources.barriers == 1
    assert cache.stats().stores == 2
    clear_shared_caches()
    RtcKernel(SCALE, "plain", cache=cache)
    assert cache.stats().hits == 1


def test_architecture_and_options(cache: DiskCache) -> None:
    assert RtcKernel(SCALE, "plain", arch="sm_80", cache=cache).cubin.arch == "sm_80"
    capped = NvrtcOptions("sm_90a", max_registers=32)
    kernel = RtcKernel(SCALE, "plain", arch="sm_100", options=capped, cache=cache)
    assert (kernel.options.arch, kernel.options.max_registers) == ("sm_100", 32)


@pytest.mark.parametrize(
    ("source", "name", "message"),
    [
        (SCALE, "missing", "has no kernel that 'missing' names"),
        (SCALE, "helper", "has no kernel that 'helper'(?s:.*)non-__global__"),
        (
            "__global__ void k() { int x = nothing; }",
            "k",
            'does not compile for sm_90a(?s:.*)"nothing" is undefined',
        ),
    ],
)
def test_mistakes_in_the_source_are_the_users(cache: DiskCache, source: str, name: str, message: str) -> None:
    with pytest.raises(KernelSourceError, match=message) as caught:
        RtcKernel(source, name, arch="sm_90a", cache=cache)
    assert "fault of Fusewright" not in str(caught.value)
    assert ("> 1 |" in str(caught.value)) == ("nothing" in source)


def test_scalars_are_passed_as_their_explicit_type() -> None:
    assert _classify(0, ctypes.c_int(3)) == ("i", 3)
    assert _classify(0, ctypes.c_int64(-3)) == ("q", -3)
    assert _classify(0, ctypes.c_float(0.5)) == ("f", 0.5)
    assert _classify(0, (3, torch.float64)) == ("d", 3)
    assert _classify(0, (1j, torch.complex64)) == ("F", 1j)
    tensor = torch.zeros(4)
    assert _classify(0, tensor[1:]) == ("P", tensor.data_ptr() + 4)


@pytest.mark.parametrize(
    "value", [3, 1.5, None, "x", (1.5, torch.int32), (1j, torch.float32), (1, torch.qint8)]
)
def test_values_without_a_passable_type_are_refused(value: object) -> None:
    with pytest.raises(ArgumentTypeError, match="argument 7 to be a CUDA tensor") as caught:
        _classify(7, value)
    assert ("how wide" in str(caught.value)) == isinstance(value, int | float)


def test_arguments_are_compared_with_the_kernels_parameters() -> None:
    _check_sizes("k", ArgLayout(("P", "i", "D")), (8, 4, 16))
    with pytest.raises(InputError, match="kernel 'k' takes 2 arguments"):
        _check_sizes("k", ArgLayout(("P",)), (8, 4))
    with pytest.raises(
        InputError, match=r"argument 1 of kernel 'k'(?s:.*)expected: 4 bytes\n  given: 8 bytes"
    ):
        _check_sizes("k", ArgLayout(("P", "q")), (8, 4))


@pytest.mark.parametrize(("grid", "block"), [(0, 32), (1, (32, 1, 1, 1)), (1, ())])
def test_extents_are_checked(cache: DiskCache, grid: int, block: int) -> None:
    with pytest.raises(ShapeError, match="one to three positive extents"):
        RtcKernel(SCALE, "plain", cache=cache).launch(grid, block, [])


def test_tensors_on_the_cpu_are_refused(cache: DiskCache) -> None:
    with pytest.raises(DeviceError, match="Expected argument 0 to be on a CUDA device, but got cpu"):
        RtcKernel(SCALE, "plain", cache=cache).launch(1, 32, [torch.zeros(1)])


@no_gpu
def test_without_a_gpu_a_launch_says_so(cache: DiskCache) -> None:
    with pytest.raises(DeviceError, match="compiled here but not launched: there is no GPU"):
        RtcKernel(SCALE, "plain", cache=cache).launch(1, 32, [ctypes.c_int(1)])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_launches(cache: DiskCache, dtype: torch.dtype) -> None:
    name = {torch.float32: "scale<float>", torch.float64: "scale<double>"}[dtype]
    kernel = RtcKernel(SCALE, name, cache=cache)
    source = torch.randn(1000, device="cuda", dtype=dtype)
    result = torch.empty_like(source)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    for target in (None, stream):
        result.zero_()
        stream.wait_stream(torch.cuda.current_stream())
        kernel.launch(4, 256, [source, result, (3.0, dtype), ctypes.c_int(1000)], stream=target)
        torch.cuda.synchronize()
        torch.testing.assert_close(result, source * 3, rtol=0, atol=0)
    with pytest.raises(InputError, match="argument 3"):
        kernel.launch(4, 256, [source, result, (3.0, dtype), ctypes.c_int64(1000)])
    with pytest.raises(RuntimeError, match="cuLaunchKernel failed with CUDA_ERROR_INVALID_VALUE"):
        kernel.launch(4, 2048, [source, result, (3.0, dtype), ctypes.c_int(1000)])
