"""`fd.kernels_for`: the kernels of a call as values, before it and without it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch._subclasses import FakeTensorMode

from fusewright import CompiledKernel, CompileParams, DataType, FusionDefinition, ParallelType, SegmentKernel
from fusewright.core.errors import (
    ArgumentTypeError,
    DeviceError,
    FusewrightError,
    InputDtypeError,
    OptionError,
    ParamsError,
    ScheduleError,
)
from fusewright.core.hardware import described
from fusewright.core.options import Options
from fusewright.core.tracing import Tracer
from fusewright.cuda.nvrtc import NvrtcOptions, Resources, compile_cubin
from fusewright.host.kernels.segment_kernels import SegmentKernels
from fusewright.runtime.occupancy import occupancy

H200 = described("h200")


def attention_scores() -> FusionDefinition:
    """A softmax, torch's product, and what follows it: three segments."""
    with FusionDefinition() as fd:
        x, w = fd.define_tensor([-1, -1], True), fd.define_tensor([-1, -1], True)
        rows = fd.ops.softmax(x, 1)
        fd.add_output(fd.ops.exp(fd.ops.matmul(rows, w)) * 2.0)
    return fd


def scores_inputs(device: str = "cpu") -> list[torch.Tensor]:
    return [torch.zeros(4, 256, device=device), torch.zeros(256, 8, device=device)]


def names(kernels: SegmentKernels) -> list[str]:
    return [kernel.name for kernel in kernels]


def compilations(fd: FusionDefinition, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How often something was scheduled or compiled for a definition since it was asked for."""
    tracer = Tracer()
    monkeypatch.setattr(fd, "_tracer", tracer)

    def count() -> int:
        made = sum(t.count for path, t in tracer.stages.items() if path.endswith(("schedule", "nvrtc")))
        tracer.stages.clear()
        return made

    return count


def test_what_a_kernel_says() -> None:
    fd = attention_scores()
    kernels = fd.kernels_for(scores_inputs())
    softmax, product, tail = kernels
    assert [kernel.segments for kernel in kernels] == [(0,), (1,), (2,)]
    assert [kernel.scheduler for kernel in kernels] == ["inner_persistent", "expr_eval", "pointwise"]

    assert isinstance(softmax, SegmentKernel) and isinstance(softmax.kernel, CompiledKernel)
    assert softmax.reason and softmax.params.reason == softmax.reason
    assert softmax.proposal is not None and softmax.proposal.bytes == 2 * 4 * 4 * 256
    assert (softmax.bytes_read, softmax.bytes_written) == (4 * 4 * 256, 4 * 4 * 256)
    assert softmax.trace == softmax.kernel.trace and len(softmax.trace) > 3
    assert softmax.schedule_text.startswith("def schedule(fd):\n    fd.sched.segment(0)\n")
    assert softmax.name in softmax.cuda_text

    # As the definition prints them: T2 is the softmax, T3 the product, T4 what exp makes of it.
    assert "T3 = fd.ops.matmul(T2, T1)" in repr(fd)
    read, written = softmax.tensors
    assert (read.definition_name, written.definition_name) == ("T0", "T2")
    assert (read.is_written, written.is_written) == (False, True)
    assert f"{written.name}[" in softmax.cuda_text and written.shape == (4, 256)
    assert [tensor.definition_name for tensor in product.tensors] == ["T2", "T1", "T3"]
    assert tail.tensors[0].definition_name == "T3"

    assert (product.kernel, product.params, product.launch, product.resources) == (None,) * 4
    assert product.name == "matmul" and product.cuda_text == product.schedule_text == ""
    assert "torch computes it" in str(product)

    text = str(kernels)
    assert repr(kernels) == text and len(text.splitlines()) == 4
    assert all(kernel.name in text for kernel in kernels) and "registers" in text
    assert softmax.reason in str(softmax)
    plain = json.loads(json.dumps(kernels.to_dict()))["kernels"]
    assert plain[0]["params"]["type"] == "ReductionParams" and plain[0]["reason"] == softmax.reason
    assert plain[1]["resources"] is None and plain[2]["tensors"][0]["definition_name"] == "T3"


def test_resources_are_those_of_the_machine_code() -> None:
    kernel = attention_scores().kernels_for(scores_inputs())[0]
    assert kernel.kernel is not None and kernel.launch is not None and kernel.occupancy is not None
    cubin = compile_cubin(kernel.kernel.full_text, NvrtcOptions(H200.arch))
    assert kernel.resources == cubin.resources[kernel.name]
    held = kernel.occupancy
    assert held.blocks >= 1 and held.warps * 32 == held.blocks * kernel.launch.threads
    assert 0 < held.share <= 1


@pytest.mark.parametrize(
    "taken, threads, shared, blocks, limited_by",
    [
        (Resources(registers=32), 256, 0, 8, "threads"),
        (Resources(registers=32), 32, 0, 32, "blocks"),
        (Resources(registers=33), 256, 0, 6, "registers"),
        (Resources(registers=255), 256, 0, 1, "registers"),
        (Resources(registers=32, static_shared=1024), 128, 99 * 1024, 2, "shared memory"),
    ],
)
def test_occupancy(taken: Resources, threads: int, shared: int, blocks: int, limited_by: str) -> None:
    found = occupancy(taken, threads, shared, H200)
    assert (found.blocks, found.limited_by) == (blocks, limited_by)


@pytest.mark.parametrize("kernels_first", [True, False])
def test_kernels_are_shared_with_calls(kernels_first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    fd = attention_scores()
    count, inputs = compilations(fd, monkeypatch), scores_inputs()
    if not kernels_first:
        fd.execute(inputs)
        assert count() == 2  # schedules; the simulator takes no machine code
    kernels = fd.kernels_for(inputs)
    assert count() == (2 if kernels_first else 0)
    assert "registers" in str(kernels) and count() == 2  # machine code is made where it is asked for
    fd.execute(inputs)
    assert fd.kernels_for(inputs)[0].kernel is kernels[0].kernel
    assert names(kernels)[::2] == [kernel.name for kernel in fd._last_kernels()]
    assert count() == 0


def test_kernels_are_those_of_the_program_that_a_call_has() -> None:
    """A size that has changed is no constant of later kernels, but what is bound stays."""
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.sum(fd.define_tensor([-1, -1], True), [1]))
    first, second = torch.zeros(8, 96), torch.zeros(8, 160)
    for inputs in (first, second, first):
        fd.execute([inputs])
        assert names(fd.kernels_for([inputs])) == [kernel.name for kernel in fd._last_kernels()]


@pytest.mark.parametrize("kind", ["meta", "fake cpu", "fake cuda"])
def test_tensors_without_memory(kind: str) -> None:
    if kind == "meta":
        inputs, device = scores_inputs("meta"), "cuda"
    else:
        device = None
        with FakeTensorMode():
            inputs = scores_inputs(kind.split()[1])
    kernels = attention_scores().kernels_for(inputs, device=device)
    assert names(kernels) == names(attention_scores().kernels_for(scores_inputs("cpu")))


def test_views_without_memory_start_where_those_with_memory_do() -> None:
    """At addresses that are multiples of fewer bytes than a vector has."""
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.sum(fd.define_tensor([-1, -1], True), [1]))

    def kernels(offset: int, device: str) -> list[str]:
        memory = torch.zeros(32 * 512 + offset, device=device)
        return names(fd.kernels_for([memory[offset:].view(32, 512)], device="cpu"))

    known = {offset: kernels(offset, "cpu") for offset in (0, 1, 2, 4)}
    assert known[0] == known[4] and len({*map(tuple, known.values())}) == 3
    assert {offset: kernels(offset, "meta") for offset in known} == known
    with FakeTensorMode():
        assert {offset: kernels(offset, "cpu") for offset in known} == known


def test_meta_tensors_need_a_device() -> None:
    fd = attention_scores()
    with pytest.raises(DeviceError, match=r'meta tensors do not say(?s:.*)device="cuda", or device="cpu"'):
        fd.kernels_for(scores_inputs("meta"))
    assert fd.kernels_for([torch.zeros(4, 256), scores_inputs("meta")[1]])  # the other one says it


def test_mistakes() -> None:
    fd = attention_scores()
    with pytest.raises(InputDtypeError):
        fd.kernels_for([x.double() for x in scores_inputs()])
    with pytest.raises(ScheduleError, match="segment 7"):
        fd.kernels_for(scores_inputs(), schedules={7: lambda schedule: None})
    with pytest.raises(ArgumentTypeError, match=r"^kernels_for\(\): .* Expected a list of inputs, got str"):
        fd.kernels_for("x")  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match=r"^segment\(\): .* Expected a list of inputs, got None"):
        fd.segment(None)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="described GPU"):
        described(3)  # type: ignore[arg-type]
    plain = InOneBlock()
    plain.schedule = lambda: plain.sched.assume_multiple(plain.sched.tensors()[0], 0, 0)  # type: ignore[method-assign]
    with pytest.raises(ScheduleError, match="no size is a multiple of that"):
        plain.kernels_for([torch.zeros(64)])


def test_kernels_of_a_segmented_definition() -> None:
    """They are the segments', under the places and the names that the whole definition has for them."""
    fd, inputs = attention_scores(), scores_inputs()
    whole = fd.kernels_for(inputs)
    segments = fd.segment(inputs)
    kernels = fd.kernels_for(inputs)
    assert names(kernels) == names(whole) == names(fd.kernels_for(scores_inputs("meta"), device="cuda"))
    assert [kernel.segments for kernel in kernels] == [(0,), (1,), (2,)]
    assert [[t.definition_name for t in k.tensors] for k in kernels] == [
        ["T0", "T2"],
        ["T2", "T1", "T3"],
        ["T3", "T5"],
    ]

    edited = replace(kernels[2].params, cparams=CompileParams(maxrregcount=32))
    assert fd.kernels_for(inputs, schedules={segments[2]: edited})[2].params == edited

    wrong = replace(edited, vectorization_factor=3)
    for ask in (fd.kernels_for, fd.execute):  # errors have the place among all segments
        with pytest.raises(ParamsError, match=r"^`schedules\[2\].vectorization_factor`"):
            ask(inputs, schedules={2: wrong})
        with pytest.raises(ParamsError, match=r"^`schedules\[2\]`: expected PointwiseParams.*got Red"):
            ask(inputs, schedules={segments[2]: kernels[0].params})
        with pytest.raises(ParamsError, match=r"^`schedules\[2\]`: expected params.*got None"):
            ask(inputs, schedules={2: None})
        with pytest.raises(ScheduleError, match="segment 1 is none that a kernel computes"):
            ask(inputs, schedules={1: edited})

    segments[0].schedule = lambda: segments[0].sched.split(segments[0].sched.tensor("T1"), 2, 4)  # type: ignore[method-assign]
    for ask in (fd.kernels_for, fd.execute):
        with pytest.raises(ScheduleError, match=r"T1 = fd\.ops\.softmax\(.*\) at \S*test_kernels\.py:"):
            ask(inputs)


def test_kernels_of_segments_that_write_into_inputs_and_draw() -> None:
    """Nothing is written, and no state is drawn."""
    with FusionDefinition() as fd:
        x, w = fd.define_tensor([-1, -1], True), fd.define_tensor([-1, -1], True)
        fd.add_output(fd.ops.matmul(fd.ops.dropout(fd.ops.softmax(x, 1), 0.5)[0], w))
        fd.add_output(x + 1.0, x)
    inputs = scores_inputs()
    fd.segment(inputs)
    state = torch.get_rng_state()
    assert len(fd.kernels_for(inputs)) == len(fd.segments)
    assert not inputs[0].any() and torch.equal(state, torch.get_rng_state())


def test_several_segments_in_one_launch() -> None:
    with FusionDefinition() as fd:
        for size in (64, 32):
            fd.add_output(fd.ops.exp(fd.define_tensor([size, 4], True)))
    inputs = [torch.zeros(64, 4), torch.zeros(32, 4)]
    [combined] = fd.kernels_for(inputs)
    assert combined.scheduler == "horizontal" and combined.segments == (0, 1)
    assert [part.scheduler for part in combined.parts] == ["pointwise"] * 2
    assert [part.segments for part in combined.parts] == [(0,), (1,)]
    assert combined.bytes_read == sum(part.bytes_read for part in combined.parts)
    assert {tensor.definition_name for tensor in combined.tensors} == {"T0", "T1", "T2", "T3"}
    assert all(f"{tensor.name}".replace(".", "_") in combined.cuda_text for tensor in combined.tensors)
    assert "2 segments in one launch" in str(combined) and combined.parts[1].name in str(combined)
    apart = FusionDefinition(options=Options(disable=(("horizontal_fusion", ()),)))
    with apart as fd:
        fd.add_output(fd.ops.exp(fd.define_tensor([64, 4], True)))
        fd.add_output(fd.ops.exp(fd.define_tensor([32, 4], True)))
    assert [kernel.segments for kernel in apart.kernels_for(inputs)] == [(0,), (1,)]


class InOneBlock(FusionDefinition):
    """As many threads as the input has elements: the block is a call's."""

    def definition(self) -> None:
        self.x = self.define_tensor([-1], True)
        self.add_output(self.x * 2.0)

    def schedule(self) -> None:
        self.written = getattr(self, "written", 0) + 1
        (out,) = (t for t in self.sched.tensors() if t.index != self.x.index)
        self.sched.parallelize(out, 0, ParallelType.block_x)


def test_a_larger_block_is_compiled_for_without_scheduling(monkeypatch: pytest.MonkeyPatch) -> None:
    fd = InOneBlock()
    kernels = {size: fd.kernels_for([torch.zeros(size)])[0] for size in (64, 300, 200)}
    assert [kernel.scheduler for kernel in kernels.values()] == ["user"] * 3
    assert len({kernel.kernel for kernel in kernels.values()}) == 1  # scheduled and lowered once
    assert kernels[64].code is kernels[200].code is not kernels[300].code
    for size, kernel in kernels.items():
        assert kernel.launch is not None and kernel.launch.block == (size, 1, 1)
        assert kernel.code is not None
        assert f"__launch_bounds__({512 if size > 256 else 256})" in kernel.code.text


def test_user_schedules_of_tensors_without_memory() -> None:
    fd = InOneBlock()
    with FakeTensorMode():
        fake = torch.zeros(64)
    found: list[Any] = [fd.kernels_for([fake])[0], fd.kernels_for([fake.to("meta")], device="cpu")[0]]
    found.append(fd.kernels_for([torch.zeros(64)])[0])
    assert len({kernel.kernel for kernel in found}) == 1
    assert fd.kernels_for([fake], override_user_schedule=True)[0].scheduler == "pointwise"
    assert torch.equal(fd.execute([torch.ones(64)])[0], torch.full((64,), 2.0))


def test_edited_params() -> None:
    fd = attention_scores()
    inputs = scores_inputs()
    tail = fd.kernels_for(inputs)[2]
    with pytest.raises(FusewrightError):
        fd.kernels_for(inputs, schedules={1: tail.params})
    edited = replace(tail.params, vectorization_factor=1)
    changed = fd.kernels_for(inputs, schedules={2: edited})[2]
    assert changed.params == edited and changed.name != tail.name
    described = changed.to_dict()["params"]
    for plain in (described, json.dumps(described), {"scheduler": "pointwise", "vectorization_factor": 1}):
        assert fd.kernels_for(inputs, schedules={2: plain})[2].kernel is changed.kernel


@pytest.mark.parametrize("given, path", [
    ({"lparams": {"blockdimx": 64}}, "schedules[2].lparams.blockdimx"),
    ('{"lparams": {"bdimx": "64"}}', "schedules[2].lparams.bdimx"),
    ({"lparams": {"bdimz": 2}}, "schedules[2].lparams.bdimz"),
    ({"lparams": [64]}, "schedules[2].lparams"),
    ({"scheduler": "reduction"}, "schedules[2].scheduler"),
    ({"type": "ReductionParams"}, "schedules[2].type"),
    ({4: 1}, "schedules[2].4"),
    ("[1]", "schedules[2]"),
    ("pointwise", "schedules[2]"),
    ([64], "schedules[2]"),
])  # fmt: skip
def test_dicts_that_are_no_params_of_a_kernel(given: Any, path: str) -> None:
    fd, inputs = attention_scores(), scores_inputs()
    for _ in range(2):
        with pytest.raises(ParamsError, match=re.escape(f"`{path}`")):
            fd.kernels_for(inputs, schedules={2: given})


@pytest.mark.gpu
def test_on_a_gpu() -> None:
    """The driver counts as many resident blocks, and a launch takes what was compiled for it."""
    fd = InOneBlock()
    driver = pytest.importorskip("cuda.bindings.driver")
    for size in (64, 1000, 300, 64):
        x = torch.rand(size, device="cuda")
        [kernel] = fd.kernels_for([x])
        assert kernel.code is not None and kernel.launch is not None and kernel.occupancy is not None
        [out] = fd.execute([x])
        assert torch.equal(out, 2 * x) and kernel.code.is_loaded
        loaded = kernel.code.loaded(x.device.index or 0)
        assert kernel.resources is not None and loaded.registers == kernel.resources.registers
        query = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor
        code, blocks = query(loaded.function, kernel.launch.threads, kernel.launch.shared_bytes)
        assert not code and blocks == kernel.occupancy.blocks
    with FakeTensorMode():
        fake = torch.empty(300, device="cuda")
    assert fd.kernels_for([fake])[0].kernel is kernel.kernel


def test_the_schedule_of_each_kernel_makes_it_when_it_is_handed_back() -> None:
    def made() -> FusionDefinition:
        with FusionDefinition() as fd:
            x = fd.define_tensor([-1, -1], True)
            fd.add_output(fd.ops.softmax(x, 1))
            fd.add_output(fd.ops.sum(x, [0]))
        return fd

    inputs = [torch.randn(64, 300)]
    automatic = made().kernels_for(inputs)
    assert len(automatic) == 2
    limited = {"cparams": {"maxrregcount": 40, "index_type": "Int"}}
    kernels = [*automatic, made().kernels_for(inputs, schedules={0: limited})[0]]
    for kernel in kernels:
        scope: dict[str, Any] = {"ParallelType": ParallelType, "DataType": DataType}
        exec(kernel.schedule_text, scope)
        [i] = kernel.segments
        again = made().kernels_for(inputs, schedules={i: scope["schedule"]})
        assert _unnamed(again[i]) == _unnamed(kernel) and again[1 - i].name == automatic[1 - i].name
        assert again[i].schedule_text == kernel.schedule_text
    assert "set_compile_params(index_type=DataType.Int, maxrregcount=40)" in kernels[-1].schedule_text


def _unnamed(kernel: SegmentKernel) -> str:
    return kernel.cuda_text.replace(kernel.name, "kernel")
