"""Equal segments, of one definition or of several, are scheduled, lowered and compiled once."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fusewright import DataType, FusionCache, FusionDefinition
from fusewright.core.errors import RejectedError, SimulationError
from fusewright.core.options import Options
from fusewright.core.tracing import Tracer
from fusewright.host import FusionExecutor
from fusewright.runtime import targets
from fusewright.runtime.compiled_kernel import CompiledKernel
from fusewright.runtime.disk_cache import DiskCache
from fusewright.schedulers import InnerPersistentScheduler, PointwiseScheduler, Registry, Reject
from tests.host.fusions import Definition

NAME = re.compile(r"fusewright_[A-Za-z0-9_]+_[0-9a-f]{8}")


@pytest.fixture(autouse=True)
def own_definitions() -> None:
    """A definition of another test has the kernels that it ran with."""
    FusionCache.reset()


def stack(layers: int, before: int = 0) -> FusionDefinition:
    """x = x + tanh(x @ w + b), again and again; `before`: inputs that are defined first and not used."""
    with FusionDefinition() as fd:
        for _ in range(before):
            fd.define_tensor(shape=[-1, -1, 3], contiguity=True, dtype=DataType.Float)
            fd.define_scalar(dtype=DataType.Double)
        x = fd.define_tensor(shape=[-1, -1], contiguity=True, dtype=DataType.Float)
        for _ in range(layers):
            w = fd.define_tensor(shape=[-1, -1], contiguity=True, dtype=DataType.Float)
            b = fd.define_tensor(shape=[-1], contiguity=True, dtype=DataType.Float)
            x = x + fd.ops.tanh(fd.ops.matmul(x, w) + fd.ops.broadcast(b, [True, False]))
        fd.add_output(x)
    return fd


def stack_inputs(layers: int) -> list[torch.Tensor]:
    parameters = [tensor for _ in range(layers) for tensor in (torch.randn(8, 8) / 4, torch.randn(8))]
    return [torch.randn(4, 8), *parameters]


def executor_of(fd: FusionDefinition) -> FusionExecutor:
    number = fd.id()
    assert number is not None
    return FusionCache.get().schedules(number).executor


def test_a_hundred_equal_layers_are_one_kernel() -> None:
    fd, inputs = stack(100), stack_inputs(100)
    expected = inputs[0]
    for w, b in zip(inputs[1::2], inputs[2::2]):
        expected = expected + torch.tanh(expected @ w + b)
    torch.testing.assert_close(fd.execute(inputs)[0], expected)
    kernels = fd._last_kernels()
    assert len(kernels) == 100 and len(set(kernels)) == 1
    # The text shows it once, below what its names stand for in each layer.
    text = fd.last_cuda_code()
    assert text.count("__global__") == 1 and len(set(re.findall("// where .*", text))) == 100


def test_definitions_share_kernels_whatever_their_numbers() -> None:
    first, second = stack(2), stack(3, before=2)
    first.execute(stack_inputs(2))
    others = [value for _ in range(2) for value in (torch.zeros(1, 1, 3), 1.0)]
    second.execute([*others, *stack_inputs(3)])
    kernels = {*first._last_kernels(), *second._last_kernels()}
    assert len(kernels) == 1 and all(NAME.fullmatch(kernel.name) for kernel in kernels)


def test_threads_share_kernels() -> None:
    executors = [executor_of(stack(layers)) for layers in (1, 2, 3, 4)]

    def compiled(layers: int) -> tuple[CompiledKernel, ...]:
        return executors[layers - 1].compile(stack_inputs(layers)).kernels

    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(compiled, (1, 2, 3, 4)))
    assert len({kernel for kernels in made for kernel in kernels}) == 1


def test_processes_share_machine_code(tmp_path: Path) -> None:
    """Names and texts are equal in every process, so the disk cache has what another process compiled."""
    [kernel] = executor_of(stack(1)).compile(stack_inputs(1)).kernels
    cache = DiskCache(tmp_path)
    replace(kernel.code(), disk_cache=lambda: cache).cubin()
    program = (
        "from tests.host.test_shared_kernels import *\n"
        f"cache = DiskCache(Path({str(tmp_path)!r}))\n"
        "inputs = [torch.zeros(1, 1, 3), 1.0, *stack_inputs(2)]\n"
        "for kernel in executor_of(stack(2, before=1)).compile(inputs).kernels:\n"
        "    replace(kernel.code(), disk_cache=lambda: cache).cubin()\n"
        "print(kernel.name, cache.stats().hits, cache.stats().stores)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.split() == [kernel.name, "1", "0"]


def test_another_scheduler_object_makes_its_own_kernels() -> None:
    class Own(PointwiseScheduler):
        pass

    def kernel(registry: Registry | None) -> CompiledKernel:
        d = Definition()
        d.output(d.neg(d.tensor()))
        return d.executor(registry).compile([torch.ones(2, 4)]).kernels[0]

    own = Own()
    made = [kernel(r) for r in (None, Registry([own]), Registry([own]), Registry([Own()]))]
    assert made[1] is made[2] and len(set(made)) == 3


def test_dumps_show_a_shared_kernel_and_what_its_names_stand_for() -> None:
    executor_of(stack(1)).compile(stack_inputs(1))
    shown = io.StringIO()
    options = Options(dump=tuple((stage, ()) for stage in ("segments", "kernel", "cuda")))
    executor_of(stack(2)).compile(stack_inputs(2), tracer=Tracer(options, shown))
    text = shown.getvalue()
    [where] = re.findall(r"segment 3 \(pointwise\): .*\n  where (.*)\n", text)
    assert re.match(r"T0 is T\d+, T1 is T\d+", where) and f"// where {where}\n" in text
    assert "==== fusewright kernel" in text


def test_what_is_refused_has_the_names_of_the_definition() -> None:
    """In the log of the partition, at planning, and where sizes do not fit the kernel."""

    class Refuses(PointwiseScheduler):
        def prepare(self, fusion):
            planner = super().prepare(fusion)
            if isinstance(planner, Reject) or len(fusion.nodes) > 1:
                return Reject(f"{fusion.outputs[0].tensor.name} is too much")
            return lambda facts, hardware: Reject(f"{fusion.outputs[0].tensor.name} is too much")

    d = Definition()
    for _ in range(3):
        d.tensor()
    x = d.fusion.inputs[2]
    d.output(d.exp(d.neg(x)))
    executor = d.executor(Registry([Refuses()]))
    log = executor.segments().log()
    assert log.startswith("2 node(s) computing T4: taken by none\n") and "because : T4 is too much" in log
    with pytest.raises(RejectedError, match=r"because : T3 is too much"):
        executor.execute([torch.ones(2, 4)] * 3)


def test_what_the_simulator_reports_tells_what_the_names_stand_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def simulate(*args: object, **options: object) -> None:
        raise SimulationError("a race at `T0[0]`")

    monkeypatch.setattr(targets, "simulate", simulate)
    d = Definition()
    d.tensor()
    d.output(d.neg(d.tensor()))
    with pytest.raises(SimulationError, match=r"a race at `T0\[0\]`, where T0 is T1\."):
        d.executor().execute([torch.ones(2, 4)] * 2)


def test_an_error_of_a_schedule_has_the_names_of_the_definition() -> None:
    class Broken(InnerPersistentScheduler):
        def apply(self, schedule, params):
            schedule.inline_at(schedule.fusion.output_tensors()[0], 77)

    d = Definition()
    d.tensor()
    x = d.tensor()
    d.output(d.sub(x, d.reduced("max", x)))
    name = d.fusion.outputs[0].tensor.name
    with pytest.raises(RuntimeError, match=rf"outside \[-3, 2\] of {name}"):
        d.executor(Registry([Broken()])).execute([torch.ones(2, 4)] * 2)
