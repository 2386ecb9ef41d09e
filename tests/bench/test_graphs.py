"""`python -m bench graphs`: what it counts, and what it says where it cannot measure."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from bench.__main__ import main
from bench.corpus import BLOCKS, Expected, Graph, Sizes, make_module
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
    ours, theirs = Kernels(3, 1, 60.0, 15.0, 525.0), Kernels(4, 0, 100.0, 0.0, 500.0)
    row = Row("gpt2 forward", 768, 1024, "bf16", 66, 87, 5, 3, 5, 0.0, 1.0, 0.25, 0.75, ours, theirs, 4.0)
    assert row.cells()[2:] == (3, 4, 1, 0, 75.0, 100.0, 0.75, 525.0, 500.0, 1.0, 1.0, 4.0, 0.25)


def test_an_error_is_relative_to_the_largest_value_or_to_one():
    assert relative_error(torch.tensor([11.0, 1.0]), Expected("x", torch.tensor([10.0, 1.0]))) == 0.1
    assert relative_error(torch.tensor([0.1]), Expected("x", torch.tensor([0.2]))) == pytest.approx(0.1)
    assert relative_error(torch.empty(0), Expected("x", torch.empty(0))) == 0.0
    assert relative_error(None, Expected("x", None)) == 0.0


def test_a_comparison_may_differ_where_what_it_compares_is_equal_but_for_rounding():
    """ResNet's backward pass is handed which outputs of a ReLU are 0."""
    x = torch.randn(100, generator=torch.Generator().manual_seed(0))
    x[7] = 1e-6
    graph = Graph("mask", make_fx(lambda x: (x <= 0, torch.isnan(x)))(x), (x,))
    mask, is_nan, _ = graph.expected()
    other = mask.value.clone()
    other[7] = True
    assert mask.name == "le" and relative_error(other, mask) == 0.01
    other[torch.argmax(x)] = True
    assert relative_error(other, mask) == pytest.approx(x.max() / x.abs().max())
    assert relative_error(~is_nan.value, is_nan) == 1.0


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
