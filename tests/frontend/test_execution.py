"""Running definitions: inputs, outputs, options, inspection and validation."""

from __future__ import annotations

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.core.errors import (
    ArgumentTypeError,
    DeviceError,
    InputDtypeError,
    InputError,
    MissingDefinitionError,
    OptionError,
    ShapeError,
)
from fusewright.core.options import Options
from fusewright.frontend import inspection


class Scaled(FusionDefinition):
    """x * s + sum(x)."""

    def definition(self) -> None:
        x = self.define_tensor([-1, -1])
        s = self.define_scalar()
        self.add_output(x * s + self.ops.sum(x, [1], keepdim=True))


def scaled(x: torch.Tensor, s: float) -> torch.Tensor:
    return x * s + x.sum(1, keepdim=True)


def test_a_subclass_is_defined_by_its_first_call(target: torch.device) -> None:
    fd = Scaled()
    assert fd.id() is None
    for shape in ((4, 8), (3, 5)):
        x = torch.randn(shape, device=target)
        (out,) = fd.execute([x, 2.0])
        torch.testing.assert_close(out, scaled(x, 2.0))
    assert fd.id() == 0
    (again,) = FusionDefinition(fd.id()).execute([x, 3.0])
    torch.testing.assert_close(again, scaled(x, 3.0))


def test_vectors_are_passed_flat_or_as_one(target: torch.device) -> None:
    with FusionDefinition() as fd:
        t = fd.define_tensor([-1])
        fd.add_output(fd.ops.broadcast_in_dim(t, fd.define_vector(2), [1]))
    x = torch.randn(3, device=target)
    for inputs in ([x, 2, 3], [x, [2, 3]], (x, (2, 3))):
        (out,) = fd.execute(inputs)
        assert torch.equal(out, x.expand(2, 3))


def test_aliased_outputs(target: torch.device) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1])
        out = x + 1.0
        for args in ((out,), (out, x), (out,), (x,)):
            fd.add_output(*args)
    given = torch.zeros(4, device=target)
    outputs = fd.execute([given])
    assert len(outputs) == 3
    assert {o.data_ptr() for o in outputs} == {given.data_ptr()}
    assert given.tolist() == [1.0] * 4


def test_output_stride_order(target: torch.device) -> None:
    with FusionDefinition() as fd:
        fd.add_output(fd.define_tensor([-1, -1]) * 2.0, stride_order=[0, 1])
    (out,) = fd.execute([torch.ones(3, 4, device=target)])
    assert out.stride() == (1, 3)


def test_wrong_inputs_are_named_and_the_next_call_works() -> None:
    fd = Scaled()
    x = torch.ones(2, 3)
    wrong: list[tuple[list[object], type[Exception], str]] = [
        ([2, 1.0], InputError, "Expected input 0, .*, to be an at::Tensor but got scalar 2"),
        ([x.half(), 1.0], InputDtypeError, "dtype float, but got a tensor of dtype __half"),
        ([x], InputError, "Expected 2 inputs"),
        (
            [x, 2 + 1j],
            RuntimeError,
            r"Scalar value \(2,1\) is not compatible with the expected data type: double.",
        ),
    ]
    for inputs, error, fragment in wrong:
        with pytest.raises(error, match=fragment):
            fd.execute(inputs)
    assert torch.equal(fd.execute([x, 2.0])[0], scaled(x, 2.0))


def test_size_conflicts_are_found_at_the_call() -> None:
    with FusionDefinition() as fd:
        fd.add_output(fd.define_tensor([-1]) + fd.define_tensor([-1]))
    with pytest.raises(ShapeError, match="a conflict was found with 2 different sizes"):
        fd.execute([torch.ones(3), torch.ones(4)])


def test_options_of_a_call() -> None:
    fd = Scaled()
    inputs = [torch.ones(2, 3), 1.0]
    with pytest.raises(OptionError, match="Unrecognized enable_option"):
        fd.execute(inputs, _enable_options=["no_such_thing"])
    with pytest.raises(OptionError, match="Unrecognized disable_option"):
        fd.execute(inputs, _disable_options=["no_such_thing"])
    fd.execute(inputs, _enable_options=["id_model"], _disable_options=["fma"])


def test_dumps_are_captured() -> None:
    fd = Scaled(options=Options(dump=(("cuda", ()),)))
    assert fd.debug_output() is None
    fd.execute([torch.ones(2, 3), 1.0], capture_debug_output=True)
    assert "__global__" in (fd.debug_output() or "")


def test_print_repro(capsys: pytest.CaptureFixture[str]) -> None:
    Scaled().execute([torch.ones(2, 3), 1.0], print_repro=True)
    assert "fd.execute(inputs)" in capsys.readouterr().out


# ---- inspection --------------------------------------------------------------------------------------------


def test_fusion_ir() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, 1], contiguity=True)
        fd.add_output(fd.ops.exp(x))
        with pytest.raises(RuntimeError, match="still being written"):
            fd.fusion_ir()
    text = fd.fusion_ir()
    assert text.startswith(
        "Inputs:\n  T0_g_float[iS0{i0}, bS1{1}]\nOutputs:\n  T1_g_float[iS2{i0}, bS3{1}]\n"
    )
    assert "   = exp(T0_g_float[iS0{i0}, bS1{1}]);" in text


def test_code_of_runs() -> None:
    fd = Scaled()
    inputs = [torch.ones(2, 3), 1.0]
    with pytest.raises(RuntimeError, match=r"(Invalid fusion definition!|never been executed)"):
        fd.last_cuda_code()
    fd.execute(inputs)
    assert "__global__" in fd.last_cuda_code()
    assert fd.cuda_code_for(inputs) == fd.last_cuda_code()
    assert len(fd.last_cuda_code(intrinsic_code=True)) > len(fd.last_cuda_code())
    assert fd.scheduled_fusion_ir_for(inputs) == fd.last_scheduled_fusion_ir()
    assert "threadIdx.x" in fd.last_scheduled_fusion_ir()
    with pytest.raises(RuntimeError, match=r"(not compiled|never been executed)"):
        fd.cuda_code_for([torch.ones(5, 7), 1.0])


# ---- validation --------------------------------------------------------------------------------------------


def test_validate(target: torch.device) -> None:
    fd = Scaled()
    x = torch.randn(4, 300, device=target)
    fd.validate([x, 0.5])
    fd.validate([x, 0.5], [scaled(x, 0.5)])
    with pytest.raises(AssertionError, match="output 0 differs in 1 of 1200 elements; at flat index 3"):
        wrong = scaled(x, 0.5)
        wrong[0, 3] += 1
        fd.validate([x, 0.5], [wrong])
    with pytest.raises(AssertionError, match="has shape"):
        fd.validate([x, 0.5], [wrong[0]])


def test_validate_of_a_call_that_writes_its_input() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1])
        fd.add_output(x + 1.0, x)
        fd.add_output(x * 2.0)
    fd.validate([torch.ones(4)])


def test_validate_that_fails_leaves_the_generator_after_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1])
        fd.add_output(x + fd.ops.rand_like(x))

    def fail(*_: object) -> None:
        raise RuntimeError("no reference")

    given = torch.ones(64)
    torch.manual_seed(3)
    fd.execute([given])
    expected = fd.execute([given])[0]
    torch.manual_seed(3)
    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="no reference"):
        patch.setattr(inspection, "evaluate_fusion", fail)
        fd.validate([given])
    assert torch.equal(fd.execute([given])[0], expected)


def test_tolerances_grow_with_reductions_and_coarse_types() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1])
        fd.add_output(x * 2.0)
        fd.add_output(fd.ops.sum(x, [1]))
        fd.add_output(fd.ops.sum(fd.ops.sum(x, [1]), [0]))
        fd.add_output(fd.ops.cast(fd.ops.sum(x, [1]), DataType.Half))
        fd.add_output(fd.ops.cast(fd.ops.sum(x, [1]), DataType.BFloat16))
        fd.add_output(x > 0.0)
    found = fd.getValTolerances([torch.ones(16, 8)])
    assert found == [
        (1.68e-6, 2.24e-6),
        (2.96e-6, 2.96e-8),  # 8 elements: the entry after that of 8
        (1.31e-5, 1.31e-7),  # 128 along the chain
        (0.0078, 0.000078),
        (pytest.approx(0.078), pytest.approx(0.00078)),
        (0.0, 0.0),
    ]


def test_a_definition_without_outputs_has_nothing_to_run() -> None:
    with FusionDefinition() as fd:
        fd.define_tensor([-1])
    with pytest.raises(MissingDefinitionError, match="Fusion is empty!"):
        fd.execute([torch.ones(2)])


def test_inputs_are_any_iterable_but_a_tensor() -> None:
    fd = Scaled()
    x = torch.ones(2, 3)
    assert torch.equal(fd.execute(iter([x, 2.0]))[0], scaled(x, 2.0))  # type: ignore[arg-type]
    for wrong in (x, 5, "ab"):
        with pytest.raises(ArgumentTypeError, match=r"execute\(\).*Expected a list of inputs"):
            fd.execute(wrong)  # type: ignore[arg-type]
    for number in (300, -1, "cuda:256", "cuda:999"):  # of which torch makes cuda:44, and cuda:0
        with pytest.raises(DeviceError, match=f"{number}"):
            fd.execute([x, 2.0], device=number)
    with pytest.raises(ArgumentTypeError, match=r"execute\(\).*Expected profile: bool, got int"):
        fd.execute([x, 2.0], profile=1)  # type: ignore[arg-type]
    with pytest.raises(DeviceError):
        fd.validate([x, 2.0], device=255)
    with pytest.raises(DeviceError, match="bogus"):
        fd.execute([x, 2.0], device="bogus")
    with pytest.raises(DeviceError, match=r"(?s)the device of a call.*cpu, as its tensors.*cuda:0"):
        fd.execute([x, 2.0], device=0)
    assert torch.equal(fd.execute([x, 2.0], device="cpu")[0], scaled(x, 2.0))


def test_every_stage_of_a_compilation_can_be_dumped() -> None:
    """Machine code too, which the simulator does not need."""
    stages = (
        "segments",
        "params",
        "schedule",
        "kernel",
        "cuda",
        "ptx",
        "ptxas",
        "sass",
        "launch",
        "host",
        "time",
    )
    with FusionDefinition(options=Options.from_environment({"FUSEWRIGHT_DUMP": ",".join(stages)})) as fd:
        x = fd.define_tensor([-1, -1])
        fd.add_output(fd.ops.exp(x) * 1.25)
    fd.execute([torch.ones(2, 3)], capture_debug_output=True)
    dumped = fd.debug_output() or ""
    assert [stage for stage in stages if f"==== fusewright {stage}" not in dumped] == []


def test_scheduled_text_with_transforms() -> None:
    fd = Scaled()
    inputs = [torch.ones(2, 3), 2.0]
    fd.execute(inputs)
    assert "Split:" not in fd.scheduled_fusion_ir_for(inputs)
    assert "Split:" in fd.scheduled_fusion_ir_for(inputs, tensor_transforms=True)
    assert fd.last_scheduled_fusion_ir(True) == fd.scheduled_fusion_ir_for(inputs, True)
