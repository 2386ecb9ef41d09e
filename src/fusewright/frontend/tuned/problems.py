"""Converts calls of definitions to problems for a search (`tune.problem`), and back."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from fusewright.core.dtype import DataType
from fusewright.core.errors import TuneError
from fusewright.core.options import Options
from fusewright.frontend.comparison import check_outputs
from fusewright.frontend.definition import FusionDefinition
from fusewright.frontend.inputs import flattened, place_of
from fusewright.frontend.recorded.fusion_schedules import FusionSchedules
from fusewright.frontend.recorded.printing import definition_text
from fusewright.frontend.tuned.allowed_errors import allowed_errors
from fusewright.host.kernels.planning import PlannedKernels
from fusewright.ops import REGISTERED, REGISTERED_BY
from fusewright.ops.evaluate import evaluate_fusion
from fusewright.runtime.hardware import hardware_of
from fusewright.runtime.random_states import random_states
from fusewright.schedulers import HeuristicParams, Registry, heuristics_of, is_built_in, type_name, untuned
from fusewright.tune.facts import ProblemFacts, facts_of
from fusewright.tune.problem import SEED, Problem, TensorLike
from fusewright.tune.worker import Loaded

# What `definition_text` calls a definition without a number.
_FUNCTION = "nvfuser_incomplete_fusion"

#: Called with a definition, its inputs, and where they run if these do not tell.
Observer = Callable[[FusionDefinition, Sequence[Any], "torch.device | None"], None]


@contextmanager
def recorded(observe: Observer) -> Iterator[None]:
    """Has every execution of a definition observed before it runs. Calls pay for it within the block only."""
    original = FusionDefinition._execute

    def execute(
        self: FusionDefinition,
        arguments: Sequence[Any],
        place: torch.device | None,
        *args: Any,
        **kwargs: Any,
    ) -> list[torch.Tensor]:
        observe(self, arguments, place)
        return original(self, arguments, place, *args, **kwargs)

    FusionDefinition._execute = execute  # type: ignore[method-assign]
    try:
        yield
    finally:
        FusionDefinition._execute = original  # type: ignore[method-assign]


def problems_of(
    fd: FusionDefinition, inputs: Sequence[Any], device: torch.device | None, name: str, folder: Path
) -> list[Problem]:
    """One problem for each kernel that serves a call, except for kernels whose params have no space.

    Inputs are not changed, and later calls draw the same random numbers as without this.

    Args:
        folder: for the values of integers and bools.

    Raises:
        UserError: inputs that do not fit, or a definition without kernels.
    """
    twin = fd._plain_twin()
    arguments = list(flattened(inputs))
    for i in _written(twin._complete()):  # segments run, to have each one's inputs
        arguments[i] = _copy(arguments[i])
    place = place_of(arguments, device)
    segments = twin.segment(arguments, device=device)
    if not segments:
        return _problems(twin, arguments, place, name, folder)
    assert twin._segmentation is not None
    kernel_of = twin._segmentation.kernel_of
    found: list[Problem] = []
    known = _facts_of_kernels(twin, arguments, place)

    def observe(segment: FusionDefinition, own: Sequence[Any], _: torch.device | None) -> None:
        if segment is not twin:
            number = next(i for i, each in enumerate(segments) if each is segment)
            of_segment = _problems(segment, own, place, f"{name}, segment {number}", folder)
            # An update's definition has a copy, too, which the whole makes elsewhere.
            own_kernel = [p for p in of_segment if p.kernel == kernel_of[segment]]
            found.extend([named_as_in_whole(p, known.get(number)) for p in own_kernel])

    states = random_states(place)
    with recorded(observe), states.again(states.position()):
        twin.execute(arguments, device=device)
    return found


def _written(leaf: FusionSchedules) -> list[int]:
    """Positions of the inputs that a call writes into."""
    fusion = leaf.fusion
    return [fusion.inputs.index(output.alias) for output in fusion.outputs if output.alias is not None]


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    """With the same strides and alignment."""
    like = TensorLike.of(tensor)
    return like.tensor(tensor.device, tensor.detach().as_strided((like.span,), (1,)))


def _problems(
    fd: FusionDefinition, inputs: Sequence[Any], place: torch.device, name: str, folder: Path
) -> list[Problem]:
    leaf = fd._complete()
    options = Options.from_environment()
    hardware = hardware_of(place, options)
    executor = leaf.executor_for(fd._registry)
    flat = flattened(inputs)
    planned = PlannedKernels(executor.fusion, executor.registry, flat, place, hardware, options)
    outputs = tuple(map(TensorLike.of, executor.empty_outputs(flat, place)))
    text = definition_text(leaf.records, leaf.outcomes)
    modules = _registering_modules(leaf, executor.registry)
    return [
        Problem(
            name,
            type_name(kernel.segment.scheduler.type),
            text,
            kernel.index,
            tuple([_described(value, folder) for value in flat]),
            outputs,
            hardware,
            modules,
            str(folder),
            facts_of(kernel.segment, kernel.facts, hardware),
        )
        for kernel in planned.kernels
        if isinstance(kernel.proposal.params, HeuristicParams)
    ]


def _facts_of_kernels(
    fd: FusionDefinition, inputs: Sequence[Any], place: torch.device
) -> dict[int, tuple[str, ProblemFacts]]:
    """The schedulers and facts of the kernels that serve a call of the whole definition, by their place in
    launch order.
    """
    executor = fd._complete().executor_for(fd._registry)
    planned = executor.planned(flattened(inputs), device=place)
    hardware = hardware_of(place, executor.options)
    return {
        i: (type_name(segment.scheduler.type), facts_of(segment, planned.facts(segment), hardware))
        for i, segment in enumerate(planned.segments)
        if segment.evaluated is None
    }


def named_as_in_whole(problem: Problem, known: tuple[str, ProblemFacts] | None) -> Problem:
    """The problem of a segment's definition, found by calls of the whole.

    By itself a segment has a text of its own: of what a node follows from, only the whole knows. Another
    kernel that stands at its place in the whole is told by its scheduler and by what it moves.
    """
    own = problem.facts
    if own is None or known is None or known[0] != problem.scheduler:
        return problem
    whole = known[1]
    if (own.bytes, own.points) != (whole.bytes, whole.points):
        return problem
    return replace(problem, facts=replace(own, segment=whole.segment, structure=whole.structure))


def _registering_modules(leaf: FusionSchedules, registry: Registry) -> tuple[str, ...]:
    """The modules that a user's schedulers, heuristics and operations come from.

    TuneError for a scheduler or an operation that no other process can import. A heuristic is not needed:
    what it chooses goes to other processes as params.
    """
    added = [untuned(scheduler) for scheduler in registry]
    by_what = {
        f"the scheduler {type_name(scheduler.type)}": type(scheduler).__module__
        for scheduler in added
        if not is_built_in(scheduler)
    }
    called = {record.op for record in leaf.records} & REGISTERED_BY.keys()
    by_what.update({f"the operation {REGISTERED[key].name}": REGISTERED_BY[key] for key in called})
    for what, module in by_what.items():
        if module == "__main__":
            raise TuneError(
                f"{what} is registered in the script itself",
                hint="register it in a module that the script imports, as worker processes do",
            )
    heuristics = {heuristic.__module__ for scheduler in registry for heuristic in heuristics_of(scheduler)}
    return tuple(sorted({*by_what.values(), *heuristics} - {"__main__"}))


def _described(value: Any, folder: Path) -> Any:
    """An input as a problem has it. Of integers, which may be indices, the values are kept."""
    if not isinstance(value, torch.Tensor):
        return repr(value) if isinstance(value, complex) else value
    like = TensorLike.of(value)
    if value.is_floating_point() or value.is_complex() or not value.numel():
        return like
    memory = value.detach().as_strided((like.span,), (1,)).cpu()
    digest = hashlib.sha256(memory.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()[:16]
    torch.save(memory, folder / digest)
    return TensorLike.of(value, values=digest)


# ---- from a problem to something to run


def load(problem: Problem, device: torch.device) -> Loaded:
    """The definition of a problem, with inputs; see `tune.worker.Load`."""
    for module in problem.modules:
        import_module(module)
    names: dict[str, Any] = {"FusionDefinition": FusionDefinition, "DataType": DataType, "torch": torch}
    names.update(inf=float("inf"), nan=float("nan"))
    exec(problem.definition, names)
    with FusionDefinition() as fd:
        names[_FUNCTION](fd)
    leaf = fd._complete()
    if device.type == "meta":
        meta = [x.tensor(device) if isinstance(x, TensorLike) else _number(x) for x in problem.inputs]
        return Loaded(leaf.executor, meta, lambda call: None)
    generator = torch.Generator(device).manual_seed(SEED)
    inputs = [
        _filled(x, problem, device, generator) if isinstance(x, TensorLike) else _number(x)
        for x in problem.inputs
    ]
    states = random_states(device)
    start = states.position()
    kept = [(x, x.clone()) for i in _written(leaf) if isinstance(x := inputs[i], torch.Tensor)]
    with states.again(start):
        expected = evaluate_fusion(leaf.fusion, inputs, states.take)
    allowed = allowed_errors(leaf.fusion, fd.getValTolerances(inputs))

    def check(call: Callable[[], Sequence[torch.Tensor]]) -> None:
        for changed, values in kept:
            changed.copy_(values)
        _spoil_free_memory(problem.outputs, device)
        with states.again(start):
            outputs = call()
        check_outputs(outputs, expected, allowed.tolerances, allowed.shares)

    return Loaded(leaf.executor, inputs, check)


def _spoil_free_memory(outputs: Sequence[TensorLike], device: torch.device) -> None:
    """Fills the memory that results will probably be allocated in: with NaN, where they are floats.

    Elsewhere the results of an earlier kernel would stand in for elements that a kernel does not store.
    """
    sizes = [like.span * like.torch_dtype.itemsize for like in outputs]
    held = [torch.full((size,), 0xFF, dtype=torch.uint8, device=device) for size in sizes]
    del held  # all at once, so that each was allocated apart


def _number(value: int | float | bool | str) -> int | float | bool | complex:
    return complex(value) if isinstance(value, str) else value


def _filled(
    like: TensorLike, problem: Problem, device: torch.device, generator: torch.Generator
) -> torch.Tensor:
    if like.values is not None:
        memory = torch.load(Path(problem.folder) / like.values)
    else:
        kind = like.torch_dtype if like.torch_dtype.is_complex else torch.float32
        memory = torch.randn(like.span, generator=generator, device=device, dtype=kind).to(like.torch_dtype)
    return like.tensor(device, memory)
