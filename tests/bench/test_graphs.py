"""`python -m bench graphs`: what it counts, and what it says where it cannot measure."""

import pytest
import torch

from bench.__main__ import main
from bench.corpus import BLOCKS, Sizes, make_module
from bench.graphs import GENERATED, LIBRARY, Kernels, Row, relative_error


@pytest.mark.parametrize(
    "name, kind",
    [
        ("fusewright_pointwise_1a2b3c4d", "generated"),
        ("triton_per_fused_add_native_layer_norm_3", "generated"),
        ("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNT", "library"),
        ("void pytorch_flash::flash_fwd_kernel<...>", "library"),
        ("sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32", "library"),
        ("void at::native::vectorized_elementwise_kernel<4, ...>", "others"),
        ("Memcpy DtoD (Device -> Device)", "others"),
    ],
)
def test_kernels_are_told_apart_by_their_names(name, kind):
    found = "generated" if GENERATED.match(name) else "library" if LIBRARY.search(name) else "others"
    assert found == kind


def test_a_row_compares_times_outside_libraries():
    ours, theirs = Kernels(3, 1, 60.0, 15.0, 500.0), Kernels(4, 0, 100.0, 0.0, 500.0)
    row = Row("gpt2 forward", 768, 1024, "bf16", 66, 87, 5, 3, 5, 0.0, 1.0, 0.25, 0.75, ours, theirs, 4.0)
    assert row.cells()[2:] == (3, 4, 1, 0, 75.0, 100.0, 0.75, 1.0, 4.0, 0.25)


def test_an_error_is_relative_to_the_largest_value_or_to_one():
    assert relative_error(torch.tensor([11.0, 1.0]), torch.tensor([10.0, 1.0])) == 0.1
    assert relative_error(torch.tensor([0.1]), torch.tensor([0.2])) == pytest.approx(0.1)
    assert relative_error(torch.empty(0), torch.empty(0)) == relative_error(None, None) == 0.0


@pytest.mark.skipif(torch.cuda.is_available(), reason="measures there")
def test_without_a_gpu_it_says_what_runs(capsys):
    assert main(["graphs"]) == 1
    assert "--check runs" in capsys.readouterr().out
    assert main(["graphs", "--check", "--only", "gpt3"]) == 1
    assert "there is no gpt3" in capsys.readouterr().out


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_have_the_published_number_of_parameters(name):
    """Of one layer at its published width: 12 H^2 of weights, and for ResNet-50 a bottleneck's."""
    expected = {
        "gpt2": 12 * 768**2 + 13 * 768,
        "bert": 12 * 768**2 + 13 * 768,
        "vit": 12 * 768**2 + 13 * 768,
        "llama": 4 * 4096**2 + 3 * 4096 * 11008 + 2 * 4096,
        "resnet50": 70400,
    }
    hidden = {"llama": 4096, "resnet50": 256}.get(name, 768)
    module = make_module(BLOCKS[name], Sizes.of(1, 8, hidden), torch.bfloat16, "meta")
    assert sum(p.numel() for p in module.parameters()) == expected[name]
