"""Reductions of a few elements as elementwise work, and reads of parts: kernels, and what they compute."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

from fusewright import FusionDefinition
from fusewright.core.dtype import DataType
from fusewright.ir import Fusion, TensorView
from fusewright.ir.node import Reduction
from fusewright.ops.build_inputs import add_output, define_tensor
from fusewright.ops.build_reduction import max_, sum_, var_mean
from fusewright.rewrite.proposed.short_reductions import MAX_ELEMENTS, can_be_unrolled
from fusewright.torch_compile import decompositions, from_fx

Tensor = torch.Tensor


def definition(function: Callable[..., object], *inputs: Tensor) -> FusionDefinition:
    return from_fx(make_fx(function, decompositions(), tracing_mode="fake")(*inputs)).definitions[0]


def planned(function: Callable[..., object], *shapes: tuple[int, ...]) -> list[str]:
    """The schedulers of the kernels for float inputs of these shapes, whose memory nothing touches."""
    inputs = [torch.empty(shape) for shape in shapes]
    return [kernel.scheduler for kernel in definition(function, *inputs).kernels_for(inputs)]


def distances(points: Tensor) -> Tensor:
    return (points[:, None] - points[None]).square().sum(-1).add(1).rsqrt().sum(1)


def forces(points: Tensor) -> Tensor:
    apart = points[:, None] - points[None]
    near = 1 / (apart.square().sum(-1) + 0.1)
    return (near[..., None] * apart).sum(1)


def saturation(x: Tensor) -> Tensor:
    largest, least = x.amax(1), x.amin(1)
    return torch.stack([(largest - least) / (largest + 1e-6), largest], 1)


def nearest(a: Tensor, b: Tensor) -> Tensor:
    return (a[:, None] - b[None]).norm(dim=-1).amin(1)


def moved(points: Tensor, matrix: Tensor) -> Tensor:
    return (points[:, None, :] * matrix[:, :3]).sum(-1) + matrix[:, 3]


def barycentric(p: Tensor, a: Tensor, b: Tensor) -> Tensor:
    dots = [(v * w).sum(-1) for v, w in ((a, a), (a, b), (b, b), (p, a), (p, b))]
    scale = dots[0] * dots[2] - dots[1] * dots[1]
    v = (dots[2] * dots[3] - dots[1] * dots[4]) / scale
    w = (dots[0] * dots[4] - dots[1] * dots[3]) / scale
    return torch.stack([1 - v - w, v, w], -1)


def reflected(x: Tensor) -> Tensor:
    y, n = F.pad(x, (2, 2), mode="reflect"), x.shape[-1]
    return (y[..., :n] + y[..., 4:]) * 0.25 + y[..., 1 : 1 + n] + y[..., 3 : 3 + n]


def normals(depth: Tensor) -> Tensor:
    p = F.pad(depth, (1, 1, 1, 1), mode="replicate")
    dx, dy = p[:, 1:-1, 2:] - p[:, 1:-1, :-2], p[:, 2:, 1:-1] - p[:, :-2, 1:-1]
    n = torch.stack([-dx, -dy, torch.ones_like(dx)], 1)
    return n * (n[:, 0] ** 2 + n[:, 1] ** 2 + n[:, 2] ** 2).rsqrt()[:, None]


@pytest.mark.parametrize(
    "function, shapes",
    [
        (distances, [(4096, 3)]),
        (forces, [(4096, 3)]),
        (nearest, [(4096, 3), (4096, 3)]),
        (moved, [(4194304, 3), (3, 4)]),
        (saturation, [(64, 3, 224, 224)]),
        (barycentric, [(2097152, 3)] * 3),
        (reflected, [(8192, 4096)]),
        (normals, [(32, 512, 512)]),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
@pytest.mark.sampled(0.6)
def test_one_kernel(function: Callable[..., object], shapes: list[tuple[int, ...]]) -> None:
    assert len(planned(function, *shapes)) == 1


@pytest.mark.parametrize(
    "function, shapes",
    [
        (distances, [(33, 3)]),
        (forces, [(33, 3)]),
        (nearest, [(40, 2), (17, 2)]),
        (moved, [(70, 3), (3, 4)]),
        (saturation, [(2, 3, 8, 9)]),
        (barycentric, [(70, 3)] * 3),
        (reflected, [(5, 67)]),
        (normals, [(2, 9, 16)]),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_results(
    function: Callable[..., Tensor], shapes: list[tuple[int, ...]], target: torch.device
) -> None:
    torch.manual_seed(0)
    inputs = [torch.randn(shape, device=target) for shape in shapes]
    (result,) = definition(function, *inputs).execute(inputs)
    torch.testing.assert_close(result, function(*inputs), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("reduce", ["sum", "prod", "amax", "amin"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32, torch.int64], ids=str)
@pytest.mark.sampled(0.5)
def test_each_operation(reduce: str, dtype: torch.dtype, target: torch.device) -> None:
    """What a few elements come to, read by a kernel that reduces something else."""

    def function(x: Tensor) -> Tensor:
        return getattr(x[:, None] - x[None], reduce)(-1).amax(1)

    x = torch.randint(-9, 9, (30, 3), device=target).to(dtype)
    fd = definition(function, x)
    (result,) = fd.execute([x])
    assert torch.equal(result, function(x))


def test_one_kernel_of_elements_that_results_share() -> None:
    """Its blocks would wait for a few elements, unless they are vectors; where each result has elements of
    its own, as many bytes are moved either way.
    """

    def pairs(a: Tensor, b: Tensor) -> Tensor:
        return torch.exp(-(a[:, None] - b[None]).square().sum(-1))

    def products(a: Tensor, b: Tensor) -> Tensor:
        return (a * b).sum(-1)

    assert planned(pairs, (4096, 3), (4096, 3)) == ["pointwise"]
    assert planned(pairs, (4096, 8), (4096, 8)) == ["reduction"]
    assert planned(products, (4194304, 3), (4194304, 3)) == ["reduction"]


def test_pairs_along_rows_of_memory_that_has_columns_are_elements() -> None:
    """A reduction would read in one order and write in another: a transpose does both in tiles."""

    def pairs(x: Tensor) -> Tensor:
        return x.unflatten(1, (-1, 2)).sum(-1)

    for shape, schedulers in (((8192, 2048), ["transpose"]), ((64, 32), ["reduction"])):
        x = torch.randn(shape[::-1]).t()
        made = definition(pairs, x)
        assert [kernel.scheduler for kernel in made.kernels_for([x])] == schedulers
    torch.testing.assert_close(made.execute([x])[0], pairs(x))


def test_many_elements_are_not_read_again_where_each_is_used() -> None:
    """Each element would load all 16 that its sum, or its softmax, is of."""

    def above(x: Tensor) -> tuple[Tensor, Tensor]:
        centered = x - x.sum(0)
        return (centered > 0).sum(2), centered

    def attended(scores: Tensor, x: Tensor) -> Tensor:
        return (scores.softmax(-1)[:, None] * x).sum(-1)

    assert planned(above, (16, 7, 200, 127)) == ["outer_persistent", "reduction"]
    assert planned(attended, (25001, 16), (25001, 64, 16)) == ["inner_persistent", "reduction"]


def test_a_row_that_is_held_stays() -> None:
    """Each element would compute the sum for itself, which saves no kernel."""

    def normal(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return F.normalize(torch.linalg.cross(b - a, c - a), dim=-1)

    assert planned(normal, *[(2097152, 3)] * 3) == ["inner_persistent"]


def test_work_that_each_component_would_repeat_is_a_kernel() -> None:
    """One kernel would compute all of it for each of the nine results."""

    def turned(r: Tensor) -> Tensor:
        x = F.normalize(r[..., :3], dim=-1)
        y = F.normalize(r[..., 3:] - (x * r[..., 3:]).sum(-1, keepdim=True) * x, dim=-1)
        return torch.stack([x, y, torch.linalg.cross(x, y)], -2)

    assert len(planned(turned, (1048576, 6))) == 2


def test_a_result_that_is_read_at_many_points_is_a_kernel() -> None:
    """Each of the elements would add up the channels of its group."""

    def group_norm(x: Tensor, weight: Tensor) -> Tensor:
        groups = x.float().unflatten(-1, (32, 8))
        variance, mean = torch.var_mean(groups, (1, 3), correction=0, keepdim=True)
        return (((groups - mean) * torch.rsqrt(variance + 1e-5)).flatten(2) * weight).bfloat16()

    inputs = [torch.empty(shape, dtype=torch.bfloat16) for shape in ((32, 4096, 256), (256,))]
    kernels = definition(group_norm, *inputs).kernels_for(inputs)
    assert [kernel.scheduler for kernel in kernels] == ["reduction", "inner_persistent", "pointwise"]


def test_what_is_reduced_of_elements_that_all_readers_load_is_no_kernel() -> None:
    """The areas of boxes, in a kernel of all pairs of them that reads their corners anyway."""

    def overlaps(a: Tensor, b: Tensor) -> Tensor:
        low, high = torch.maximum(a[:, None, :2], b[:, :2]), torch.minimum(a[:, None, 2:], b[:, 2:])
        common = (high - low).clamp(min=0).prod(-1)
        areas = [(each[:, 2:] - each[:, :2]).prod(-1) for each in (a, b)]
        return common / (areas[0][:, None] + areas[1] - common)

    assert len(planned(overlaps, (4096, 4), (4099, 4))) == 1
    inputs = [torch.empty(4, count).t() for count in (4096, 4099)]
    assert len(definition(overlaps, *inputs).kernels_for(inputs)) == 1


def test_forces_are_computed_alike_however_coordinates_lie() -> None:
    """A thread has all components of a pair, whose distance they share."""
    points = torch.empty(4096, 3), torch.empty(3, 4096).t()
    plain, turned = (definition(forces, each).kernels_for([each])[0].params for each in points)
    assert plain == turned


def test_what_can_be_unrolled() -> None:
    def reduction(size: int, reduce: Callable[[Fusion, TensorView], TensorView]) -> Reduction:
        fusion = Fusion()
        add_output(fusion, reduce(fusion, define_tensor(fusion, [-1, size], True, DataType.Float)))
        return next(node for node in fusion.nodes if isinstance(node, Reduction))

    def summed(fusion: Fusion, x: TensorView) -> TensorView:
        return sum_(fusion, x, [1])

    assert can_be_unrolled(reduction(MAX_ELEMENTS, summed))
    assert can_be_unrolled(reduction(3, lambda fusion, x: max_(fusion, x, [1])))
    assert not can_be_unrolled(reduction(MAX_ELEMENTS + 1, summed))
    assert not can_be_unrolled(reduction(0, summed))
    assert not can_be_unrolled(reduction(-1, summed))  # of any size
    assert not can_be_unrolled(reduction(3, lambda fusion, x: var_mean(fusion, x, [1])[0]))


def test_short_rows_of_what_is_standardized_as_a_whole_lack_a_dimension_of_the_whole() -> None:
    """Additions in place of their sums have no loops of a kernel that holds all dimensions as one row."""
    x = torch.randn(16, 13, 7, generator=torch.Generator().manual_seed(1))

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        centered = x - x.mean((0, 1, 2), keepdim=True)
        standard = centered * torch.rsqrt(x.var((0, 1, 2), keepdim=True, correction=0) + 1e-5)
        variance, mean = torch.var_mean(standard, (2,), keepdim=True, correction=0)
        return standard, standard - (variance + mean)

    for made, expected in zip(definition(function, x).execute([x]), function(x)):
        torch.testing.assert_close(made, expected, rtol=1e-5, atol=1e-5)
