"""The reference's params: each attribute reads its default and is assigned on what the front end gives."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from fusewright import (
    CircularBufferOptions,
    ClusterDims,
    CompileParams,
    DataType,
    FusionDefinition,
    GemmTile,
    LaunchParams,
    MatmulBufferingLoopLevel,
    MatmulCircularBufferingStrategy,
    MatmulParams,
    MatMulTileOptions,
    MatmulTileRasterizationOrder,
    MatmulTilingStrategy,
    MmaMacro,
    MmaMacroArch,
    MmaMacroEncode,
    ParallelType,
    PointwiseParams,
    ReductionParams,
    ResizeParams,
    SchedulerHyperParameters,
    SchedulerType,
    SupportedVectorization,
    TransposeParams,
)
from fusewright.core.errors import ParamsError
from fusewright.core.hardware import described
from fusewright.frontend.scheduling.params import EditableParams

H200 = described("h200")
SERIAL, BLOCK_Y = ParallelType.serial, ParallelType.block_y
MACRO = MmaMacroEncode(MmaMacroArch.hopper, 64, 128, 16).mma_macro()

# Class -> attribute -> (default, another value).
TABLE: dict[Any, dict[str, tuple[Any, Any]]] = {
    PointwiseParams: {
        "break_point": (0, 1),
        "split_block": (False, True),
        "split_grid_y_dim": (False, True),
        "flip_grid_binding": (False, True),
        "vectorization_factor": (1, 4),
        "unroll_factor_inner": (1, 2),
        "unroll_factor_outer": (1, 2),
    },
    ReductionParams: {
        **dict.fromkeys(
            [
                "fastest_dim",
                "persistent_kernel",
                "project_persistent_buffers",
                "schedule_3d",
                "flip_grid",
                "cross_block_inner_reduction",
                "cross_grid_inner_reduction",
                "vectorize_inner_reduction",
                "split_grid_dim_inner_reduction",
                "pad_inner_reduction_to_warp",
                "multiple_reds_per_blk",
                "vectorize_iter_dom",
                "split_grid_dim_iter_dom_inner",
                "split_grid_dim_iter_dom_outer",
                "cross_block_outer_reduction",
                "cross_grid_outer_reduction",
                "compute_persistent_buffer_with_first_consumer",
                "static_bdimx",
                "static_bdimy",
                "combined_inner_outer",
                "tidx_for_outer_reduction",
                "pad_outer_reduction_to_warp",
                "combined_split_grid_inner_dim",
            ],
            (False, True),
        ),
        **dict.fromkeys(
            [
                "unroll_factor_inner_reduction",
                "unroll_factor_top_of_vectorization",
                "batches_per_block_inner_reduction",
                "unroll_factor_iter_dom",
                "batches_per_block_outer_reduction",
                "unroll_factor_outer_reduction",
                "vectorization_factor_outer",
                "vectorization_factor_tmp_gmem_write",
            ],
            (1, 2),
        ),
        **dict.fromkeys(
            [
                "block_dim_inner_reduction",
                "grid_dim_inner_reduction",
                "block_dim_iter_dom",
                "grid_dim_iter_dom",
                "block_dim_outer_reduction",
                "grid_dim_outer_reduction",
                "block_dim_inner_reduction_extra",
            ],
            (SERIAL, BLOCK_Y),
        ),
    },
    MatmulParams: {
        "tile_sizes": (
            MatMulTileOptions(GemmTile(128, 128, 32), GemmTile(64, 64, 32)),
            MatMulTileOptions(GemmTile(64, 64, 32), GemmTile(32, 32, 32)),
        ),
        "circular_buffer_options": (
            CircularBufferOptions(False, False, 2, 1),
            CircularBufferOptions(True, False, 4, 2),
        ),
        "supported_vec_size": (SupportedVectorization(1, 1, 1), SupportedVectorization(8, 8, 4)),
        "async_gmem_load_operands": (False, True),
        "grid_traversal_factor": ((1, 1), (4, 1)),
        "use_smem_epilogue": (False, True),
        "use_ldst_matrix": (True, False),
        "promote_prologue_smem_reuse": (False, True),
        "splitk_factor": (1, 2),
        "tiling_strategy": (
            MatmulTilingStrategy.one_tile_per_cta,
            MatmulTilingStrategy.distribute_tiles_across_sms,
        ),
        "buffering_loop_level": (MatmulBufferingLoopLevel.cta_tiles, MatmulBufferingLoopLevel.warp_tiles),
        "circular_buffering_strategy": (
            MatmulCircularBufferingStrategy.pipelined,
            MatmulCircularBufferingStrategy.warp_specialized,
        ),
        "cta_order": (MatmulTileRasterizationOrder.row_major, MatmulTileRasterizationOrder.column_major),
        "cluster_dims": (ClusterDims(m=1, n=1), ClusterDims(2, 1)),
        "mma_macro": (MmaMacro(), MACRO),
    },
    TransposeParams: {
        "tile_size1": (32, 64),
        "tile_size2": (32, 64),
        "vectorize_factor1": (1, 2),
        "vectorize_factor2": (1, 2),
        "split_before_tiling": ((), (1,)),
        "dims_merged_with_1": ((), (1,)),
        "dims_merged_with_2": ((), (1,)),
        "use_tma_load": (False, True),
    },
    SchedulerHyperParameters: {
        "vectorize_factor": (1, 4),
        "unroll_factor": (1, 2),
        "threads_per_block_min": (1, 128),
        "threads_per_block_max": (1, 256),
        "is_warp_specialized": (False, True),
    },
    # Unset extents read as 1.
    LaunchParams: dict.fromkeys(["gdimx", "gdimy", "gdimz", "bdimx", "bdimy", "bdimz"], (1, 4)),
    CompileParams: {
        "index_type": (None, DataType.Int32),
        "maxrregcount": (255, 128),
        "enable_magic_zero": (True, False),
        "enable_ptxas_verbose": (False, True),
        "device": (None, "cuda:0"),
        "include_paths": ((), ("/include",)),
    },
    GemmTile: {"m": (1, 2), "n": (1, 2), "k": (1, 2)},
    MmaMacro: {"arch": (MmaMacroArch.no_mma, MmaMacroArch.ampere), "m": (0, 16), "n": (0, 8), "k": (0, 16)},
}

# Those that have one value here. An assignment of another says why.
ONE_VALUE = {
    "split_block",
    "split_before_tiling",
    "use_tma_load",
    "device",
    "include_paths",
    *[
        "flip_grid",
        "split_grid_dim_inner_reduction",
        "split_grid_dim_iter_dom_inner",
        "split_grid_dim_iter_dom_outer",
        "cross_block_outer_reduction",
        "cross_grid_outer_reduction",
        "compute_persistent_buffer_with_first_consumer",
        "static_bdimx",
        "static_bdimy",
        "combined_inner_outer",
        "tidx_for_outer_reduction",
        "pad_outer_reduction_to_warp",
        "combined_split_grid_inner_dim",
        "batches_per_block_outer_reduction",
        "unroll_factor_outer_reduction",
        "vectorization_factor_outer",
        "vectorization_factor_tmp_gmem_write",
        "block_dim_outer_reduction",
        "grid_dim_outer_reduction",
        "block_dim_inner_reduction_extra",
    ],
}
# Those that follow from others. They may be assigned what they will be.
FOLLOWS = {
    "cross_block_inner_reduction",
    "cross_grid_inner_reduction",
    "multiple_reds_per_blk",
    "block_dim_inner_reduction",
    "grid_dim_inner_reduction",
    "block_dim_iter_dom",
    "grid_dim_iter_dom",
}


@pytest.mark.parametrize("cls", TABLE)
def test_every_attribute_reads_its_default_and_is_assignable(cls: Any) -> None:
    for name, (default, other) in TABLE[cls].items():
        editable = EditableParams(cls(), H200)
        assert getattr(editable, name) == default, name
        if cls is not LaunchParams:  # an extent of 1 is not an unset one
            setattr(editable, name, default)
            assert editable.freeze() == cls(), name
        if name in ONE_VALUE:
            with pytest.raises(ParamsError, match=f"`{name}`: expected .* as ") as caught:
                setattr(editable, name, other)
            assert caught.value.facts["path"] == name
        else:
            setattr(editable, name, other)
            assert getattr(editable, name) == other, name
        if name in FOLLOWS:
            with pytest.raises(ParamsError, match=f"`{name}`: expected .* as it follows from "):
                editable.freeze()
        elif name not in ONE_VALUE:
            assert getattr(editable.freeze(), name) == other, name
        for wrong in (object(), {"x": 1}):
            with pytest.raises(ParamsError, match=f"`{name}[.`]"):
                setattr(editable, name, wrong)


def test_what_is_not_in_the_table() -> None:
    assert ResizeParams is PointwiseParams
    assert (MACRO.arch, MACRO.m, MACRO.n, MACRO.k) == (MmaMacroArch.hopper, 64, 128, 16)
    encode = MmaMacroEncode(MmaMacroArch.ampere, 16, 8, 16)
    encode.n = 16
    assert encode.mma_macro() == MmaMacro(MmaMacroArch.ampere, 16, 16, 16)
    assert repr(GemmTile(m=1, n=2, k=3)) == "GemmTile(m=1, n=2, k=3)"
    assert SchedulerHyperParameters(4, 2, 128, 256, True).is_warp_specialized


def test_nested_objects_are_edited_in_place() -> None:
    params = EditableParams(MatmulParams(), H200)
    params.tile_sizes.cta_tile.m = 256
    params.tile_sizes.warp_tile = GemmTile(64, 32, 32)
    params.lparams = LaunchParams(bdimx=32)
    made = params.freeze()
    assert made.tile_sizes == MatMulTileOptions(GemmTile(256, 128, 32), GemmTile(64, 32, 32))
    assert made.lparams.bdimx == 32
    params.tile_sizes.warp_tile.k = 24
    with pytest.raises(ParamsError, match=r"`tile_sizes.cta_tile.k`: expected a multiple of warp_tile.k"):
        params.freeze().validate(H200)
    with pytest.raises(ParamsError, match=r"`tile_sizes.cta_tile.o`: unknown"):
        params.tile_sizes.cta_tile.o = 1
    with pytest.raises(AttributeError, match=r"`tile_sizes.cta_til`: unknown; did you mean cta_tile"):
        params.tile_sizes.cta_til  # noqa: B018
    assert "tile_sizes" in dir(params) and not hasattr(params, "tiles")
    other = copy.deepcopy(params)
    other.tile_sizes.warp_tile.k = 32
    assert params != other and other == made


@pytest.mark.parametrize("edit, text", [
    (lambda p: setattr(p, "vectorization_factor", 3), "must be a power of 2"),
    (lambda p: setattr(p, "vectorization_factor", "2"), "`vectorization_factor`: expected int, got '2'"),
    (lambda p: setattr(p.lparams, "bdimx", 0), "`lparams.bdimx`: expected 1 to 1024, or -1, got 0"),
    (lambda p: setattr(p.lparams, "bdimz", 65), "`lparams.bdimz`: expected 1 to 64, or -1, got 65"),
    (lambda p: setattr(p.cparams, "maxrregcount", 256), "`cparams.maxrregcount`: expected 0 to 255, got 256"),
    (lambda p: p.update({"lparams": {"blockdimx": 1}}), "`lparams.blockdimx`: unknown; did you mean bdimx?"),
    (lambda p: p.update({"lparams": {"bdimx": "1"}}), "`lparams.bdimx`: expected int, got '1'"),
    (lambda p: p.update({"lparams": 5}), "`lparams`: expected the fields of LaunchParams, got 5"),
    (lambda p: p.update({3: 5}), "`3`: unknown"),
])  # fmt: skip
def test_values_are_checked_where_they_are_assigned(edit: Any, text: str) -> None:
    params = EditableParams(PointwiseParams(), H200)
    with pytest.raises(ParamsError) as caught:
        edit(params)
    assert text in caught.value.message
    assert params == PointwiseParams()


def _opened() -> FusionDefinition:
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.sum(fd.define_tensor([-1, -1], contiguity=True), [1]))
    fd._setup_schedule([torch.rand(8, 512)], overwrite_existing_schedule=True)
    return fd


def test_a_script_that_states_what_follows_runs() -> None:
    fd = _opened()
    params = fd.sched.compute_reduction_heuristics()
    params.multiple_reds_per_blk = True  # before what it follows from
    params.block_dim_iter_dom = ParallelType.block_y
    params.schedule_3d = False
    assert params.multiple_reds_per_blk and params.lparams.gdimx == 1
    params.lparams.bdimy = 2
    fd.sched.schedule(params)
    fd._finalize_schedule([torch.rand(8, 512)])
    x = torch.rand(8, 512)
    torch.testing.assert_close(fd.execute([x])[0], x.sum(1))
    fd = _opened()
    params = fd.sched.compute_reduction_heuristics()
    params.multiple_reds_per_blk = True
    with pytest.raises(
        ParamsError, match="`multiple_reds_per_blk`: expected False as it follows from lparams"
    ):
        fd.sched.schedule(params)


def test_the_dict_form_names_the_path_and_the_users_line() -> None:
    fd = _opened()
    for fields, text in (
        ({"lparams": {"blockdimx": 64}}, "`lparams.blockdimx`: unknown; did you mean bdimx?"),
        ({"lparams": {"bdimx": "64"}}, "`lparams.bdimx`: expected int, got '64'"),
        ({"lparams": {"bdimx": 4096}}, "`lparams.bdimx`: expected 1 to 1024, or -1, got 4096"),
        ({"cparams": {"index_type": "Integer"}}, "`cparams.index_type`: expected one of "),
        ({"cross_grid_inner_reduction": True}, "`cross_grid_inner_reduction`: expected False as it follows"),
        ({"flip_grid": True}, "`flip_grid`: expected False as no scheduler"),
    ):
        with pytest.raises(ParamsError) as caught:
            fd.sched.schedule({"scheduler": SchedulerType.reduction.name, **fields})
        assert text in str(caught.value) and __file__ in str(caught.value)
