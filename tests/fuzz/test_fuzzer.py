"""The fuzzer itself: programs are data, wrong results are found, and none stops the others."""

from __future__ import annotations

import io
import json
import logging
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.core.errors import InternalError
from tests.fuzz import misbehaving
from tests.fuzz.campaign import JournalError, Settings, campaign
from tests.fuzz.flavours import draw
from tests.fuzz.programs import (
    USUAL_GPU,
    Call,
    Input,
    Output,
    Program,
    Ref,
    TensorArgument,
    from_json,
    to_json,
    to_script,
)
from tests.fuzz.running import Finding, Outcome, generalized, run
from tests.fuzz.shrinking import shrink

SAMPLE = 200


def _scaled(factor: float) -> Program:
    """x * factor, of a [2, 3] input."""
    return Program(
        [Input(DataType.Float, "define_tensor", (-1, -1), True)],
        [Call("mul", (Ref(0), factor))],
        [Output(1)],
        [[TensorArgument((2, 3), (3, 1), 0, 1)]],
    )


def test_a_program_is_that_of_its_seed_and_number() -> None:
    assert to_json(draw(3, 4)[1]) == to_json(draw(3, 4)[1])
    assert to_json(draw(3, 4)[1]) != to_json(draw(4, 3)[1])


@pytest.mark.parametrize("number", range(0, SAMPLE, 20))
def test_programs_survive_json(number: int) -> None:
    program = draw(5, number)[1]
    program.calls.append(Call("rand_like", (Ref(0),), (("dtype", DataType.Half),)))
    assert from_json(json.loads(json.dumps(to_json(program)))) == program


def test_scripts_run() -> None:
    exec(compile(to_script(_scaled(2.0)), "script", "exec"), {})
    exec(compile(to_script(replace(_added_to_itself(), gpu="l4")), "script", "exec"), {})


def _added_to_itself() -> Program:
    """x += y, where both are one tensor."""
    spec, tensor = (
        Input(DataType.Float, "define_tensor", (-1, -1), True),
        TensorArgument((2, 3), (3, 1), 0, 1),
    )
    inputs = [spec, replace(spec, twin=0)]
    return Program(inputs, [Call("add", (Ref(0), Ref(1)))], [Output(2, alias=0)], [[tensor, tensor]])


def test_one_tensor_may_be_two_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    passed: list[bool] = []
    execute = FusionDefinition.execute

    def noted(fd: FusionDefinition, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        passed.append(inputs[0] is inputs[1])
        return execute(fd, inputs)

    monkeypatch.setattr(FusionDefinition, "execute", noted)
    program = _added_to_itself()
    assert run(program).finding is None
    apart = [[program.executions[0][0], TensorArgument((2, 3), (3, 1), 0, 2)]]
    assert run(replace(program, executions=apart)).finding is None
    assert passed == [True, False]


def test_the_programs_are_of_every_kind() -> None:
    """What the generator must not lose: a few of each in a sample of it."""
    programs = [draw(6, number)[1] for number in range(SAMPLE)]
    seen: Counter[str] = Counter()
    for program in programs:
        seen.update(_features(program))
    missing = [name for name in FEATURES if seen[name] < 2]
    assert not missing, f"{missing}; seen: {dict(seen)}"


FEATURES = (
    "in place",
    "in place, misaligned",
    "in place, permuted",
    "input is an output",
    "value is an output twice",
    "5 outputs",
    "ordered output",
    "rank over 8",
    "size 0",
    "size 1",
    "expanded",
    "padded",
    "misaligned",
    "conjugated",
    "further sizes",
    "host scalar",
    "number",
    "one tensor twice",
    "4 further calls",
    "another GPU",
    "complex",
    "integers",
    *("symbolic", "static", "strided", "define_tensor"),
    *("stride_order", "segment_set", "iota", "full", "broadcast_in_dim", "expand"),
)


def _features(program: Program) -> set[str]:
    found = {call.op for call in program.calls} | {spec.form for spec in program.inputs}
    outputs = [o.value for o in program.outputs]
    tensors = [(i, a) for e in program.executions for i, a in enumerate(e) if isinstance(a, TensorArgument)]
    written = {o.alias for o in program.outputs}
    for i, tensor in tensors:
        ordered = sorted(tensor.strides, reverse=True)
        found |= {
            name
            for name, is_so in {
                "in place": i in written,
                "in place, misaligned": i in written and tensor.offset % 4,
                "in place, permuted": i in written and list(tensor.strides) != ordered,
                "rank over 8": len(tensor.shape) > 8,
                "size 0": 0 in tensor.shape,
                "size 1": 1 in tensor.shape,
                "expanded": any(n > 1 and s == 0 for n, s in zip(tensor.shape, tensor.strides)),
                "padded": len(tensor.shape) > 1 and 0 not in tensor.shape and ordered[0] % tensor.shape[-1],
                "misaligned": tensor.offset % 4,
                "conjugated": tensor.conj,
                "complex": program.inputs[i].dtype.torch.is_complex,
                "integers": program.inputs[i].dtype in (DataType.Int, DataType.Int32),
            }.items()
            if is_so
        }
    shapes = [[a.shape for a in e if isinstance(a, TensorArgument)] for e in program.executions]
    found |= {
        name
        for name, is_so in {
            "input is an output": any(v < len(program.inputs) for v in outputs),
            "value is an output twice": len(set(outputs)) < len(outputs),
            "5 outputs": len(outputs) >= 5,
            "ordered output": any(o.stride_order for o in program.outputs),
            "further sizes": any(shape != shapes[0] for shape in shapes),
            "host scalar": any(not spec.is_tensor for spec in program.inputs),
            "one tensor twice": any(program.home(i) != i for i in range(len(program.inputs))),
            "4 further calls": len(program.executions) > 4,
            "another GPU": program.gpu != USUAL_GPU,
        }.items()
        if is_so
    }
    return found


def test_a_wrong_result_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    program = _scaled(2.0)
    assert run(program).finding is None
    monkeypatch.setattr("tests.fuzz.running.define", lambda _, fd, given: _define_wrongly(fd, given))
    found = run(program).finding
    assert found is not None and found.kind == "wrong result"


def _define_wrongly(fd: object, given: list[torch.Tensor]) -> None:
    x = fd.from_pytorch(given[0])
    fd.add_output(fd.ops.mul(x, 2.001))


def test_a_change_beside_the_output_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gaps of a padded input, and inputs that nothing is written into, stay as they are."""
    program = replace(
        _scaled(2.0),
        inputs=[Input(DataType.Float, "define_tensor", (-1, -1))],
        outputs=[Output(1, alias=0)],
        executions=[[TensorArgument((2, 3), (5, 1), 0, 1)]],
    )
    assert run(program).finding is None
    execute = FusionDefinition.execute

    def wide(fd: FusionDefinition, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        outputs = execute(fd, inputs)
        inputs[0].as_strided((1,), (1,), 4).add_(1)
        return outputs

    monkeypatch.setattr(FusionDefinition, "execute", wide)
    found = run(program).finding
    assert found is not None and "beside" in found.message


def test_an_invalid_program_is_refused() -> None:
    program = replace(_scaled(2.0), executions=[[TensorArgument((2, 3, 1), (3, 1, 1), 0, 1)]])
    found = run(program).finding
    assert found is not None and found.kind == "refused" and found.head.startswith("RankError")


@pytest.mark.faults
def test_a_finding_is_of_an_execution_whenever_its_error_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Faults are logged and worked around, and a GPU's errors come when results are read."""
    tensor = TensorArgument((2, 3), (3, 1), 0, 1)
    program = replace(_scaled(2.0), executions=[[tensor], [tensor]])

    def log(*_: object) -> None:
        logging.getLogger("fusewright").error("%s", InternalError("a fault"))

    def fail(*_: object) -> None:
        raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")

    for event, kind in ((log, "internal fault"), (fail, "driver error")):
        monkeypatch.setattr("tests.fuzz.running._problem", event)
        shown = run(program).finding
        assert shown is not None and (shown.kind, shown.execution) == (kind, 0)
        smaller, _ = shrink(program, shown, run, 10.0)
        assert len(smaller.executions) == 1


def test_messages_of_one_class_are_equal() -> None:
    first, second = "T7 has 2*((i0 + 62) // 64) elements\nat x", "T12 has ceilDiv(i0, 3) elements"
    assert generalized(first) == generalized(second) == "E has E elements"


def test_shrinking_keeps_what_shows_the_finding() -> None:
    def has_exp(program: Program) -> Outcome:
        shows = any(call.op == "exp" for call in program.calls)
        return Outcome(finding=Finding("internal fault", "exp", "there is an exp") if shows else None)

    program = next(p for p in (draw(7, n)[1] for n in range(500)) if has_exp(p).finding and len(p.calls) > 4)
    smaller, _ = shrink(program, Finding("internal fault", "exp", ""), has_exp, 10.0)
    assert [call.op for call in smaller.calls] == ["exp"]
    assert len(smaller.outputs) == len(smaller.executions) == 1


def test_a_campaign_goes_on_whatever_programs_do(tmp_path: Path) -> None:
    """Programs that fail, crash and hang are findings; the journal holds them all, and is resumed."""
    journal = tmp_path / "journal"
    wanted = {"crash", "hang", "internal fault"}
    seed, kinds = next((s, k) for s in range(1000) if set(k := _kinds(s)) == wanted)
    settings = Settings(4, seed, shrink=1.0, journal=journal, run=misbehaving.run, limit=1.0, grace=1.0)
    assert campaign(replace(settings, programs=3), io.StringIO()).programs == 3
    assert campaign(settings, io.StringIO()).programs == 4
    records = [json.loads(line) for line in journal.read_text().splitlines()[1:]]
    assert {record["number"]: record["finding"]["kind"] for record in records} == dict(enumerate(kinds))
    with pytest.raises(JournalError, match="seed"):
        campaign(replace(settings, seed=seed + 1), io.StringIO())


def _kinds(seed: int) -> list[str]:
    """What `misbehaving` makes of the first four programs of a seed."""
    programs = [draw(seed, number)[1] for number in range(4)]
    kinds = {1: "crash", 2: "hang"}
    return [kinds.get(len(p.inputs), "internal fault") if p.calls else "none" for p in programs]
