"""The built-in redefinitions for given sizes, by their estimates: where they stay, where they are undone."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import pytest
import torch

from fusewright import FusionDefinition
from fusewright.core.dtype import DataType
from fusewright.core.hardware import described
from fusewright.core.tracing import Tracer
from fusewright.ir import Fusion, TensorView
from fusewright.ops.build_elementwise import apply_to_tensor, cast
from fusewright.ops.build_inputs import add_output, define_tensor
from fusewright.ops.build_reduction import max_, sum_, var_mean
from fusewright.ops.build_reshape import reshape
from fusewright.ops.build_shape import permute
from fusewright.schedulers import Facts, InnerPersistentScheduler, Registry, default_registry
from fusewright.schedulers.reduction.variances import has_welford
from fusewright.segment import Call, Partitions, Planned

H200 = described("h200")
Shapes = tuple[tuple[int, ...], ...]


def strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(prod(shape[i + 1 :]) for i in range(len(shape)))


def select(
    build: Callable[..., list[TensorView]],
    *shapes: tuple[int, ...],
    dtype: DataType = DataType.Float,
    registry: Registry | None = None,
) -> Planned:
    """The partition for inputs of these shapes, which are contiguous."""
    fusion = Fusion()
    inputs = [define_tensor(fusion, [-1] * len(shape), True, dtype) for shape in shapes]
    for tensor in build(fusion, *inputs):
        add_output(fusion, tensor)
    fusion.unify_extents()
    sizes = {a.extent: n for t, shape in zip(inputs, shapes) for a, n in zip(t.logical, shape)}

    def facts(segment) -> Facts:
        own = segment.own_sizes(sizes)
        known = Facts(own)
        laid_out = [
            strides(tuple(known.value(a.extent) for a in v.shape)) if isinstance(v, TensorView) else ()
            for v in segment.fusion.inputs
        ]
        return Facts(own, tuple(laid_out), tuple(256 for _ in laid_out))

    call = Call(tuple(shapes), lambda segments: None, facts, H200)
    return Partitions(fusion, registry or default_registry()).select(call, Tracer())


def schedulers(planned: Planned) -> list[str]:
    return [segment.scheduler.type.name for segment in planned.partition.segments]


def tried(planned: Planned, name: str) -> list[bool]:
    """Whether the redefinition stayed, each time that it was tried."""
    return [trial.kept for trial in planned.partition.trials if f": {name}, as" in trial.change]


def centred(fusion: Fusion, x: TensorView) -> list[TensorView]:
    var, mean = var_mean(fusion, x, [1], 0, True)
    return [apply_to_tensor(fusion, "mul", apply_to_tensor(fusion, "sub", x, mean), var)]


def test_rows_that_are_copied_ahead_have_two_sums_in_place_of_welfords_steps():
    planned = select(centred, (2048, 32768))
    assert schedulers(planned) == ["inner_persistent"]
    assert tried(planned, "variance in two passes") == [True]


def moments_of_groups(fusion: Fusion, x: TensorView) -> list[TensorView]:
    return list(var_mean(fusion, cast(fusion, x, DataType.Float), [1, 3], 0, True))


def normalized_groups(fusion: Fusion, x: TensorView) -> list[TensorView]:
    wide = cast(fusion, x, DataType.Float)
    var, mean = var_mean(fusion, wide, [1, 3], 0, True)
    return [apply_to_tensor(fusion, "mul", apply_to_tensor(fusion, "sub", wide, mean), var)]


@pytest.mark.parametrize("build, rest", [(moments_of_groups, []), (normalized_groups, ["pointwise"])])
@pytest.mark.parametrize(
    "shape, kept",
    [
        ((32, 4096, 32, 8), [True]),
        ((2, 4096, 32, 8), [False]),
        ((32, 4096, 16, 16), []),
        ((16384, 8, 7, 8), []),
    ],
)
def test_rows_in_runs_shorter_than_a_sector_are_reduced_columns_first(build, rest, shape, kept):
    planned = select(build, shape, dtype=DataType.BFloat16)
    assert tried(planned, "columns first") == kept
    if kept == [True]:
        assert schedulers(planned) == ["reduction", "inner_persistent", *rest]


def test_a_users_scheduler_that_extends_a_built_in_one_redefines_as_that_does():
    class Mine(InnerPersistentScheduler):
        type = "mine"  # type: ignore[assignment]

    planned = select(centred, (16384, 4096), registry=Registry([Mine()]))
    assert tried(planned, "variance in two passes") == [True]


def test_what_a_transposing_kernel_hands_on_is_as_narrow_as_its_input() -> None:
    def softmax_of_transposed(fusion: Fusion, x: TensorView) -> list[TensorView]:
        wide = cast(fusion, permute(fusion, x, [1, 0]), DataType.Float)
        below = apply_to_tensor(fusion, "sub", wide, max_(fusion, wide, [1], True))
        e = apply_to_tensor(fusion, "exp", below)
        return [apply_to_tensor(fusion, "div", e, sum_(fusion, e, [1], True))]

    planned = select(softmax_of_transposed, (4096, 16384), dtype=DataType.BFloat16)
    assert tried(planned, "narrow borders") == [True]
    assert schedulers(planned) == ["transpose", "inner_persistent"]
    [handed_on] = planned.partition.segments[0].outputs
    assert isinstance(handed_on, TensorView) and handed_on.dtype is DataType.BFloat16


def test_a_tensor_by_its_norm() -> None:
    """Blocks that go over it twice have too few threads to hide much arithmetic: two kernels are faster."""

    def build(fusion: Fusion, x: TensorView, y: TensorView) -> list[TensorView]:
        z = apply_to_tensor(fusion, "add", x, y)
        norm = apply_to_tensor(fusion, "sqrt", sum_(fusion, apply_to_tensor(fusion, "mul", z, z), [0, 1]))
        return [apply_to_tensor(fusion, "truediv", z, norm)]

    assert schedulers(select(build, (8192, 2048), (8192, 2048))) == ["reduction", "pointwise"]


def gradient_of_columns(fusion: Fusion, grad: TensorView, x: TensorView) -> list[TensorView]:
    """Of a batch norm of channels last."""
    wide = [cast(fusion, each, DataType.Float) for each in (grad, x)]
    var, mean = var_mean(fusion, wide[1], [0], 0, True)
    normal = apply_to_tensor(fusion, "mul", apply_to_tensor(fusion, "sub", wide[1], mean), var)
    of_bias = sum_(fusion, wide[0], [0], True)
    of_weight = sum_(fusion, apply_to_tensor(fusion, "mul", wide[0], normal), [0], True)
    shift = apply_to_tensor(fusion, "add", of_bias, apply_to_tensor(fusion, "mul", normal, of_weight))
    return [
        cast(fusion, apply_to_tensor(fusion, "sub", wide[0], shift), DataType.BFloat16),
        of_weight,
        of_bias,
    ]


def test_what_is_split_is_not_redefined_first():
    """As a whole it would have two sums in place of Welford's steps; split it reads its input once less."""
    planned = select(gradient_of_columns, (200704, 256), (200704, 256), dtype=DataType.BFloat16)
    assert tried(planned, "variance in two passes") == [True] and len(schedulers(planned)) == 3
    welford = [segment for segment in planned.partition.segments if has_welford(segment.fusion)]
    assert len(welford) == 1


def test_norms_of_patches_stay_one_kernel_though_two_are_estimated_slightly_faster():
    """Rows of 16 x 16 pixels and 3 colours lie in pieces: two kernels took 1.6 times as long."""

    def patches(fusion: Fusion, x: TensorView) -> list[TensorView]:
        parts = permute(fusion, x, [0, 2, 4, 3, 5, 1])
        wide = cast(fusion, reshape(fusion, parts, [64, 14, 14, 768]), DataType.Float)
        variance, mean = var_mean(fusion, wide, [3], correction=1, keepdim=True)
        centered = apply_to_tensor(fusion, "sub", wide, mean)
        root = apply_to_tensor(fusion, "rsqrt", apply_to_tensor(fusion, "add", variance, 1e-6))
        return [cast(fusion, apply_to_tensor(fusion, "mul", centered, root), DataType.BFloat16)]

    assert schedulers(select(patches, (64, 3, 14, 16, 14, 16), dtype=DataType.BFloat16)) == [
        "inner_persistent"
    ]


def test_a_redefinition_reads_a_sum_that_an_earlier_one_left_without_readers():
    """A short sum becomes additions; the mean of a variance in two passes is that sum again."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[65536, 96, 2], contiguity=True)
        factor = fd.define_tensor(shape=[1, 96, 1], contiguity=True)
        scaled = x * factor
        of_columns = fd.ops.sum(scaled, [0], keepdim=True)
        mean = fd.ops.mean(scaled, [2], keepdim=True)
        variance = fd.ops.var(scaled, [2], correction=0, keepdim=True)
        fd.add_output(fd.ops.argmax(scaled, dim=2))
        fd.add_output(scaled / (fd.ops.abs(of_columns) + 1.0))
        fd.add_output((scaled - mean) * fd.ops.rsqrt(variance + 1e-5))
    inputs = [torch.empty(shape, device="meta") for shape in ((65536, 96, 2), (1, 96, 1))]
    kernels = fd.kernels_for(inputs, device="cuda")
    assert 1 <= len(kernels) <= 3 and all(kernel.kernel is not None for kernel in kernels)
