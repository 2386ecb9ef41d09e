"""Words in registers, and what accesses name for the L2 cache: what the assembler makes of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fusewright.cuda import snippets
from fusewright.cuda.nvrtc import NvrtcOptions, compile_cubin
from fusewright.runtime.disk_cache import DiskCache
from fusewright.runtime.rtc_kernel import RtcKernel

# Vectors of which a branch loads other elements, as at the edges of a tensor.
EDGES = """
extern "C" __global__ void edges(const fw::bfloat16* x, float* y, int edge, int beyond) {
  fw::bfloat16 a[32], around[64];
  for (int j = 0; j < 4; ++j) {
    fw::load<8>(&around[16 * j], &x[1024 * j + 8 * threadIdx.x]);
    fw::load<8>(&around[16 * j + 8], &x[1024 * j + 8 * threadIdx.x + 8]);
    fw::window<8>(&a[8 * j], &around[16 * j], beyond);
    if (int(threadIdx.x) > edge) {
      for (int i = 0; i < 8; ++i) {
        if (int(threadIdx.x) * 8 + i > edge) a[8 * j + i] = x[8 * j + i];
      }
    }
  }
  float sum = 0;
  for (int i = 0; i < 32; ++i) sum += float(a[i]);
  y[threadIdx.x] = sum;
}
"""
POLICIES = """
extern "C" __global__ void policies(unsigned long long* found) {
  asm("createpolicy.fractional.L2::evict_first.b64 %0;" : "=l"(found[0]));
  asm("createpolicy.fractional.L2::evict_last.b64 %0;" : "=l"(found[1]));
  found[2] = fw::evict_first_policy();
  found[3] = fw::evict_last_policy();
}
"""


def _text(*names: str) -> str:
    return "".join(map(snippets.text, snippets.closure(names)))


def test_elements_that_a_branch_may_change_share_registers() -> None:
    text = _text("bfloat16", "vec", "window") + EDGES
    by_element = text.replace("if constexpr (sizeof(T) == 2 &&", "if constexpr (false &&")
    assert by_element != text
    options = NvrtcOptions("sm_90a")
    words, elements = (compile_cubin(each, options).resources["edges"] for each in (text, by_element))
    assert words.registers < elements.registers


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_policies_are_those_that_the_gpu_makes(tmp_path: Path) -> None:
    found = torch.zeros(4, dtype=torch.int64, device="cuda")
    kernel = RtcKernel(_text("cache_policy") + POLICIES, "policies", cache=DiskCache(tmp_path / "cache"))
    kernel.launch(1, 1, [found])
    assert found[:2].tolist() == found[2:].tolist()
