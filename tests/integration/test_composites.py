"""Composed operations as kernels: as many as their steps written one by one, and torch's values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fusewright import FusionDefinition
from fusewright.core.errors import ShapeError
from tests.integration.tolerance import assert_close

Tensor = torch.Tensor
NAN = float("nan")


def executed(inputs: list[Any], define: Callable[..., Any]) -> tuple[list[Tensor], list[str]]:
    """The outputs, and the schedulers of the kernels."""
    with FusionDefinition() as fd:
        handles = [fd.from_pytorch(x) if isinstance(x, Tensor) else fd.define_scalar() for x in inputs]
        outputs = define(fd.ops, *handles)
        for output in outputs if isinstance(outputs, (list, tuple)) else [outputs]:
            fd.add_output(output)
    return fd.execute(inputs), [kernel.scheduler for kernel in fd._last_kernels()]


@pytest.mark.parametrize(
    ("shape", "dim", "dtype"),
    [
        ((37, 1000), 1, torch.half),
        ((20001, 8), 0, torch.int32),
        ((300001,), None, torch.float32),
    ],
    ids=["inner", "outer in several blocks", "all in several blocks"],
)
def test_positions_are_the_first_ones_however_the_work_is_split(
    shape: tuple[int, ...], dim: int | None, dtype: torch.dtype, target: torch.device
) -> None:
    x = torch.randint(-20, 21, shape).to(dtype)
    if dtype is torch.half:
        x[3, 800] = x[3, 170] = NAN
        x[4] = -float("inf")
    outputs, schedulers = executed(
        [x.to(target)],
        lambda ops, x: [ops.argmax(x, dim), ops.argmin(x, dim, True), ops.any(x, dim), ops.all(x, dim)],
    )
    over = tuple(range(x.ndim)) if dim is None else dim
    wanted = [x.argmax(dim), x.argmin(dim, True), x.bool().any(over), x.bool().all(over)]
    assert all(torch.equal(out.cpu(), want) for out, want in zip(outputs, wanted))
    assert schedulers == ["reduction"]


def test_bools_of_a_warp_are_reduced_by_votes(target: torch.device) -> None:
    given = (torch.arange(5 * 70) % 99 == 0).view(5, 70).to(target)
    with FusionDefinition() as fd:
        x = fd.from_pytorch(given)
        fd.add_output(fd.ops.any(x, [1]))
        fd.add_output(fd.ops.all(fd.ops.logical_not(x), [1]))
    made = fd.execute([given])
    assert [out.tolist() for out in made] == [given.any(1).tolist(), (~given).all(1).tolist()]
    text = fd.kernels_for([given])[0].cuda_text
    assert "v_max = fw::warp_any(v_max)" in text and "v_min = fw::warp_all(v_min)" in text


def test_a_masked_softmax_and_the_position_of_its_maximum_are_one_kernel(target: torch.device) -> None:
    x, mask = torch.randn(9, 5, 130), torch.rand(5, 130) < 0.3

    def define(ops: Any, x: Any, mask: Any) -> Any:
        scores = ops.masked_fill(x, mask, -float("inf"))
        kept, _ = ops.dropout(ops.softmax(scores, -1), 0.25, rng_seed=1, rng_offset=0)
        return ops.argmax(scores, -1), ops.logsumexp(scores, -1), ops.log_softmax(scores, -1), kept

    (best, total, logarithms, kept), schedulers = executed([x.to(target), mask.to(target)], define)
    assert schedulers == ["inner_persistent"]
    scores = x.double().masked_fill(mask, -float("inf"))
    assert torch.equal(best.cpu(), scores.argmax(-1))
    assert_close(total, scores.logsumexp(-1), 130)
    assert_close(logarithms, scores.log_softmax(-1), 130)
    assert_close(kept, torch.where(kept.cpu() != 0, scores.softmax(-1) / 0.75, 0.0), 130)
    assert 0.65 < (kept.cpu() != 0)[~mask.expand(x.shape)].float().mean() < 0.85


def test_normalizations_of_rows_are_one_kernel_each(target: torch.device) -> None:
    x, weight, bias = (torch.randn(*shape).to(torch.bfloat16) for shape in ((7, 3, 40), (3, 40), (3, 40)))
    inputs, wide = [t.to(target) for t in (x, weight, bias)], [t.double() for t in (x, weight, bias)]
    (out, mean, invstd), schedulers = executed(
        inputs, lambda ops, *values: ops.layer_norm(values[0], [3, 40], *values[1:])
    )
    assert schedulers == ["inner_persistent"]
    assert_close(out, F.layer_norm(wide[0], [3, 40], *wide[1:]), 120)
    assert_close(mean, wide[0].mean((1, 2), keepdim=True), 120)
    assert_close(invstd, (wide[0].var((1, 2), correction=0, keepdim=True) + 1e-5).rsqrt(), 120)
    (out, _), schedulers = executed(inputs[:2], lambda ops, x, w: ops.rms_norm(x, 2, w, 1e-6))
    assert schedulers == ["inner_persistent"]
    assert_close(out, F.rms_norm(wide[0], [3, 40], wide[1], 1e-6), 120)


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_is_one_kernel_and_writes_its_statistics(training: bool, target: torch.device) -> None:
    x = torch.randn(6, 5, 4, 9).half()
    weight, bias, mean, variance = torch.randn(5), torch.randn(5), torch.randn(5), torch.rand(5).half() + 0.5
    wide = [t.to(torch.float64, copy=True) for t in (x, mean, variance, weight, bias)]
    wanted = F.batch_norm(*wide, training, 0.3, 1e-4)
    running = [mean.to(target), variance.to(target)]
    inputs = [t.to(target) for t in (x, weight, bias)]

    def define(ops: Any, x: Any, weight: Any, bias: Any, mean: Any, variance: Any, momentum: Any) -> Any:
        return ops.batch_norm(x, weight, bias, mean, variance, momentum, 1e-4, training)[0]

    (out,), schedulers = executed([*inputs, *running, 0.3], define)
    assert schedulers == (["inner_persistent"] if training else ["pointwise"])
    assert out.dtype is torch.half
    assert_close(out, wanted, 216)
    for new, updated in zip(running, wide[1:3]):
        assert_close(new, updated, 216)


@pytest.mark.parametrize(
    ("shape", "groups", "dtype"),
    [((4, 6, 5, 7), 3, torch.bfloat16), ((3, 6), 2, torch.float32), ((2, 5, 33), 5, torch.half)],
    ids=str,
)
def test_group_norm(shape: tuple[int, ...], groups: int, dtype: torch.dtype, target: torch.device) -> None:
    x, weight, bias = (torch.randn(*sizes).to(dtype) for sizes in (shape, shape[1:2], shape[1:2]))
    wide, inputs = [t.double() for t in (x, weight, bias)], [t.to(target) for t in (x, weight, bias)]
    (out, mean, invstd), schedulers = executed(
        inputs,
        lambda ops, *values: (
            ops.instance_norm(*values)
            if groups == shape[1]
            else ops.group_norm(values[0], groups, *values[1:])
        ),
    )
    members = wide[0].reshape(shape[0], groups, -1)
    assert out.dtype is dtype and mean.dtype is invstd.dtype is torch.float32
    assert_close(out, F.group_norm(wide[0], groups, *wide[1:]), members.shape[-1])
    assert_close(mean, members.mean(-1), members.shape[-1])
    assert_close(invstd, (members.var(-1, correction=0) + 1e-5).rsqrt(), members.shape[-1])
    assert schedulers == ["inner_persistent"] or groups < shape[1]


def test_group_norm_tells_when_channels_do_not_divide(target: torch.device) -> None:
    with pytest.raises(ShapeError, match="channels in input to be divisible by num_groups"):
        executed([torch.randn(2, 6, 4, device=target)], lambda ops, x: ops.group_norm(x, 4)[0])


@pytest.mark.parametrize(
    ("shape", "dtype", "reduction", "smoothing"),
    [
        ((16, 1000), torch.bfloat16, "mean", 0.0),
        ((3, 10, 7), torch.float32, "none", 0.25),
        ((3, 10, 7), torch.float32, "mean", 0.25),
        ((10,), torch.float64, "sum", 0.0),
    ],
    ids=str,
)
def test_cross_entropy(
    shape: tuple[int, ...], dtype: torch.dtype, reduction: str, smoothing: float, target: torch.device
) -> None:
    classes = shape[min(1, len(shape) - 1)]
    logits, weight = torch.randn(*shape).to(dtype), (torch.rand(classes) + 0.5).to(dtype)
    labels = torch.randint(0, classes, [*shape[:1], *shape[2:]] if len(shape) > 1 else []).int()
    if labels.ndim:
        labels[1] = -100
    inputs = [t.to(target) for t in (logits, labels, weight)]
    options = {"reduction": reduction, "label_smoothing": smoothing}
    (weighted, plain), _ = executed(
        inputs,
        lambda ops, x, target, weight: [
            ops.cross_entropy(x, target, weight, **options),
            ops.cross_entropy(x, target, **options),
        ],
    )
    assert weighted.dtype is plain.dtype is dtype
    for actual, weights in ((weighted, weight.double()), (plain, None)):
        wanted = F.cross_entropy(logits.double(), labels.long(), weights, **options)
        assert_close(actual, wanted, classes + labels.numel())


def test_the_cross_entropy_of_each_row_is_one_kernel(target: torch.device) -> None:
    x, labels = torch.randn(8, 300), torch.randint(0, 300, (8,))
    (out,), schedulers = executed(
        [x.to(target), labels.to(target)], lambda ops, *values: ops.cross_entropy(*values, reduction="none")
    )
    assert schedulers == ["inner_persistent"]
    assert_close(out, F.cross_entropy(x.double(), labels, reduction="none"), 300)


def test_rows_of_no_elements_that_fill_whole_warps_otherwise(target: torch.device) -> None:
    """The block has as many threads as a row has elements, 32 or more, and one where there is none."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, 32], contiguity=True)
        fd.add_output(fd.ops.logsumexp(x, [0, 1]))
    for rows in (2, 0):
        given = torch.randn(rows, 32)
        (out,) = fd.execute([given.to(target)])
        assert [kernel.scheduler for kernel in fd._last_kernels()] == ["inner_persistent"]
        assert_close(out, given.double().logsumexp((0, 1)), 64)
