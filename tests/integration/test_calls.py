"""What happens around kernels: sizes, segments, aliases, inputs of every kind, threads, large tensors."""

from __future__ import annotations

import math
import threading
from typing import Any

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.host.executor import FusionExecutor
from fusewright.kernel.ir import Combine, walk
from tests.integration.cases import (
    layer_norm,
    rows_and_columns,
    softmax,
    torch_layer_norm,
    torch_rows_and_columns,
)
from tests.integration.tolerance import assert_close

FLOAT = DataType.Float


def _definition(define: Any, ranks: tuple[int, ...], dtype: DataType = FLOAT) -> FusionDefinition:
    with FusionDefinition() as fd:
        define(fd, *[fd.define_tensor([-1] * rank, contiguity=True, dtype=dtype) for rank in ranks])
    return fd


def _kernels(fd: FusionDefinition) -> tuple[str, ...]:
    return tuple(kernel.name for kernel in fd._last_kernels())


# ---- sizes -------------------------------------------------------------------------------------------------


def test_one_definition_serves_all_sizes_with_few_kernels(target: torch.device) -> None:
    fd = _definition(softmax, (2,))
    names: set[str] = set()
    for rows in (1, 2, 7, 64):
        for length in (8, 16, 24, 100, 104, 128, 512, 1000, 1001):
            x = torch.randn(rows, length, device=target)
            (y,) = fd.execute([x])
            assert_close(y, x.double().softmax(-1), length)
            names.update(_kernels(fd))
    # 36 sizes; what kernels differ in is vector width and how a row is cut among threads.
    assert len(names) <= 12


def test_a_size_that_was_seen_makes_nothing_new(target: torch.device) -> None:
    fd = _definition(softmax, (2,))
    first = [torch.randn(4, n, device=target) for n in (64, 1000)]
    for x in first:
        fd.execute([x])
    before = [fd.execute([x]) and fd._last_kernels()[0] for x in first]
    again = [torch.randn(4, n, device=target) for n in (64, 1000)]
    after = [fd.execute([x]) and fd._last_kernels()[0] for x in again]
    assert [id(k) for k in before] == [id(k) for k in after]


@pytest.mark.parametrize("shape", [(0, 8), (8, 0), (0, 0)])
def test_tensors_without_elements(target: torch.device, shape: tuple[int, int]) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True, dtype=FLOAT)
        fd.add_output(x * 2.0)
        fd.add_output(fd.ops.sum(x, [1]))
        fd.add_output(fd.ops.prod(x, [0]))
        fd.add_output(fd.ops.max(x, [0, 1]))
    tensor = torch.empty(shape, device=target)
    doubled, total, product, largest = fd.execute([tensor])
    assert doubled.shape == shape
    assert torch.equal(total, tensor.sum(1))
    assert torch.equal(product, tensor.prod(0))
    assert largest.item() == -torch.inf


@pytest.mark.parametrize("width", [1, 3, 64])
def test_size_one_behind_a_symbolic_dimension(target: torch.device, width: int) -> None:
    fd = _definition(layer_norm, (2, 1, 1))
    x, weight, bias = (torch.randn(s, device=target) for s in ((1, width), (width,), (width,)))
    for actual, expected in zip(fd.execute([x, weight, bias]), torch_layer_norm(*_doubles(x, weight, bias))):
        assert_close(actual, expected, 8 * width)


def _doubles(*tensors: torch.Tensor) -> list[torch.Tensor]:
    return [t.cpu().double() for t in tensors]


# ---- segments ----------------------------------------------------------------------------------------------


def test_several_segments(target: torch.device) -> None:
    fd = _definition(rows_and_columns, (2,))
    x = torch.randn(50, 70, device=target)
    (y,) = fd.execute([x])
    assert_close(y, torch_rows_and_columns(x.double()), 70)
    assert len(_kernels(fd)) > 1


def test_keepdim_sum_and_a_wider_add_are_two_segments(target: torch.device) -> None:
    """The example of the reference's segmentation section."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True, dtype=FLOAT)
        y = fd.define_tensor([-1, -1], contiguity=True, dtype=FLOAT)
        fd.add_output(fd.ops.sum(x, [1], keepdim=True) + y)
    a, b = torch.randn(6, 20, device=target), torch.randn(6, 50, device=target)
    (out,) = fd.execute([a, b])
    assert_close(out, a.double().sum(1, keepdim=True) + b.double(), 20)
    assert [k.scheduler for k in fd._last_kernels()] == ["reduction", "pointwise"]


def test_segment_set_forces_a_border(target: torch.device) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], contiguity=True, dtype=FLOAT)
        fd.add_output(fd.ops.exp(fd.ops.segment_set(fd.ops.sin(x))))
    t = torch.randn(100, device=target)
    (out,) = fd.execute([t])
    assert_close(out, t.double().sin().exp())
    assert len(_kernels(fd)) == 2


# ---- inputs and outputs ------------------------------------------------------------------------------------


def test_aliased_output_is_written_into_the_input(target: torch.device) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True, dtype=FLOAT)
        moved = x * 0.9 + 0.1
        fd.add_output(moved, x)
        fd.add_output(fd.ops.sum(moved, [1]))
    t = torch.randn(8, 40, device=target)
    kept = t.clone()
    outputs = fd.execute([t])
    expected = kept.double() * 0.9 + 0.1
    assert len(outputs) == 1
    assert_close(t, expected)
    assert_close(outputs[0], expected.sum(1), 40)


def test_outputs_that_alias_each_other_share_the_input(target: torch.device) -> None:
    """The aliasing example of the reference."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], contiguity=True, dtype=FLOAT)
        y = x + 1.0
        fd.add_output(y)
        fd.add_output(y, x)
        fd.add_output(y)
        fd.add_output(x)
    t = torch.zeros(16, device=target)
    outputs = fd.execute([t])
    assert [o.data_ptr() for o in outputs] == [t.data_ptr()] * 3
    assert torch.equal(t, torch.ones_like(t))


def test_alias_that_is_read_along_another_dimension(target: torch.device) -> None:
    """Written in place, elements would be overwritten before others read them."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True, dtype=FLOAT)
        fd.add_output(x + fd.ops.permute(x, [1, 0]), x)
    t = torch.randn(64, 64, device=target)
    expected = t.double() + t.double().t()
    assert fd.execute([t]) == []
    assert_close(t, expected)


def _transposed(x: torch.Tensor) -> torch.Tensor:
    return x.t().contiguous().t()


def _gaps(x: torch.Tensor) -> torch.Tensor:
    wide = torch.zeros(x.shape[0], 2 * x.shape[1], device=x.device)
    wide[:, ::2] = x
    return wide[:, ::2]


def _offset(x: torch.Tensor) -> torch.Tensor:
    """Aligned to one element, and no more."""
    flat = torch.zeros(x.numel() + 1, device=x.device)
    flat[1:] = x.reshape(-1)
    return flat[1:].view(x.shape)


@pytest.mark.parametrize("layout", [_transposed, _gaps, _offset], ids=lambda f: f.__name__[1:])
@pytest.mark.parametrize("declared", ["strided", "from_pytorch"])
def test_layouts(target: torch.device, layout: Any, declared: str) -> None:
    x = layout(torch.randn(24, 64, device=target))
    y = torch.randn(64, device=target).expand(24, 64)
    with FusionDefinition() as fd:
        if declared == "strided":
            a, b = fd.define_tensor([-1, -1]), fd.define_tensor([-1, -1])
        else:
            a, b = fd.from_pytorch(x), fd.from_pytorch(y)
        fd.add_output(a * b)
        fd.add_output(fd.ops.sum(a * b, [1]))
    product, total = fd.execute([x, y])
    assert_close(product, x.double() * y.double())
    assert_close(total, (x.double() * y.double()).sum(1), 64)


def test_stride_order_of_outputs(target: torch.device) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1, -1], contiguity=True, dtype=FLOAT)
        fd.add_output(x * 2.0, stride_order=[1, 0, 2])
    t = torch.randn(3, 8, 16, device=target)
    (out,) = fd.execute([t])
    assert torch.equal(out, t * 2)
    assert out.stride() == (8, 1, 24)


def test_numbers_and_host_tensors_as_inputs(target: torch.device) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], contiguity=True, dtype=FLOAT)
        scale = fd.define_scalar(None, DataType.Double)
        shift = fd.define_tensor([], [], DataType.Float, is_cpu=True)
        count = fd.define_scalar(None, DataType.Int)
        fd.add_output(x * scale + shift * count)
    t = torch.randn(70, device=target)
    for scale_value, count_value in ((0.5, 3), (-2.0, 0)):
        (out,) = fd.execute([t, scale_value, torch.tensor(0.25), count_value])
        assert_close(out, t.double() * scale_value + 0.25 * count_value)


def test_a_fusion_without_tensor_inputs(target: torch.device) -> None:
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.iota(10, 1, 3) * 2)
    (out,) = fd.execute([], device=target)
    assert out.tolist() == [2 * (1 + 3 * i) for i in range(10)]


def test_welford_of_values_far_from_zero(target: torch.device) -> None:
    """The two-pass result; mean of squares minus square of the mean would have no correct digit."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True, dtype=FLOAT)
        variance, mean = fd.ops.var_mean(x, [1], 0)
        fd.add_output(variance)
        fd.add_output(mean)
    t = (torch.randn(5, 3000) + 1000.0).to(target)
    variance, mean = fd.execute([t])
    expected = torch.var_mean(t.double(), 1, correction=0)
    assert_close(mean, expected[1])
    assert_close(variance, expected[0], 3000)


@pytest.mark.parametrize("shape", [(3, 0), (1, 0), (200, 0), (0, 4), (0, 0), (3, 5)])
def test_rows_without_elements_have_results(shape: tuple[int, int], target: torch.device) -> None:
    """What is computed once a row is stored even where the loops over the row's elements never run."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True, dtype=FLOAT)
        total = fd.ops.sum(x, [1], keepdim=True)
        fd.add_output(x * total)
        fd.add_output(total)
    fd.execute([torch.randn(64, 256, device=target)])
    t = torch.randn(shape, device=target)
    product, sums = fd.execute([t])
    assert_close(sums, t.double().sum(1, keepdim=True), shape[1])
    assert_close(product, t.double() * t.double().sum(1, keepdim=True), shape[1])


def test_statistics_of_vectors_at_once(target: torch.device) -> None:
    """Rows that vectors divide and rows that they do not; the last values of a row far from the others.

    The count is read, too, which two sums would not make.
    """
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True, dtype=DataType.Half)
        for output in fd.ops.welford(fd.ops.cast(x, FLOAT), [1]):
            fd.add_output(output)
    for length in (5000, 5001, 8, 16384):
        t = (torch.randn(6, length) / 8 + 100).to(target, torch.float16)
        t[:, -3:] = -50
        mean, squares, count = fd.execute([t])
        expected = torch.var_mean(t.double(), 1)
        assert_close(mean, expected[1])
        assert_close(squares / (length - 1), expected[0], length)
        assert count.eq(length).all()
        combined = [s for k in fd._last_kernels() for s in walk(k.kernel.body) if isinstance(s, Combine)]
        assert any(s.width > 1 for s in combined) == (length % 8 == 0)


def test_nan_and_infinity_pass_through(target: torch.device) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True, dtype=FLOAT)
        fd.add_output(fd.ops.max(x, [1]))
        fd.add_output(fd.ops.sum(x, [1]))
    t = torch.zeros(3, 100, device=target)
    t[0, 17], t[1, 40], t[2, 3] = torch.nan, torch.inf, -torch.inf
    largest, total = fd.execute([t])
    assert torch.allclose(largest.cpu(), torch.tensor([torch.nan, torch.inf, 0.0]), equal_nan=True)
    assert torch.allclose(total.cpu(), torch.tensor([torch.nan, torch.inf, -torch.inf]), equal_nan=True)


def test_an_input_is_scaled_in_place_by_a_number_on_the_cpu_beside_its_mean(target: torch.device) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1, 1], contiguity=True, dtype=FLOAT)
        scaled = x * fd.define_tensor([], dtype=DataType.Double, is_cpu=True)
        fd.add_output(fd.ops.mean(scaled, [0, 1, 2]))
        fd.add_output(scaled, alias_input=x)
    t = torch.randn(3, 40, 1, device=target)
    expected = 2.0 * t
    [mean] = fd.execute([t, torch.tensor(2.0, dtype=torch.double)])
    torch.testing.assert_close(mean, expected.mean())
    torch.testing.assert_close(t, expected)


@pytest.mark.parametrize("dtype", (DataType.Float, DataType.Double, DataType.Half), ids=str)
def test_clamp_is_nan_where_the_value_or_a_limit_is(dtype: DataType, target: torch.device) -> None:
    """Limits of the definition, and limits of a call. (torch 2.11 ignores one that is NaN and alone.)"""
    limits = [
        (torch.nan, None),
        (None, torch.nan),
        (torch.nan, 1.0),
        (0.0, torch.nan),
        (0.0, 1.0),
        (3.0, 2.0),
    ]
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], contiguity=True, dtype=dtype)
        low, high = (
            fd.define_scalar(None, dtype=DataType.Double),
            fd.define_scalar(None, dtype=DataType.Double),
        )
        for pair in limits:
            fd.add_output(fd.ops.clamp(x, *pair))
        fd.add_output(fd.ops.clamp(x, low, high))
    t = torch.tensor([0.5, -2.0, 7.0, torch.nan, torch.inf, -torch.inf], dtype=dtype.torch, device=target)
    infinite = [(-torch.inf, torch.inf), (torch.inf, -torch.inf)]
    for given in [(a, b) for a, b in limits if a is not None and b is not None] + infinite:
        for made, pair in zip(fd.execute([t, *given]), [*limits, given], strict=True):
            is_nan = any(limit is not None and math.isnan(limit) for limit in pair)
            wanted = torch.full_like(t, torch.nan) if is_nan else t.clamp(*pair)
            torch.testing.assert_close(made, wanted, rtol=0, atol=0, equal_nan=True)


# ---- several threads ---------------------------------------------------------------------------------------


def test_calls_from_several_threads(target: torch.device) -> None:
    fd = _definition(softmax, (2,))
    inputs = [torch.randn(4, n, device=target) for n in (32, 33, 100, 128)]
    problems: list[BaseException] = []
    start = threading.Barrier(len(inputs) * 2)

    def work(x: torch.Tensor) -> None:
        try:
            start.wait()
            for _ in range(5):
                (y,) = fd.execute([x])
                assert_close(y, x.double().softmax(-1), x.shape[1])
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(x,)) for x in inputs * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


def test_definitions_from_several_threads(target: torch.device) -> None:
    x = torch.randn(16, device=target)
    results: dict[int, torch.Tensor] = {}
    problems: list[BaseException] = []

    def work(number: int) -> None:
        try:
            with FusionDefinition() as fd:
                t = fd.define_tensor([-1], contiguity=True, dtype=FLOAT)
                for _ in range(number + 1):
                    t = t + 1.0
                fd.add_output(t)
            (results[number],) = fd.execute([x])
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    for number, y in results.items():
        assert_close(y, x.double() + number + 1)


# ---- more than 2^31 elements -------------------------------------------------------------------------------


def _wide_sum() -> FusionDefinition:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=False, dtype=DataType.BFloat16)
        fd.add_output(fd.ops.cast(fd.ops.exp(x), DataType.BFloat16))
        fd.add_output(fd.ops.sum(fd.ops.cast(x, DataType.Float), [1]))
    return fd


def _kernels_of(fd: FusionDefinition, inputs: list[torch.Tensor]) -> Any:
    """The kernels for these inputs, not run."""
    return FusionExecutor(fd._finished().fusion).compile(inputs).kernels


def test_64_bit_indices_where_offsets_need_them() -> None:
    fd = _wide_sum()
    small = torch.zeros(8, 64, dtype=torch.bfloat16)
    for kernel in _kernels_of(fd, [small]):
        assert kernel.index_dtype is DataType.Int32
        assert "long long i0" not in kernel.cuda_text
    for kernel in _kernels_of(fd, [_far_apart()]):
        assert kernel.index_dtype is DataType.Int
        assert "long long i" in kernel.cuda_text


def _far_apart() -> torch.Tensor:
    """Two rows 2^31 elements apart. The storage is virtual memory that nothing writes to."""
    return torch.empty(2**31 + 128, dtype=torch.bfloat16).as_strided((2, 64), (2**31 + 64, 1))


@pytest.mark.gpu
def test_tensors_of_more_than_2_to_the_31_elements() -> None:
    rows, columns = 2**16 + 1, 2**15
    needed = 3 * rows * columns * 2
    if torch.cuda.mem_get_info()[0] < needed:
        pytest.skip(f"needs {needed >> 30} GiB of GPU memory")
    x = torch.full((rows, columns), 0.5, dtype=torch.bfloat16, device="cuda")
    x[-1, -1] = 2.0
    y, total = _wide_sum().execute([x])
    assert y[-1, -1].item() == torch.tensor(2.0).exp().bfloat16().item()
    assert total[-1].item() == columns * 0.5 + 1.5
    assert bool((total[:-1] == columns * 0.5).all())


def test_torchs_default_device_is_not_where_a_call_runs() -> None:
    """Scripts set it to "cuda"; what is computed of CPU tensors, and of numbers, stays in host memory."""
    x = torch.randn(8, 64)
    torch.set_default_device("meta")
    try:
        with FusionDefinition() as fd:
            t = fd.define_tensor([-1, -1], contiguity=True)
            factor, count = fd.define_scalar(DataType.Float), fd.define_scalar(DataType.Int32)
            fd.add_output(fd.ops.sum(t * (factor + 1.5), [1]))
            fd.add_output(fd.ops.iota(4) * (count + 1))
            fd.add_output(fd.ops.uniform(0.0, 1.0, [3], dtype=DataType.Float))
            fd.add_output(fd.ops.topk(t, 2, 1)[0])
        for _ in range(2):
            total, counted, drawn, most = fd.execute([x, 0.5, 3])
    finally:
        torch.set_default_device(None)
    torch.testing.assert_close(total, (2 * x).sum(1))
    assert counted.tolist() == [0, 4, 8, 12] and 0 <= drawn.min() <= drawn.max() < 1
    assert torch.equal(most, x.topk(2, 1)[0])
