"""Operations that users register are operations: of `fd.ops`, in kernels, in print and in files."""

from __future__ import annotations

import json
import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import fusewright
from fusewright import FusionCache, FusionDefinition
from fusewright.cli.main import main
from fusewright.core.dtype import Category, DataType
from fusewright.core.errors import DefinitionError, OperationError, RegistrationError, UnknownOpError
from fusewright.core.op import ElementwiseOp, LibraryOp, Rule, Spelling
from fusewright.ir import Fusion, TensorView
from fusewright.ops import OPS
from fusewright.ops.build_elementwise import RESULT_TYPE, apply_to_tensor
from fusewright.ops.build_library import call_library
from fusewright.ops.elementwise import ELEMENTWISE
from fusewright.ops.registry import ScalarLike


def row(cuda: str, torch_: Any, name: str = "softsign") -> ElementwiseOp:
    return ElementwiseOp(name, 1, Rule.FLOAT_UP, {Category.FLOAT: Spelling(cuda, torch_)})


SOFTSIGN = row("{0} / (({T})1 + fabs({0}))", lambda x: x / (1 + x.abs()))
DOUBLED = row("{0} + {0}", lambda x: x + x)
PINV = LibraryOp("pinv", (DataType.Float,), lambda device: torch.linalg.pinv)


def scaled_square(fusion: Fusion, arg: TensorView, scale: ScalarLike = 1.0) -> TensorView:
    """scale * arg * arg."""
    return apply_to_tensor(fusion, "mul", scale, apply_to_tensor(fusion, "mul", arg, arg))


def pinv(fusion: Fusion, arg: TensorView) -> TensorView:
    """The pseudoinverse, which torch computes."""
    (out,) = call_library(fusion, PINV, (arg,), [(arg.extents[::-1], arg.dtype)])
    return out


def written() -> FusionDefinition:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True)
        fd.add_output(fd.ops.segment_set(fd.ops.softsign(x)) * 2.0)
    return fd


def test_a_row_is_an_operation_until_it_is_taken_out() -> None:
    given = torch.randn(6, 5)
    assert fusewright.register_op(SOFTSIGN) is SOFTSIGN
    try:
        fd = written()
        assert "softsign" in dir(fd.ops) and "T1 = fd.ops.softsign(T0)" in repr(fd)
        assert "softsign(x), element by element" in fd.ops.softsign.__doc__
        [out] = fd.execute([given])
        torch.testing.assert_close(out, 2 * torch.nn.functional.softsign(given))
        assert "(float)1 + fabs(" in fd.last_cuda_code() and "fusewright_pointwise_" in fd.last_cuda_code()
        fd.validate([given])
        assert "# fusewright.register_op has to make the operation softsign first" in fd.repro_script_for()
        assert len(fd.segment([given])) == 2
        torch.testing.assert_close(fd.execute([given])[0], out)
        with pytest.raises(RegistrationError, match="the operation softsign: there is one of this name"):
            fusewright.register_op(DOUBLED)
    finally:
        fusewright.unregister_op("softsign")
    with (
        FusionDefinition() as other,
        pytest.raises(UnknownOpError, match=r"fd\.ops\.softsign is not available"),
    ):
        other.ops.softsign(other.define_tensor([-1]))
    with pytest.raises(RegistrationError, match="'exp' is no operation that register_op was given"):
        fusewright.unregister_op("exp")
    with fusewright.registered_op(DOUBLED):  # nothing of the other one is served
        torch.testing.assert_close(written().execute([given])[0], 4 * given)
    assert "fd.ops.softsign(T0)" in repr(fd)  # it outlives the operation
    torch.testing.assert_close(fd.execute([given])[0], out)


def test_builders_fuse_or_go_to_torch_as_what_they_build() -> None:
    given = torch.randn(4, 6)
    with fusewright.registered_op(scaled_square), fusewright.registered_op(pinv, "pseudoinverse"):
        with FusionDefinition() as fd:
            x = fd.define_tensor([-1, -1], True)
            fd.add_output(fd.ops.exp(fd.ops.scaled_square(fd.ops.pseudoinverse(arg=x), scale=3.0)))
        assert "T2 = fd.ops.scaled_square(T1, scale=3.00000)" in repr(fd)
        [out] = fd.execute([given])
        torch.testing.assert_close(out, (3 * torch.linalg.pinv(given) ** 2).exp(), rtol=1e-4, atol=1e-4)
        assert len(fd._last_kernels()) == 1
        assert [s.scheduler.type.name for s in fd._leaf.executor.segments().segments] == [  # type: ignore[union-attr]
            "expr_eval",
            "pointwise",
        ]


def test_a_file_of_definitions_names_operations(tmp_path: Path) -> None:
    file, given = str(tmp_path / "definitions.json"), torch.randn(3, 4)
    FusionCache.reset()
    with fusewright.registered_op(SOFTSIGN):
        written()
        FusionCache.get().serialize(file)
    FusionCache.reset()
    with pytest.raises(DefinitionError, match="there is no operation named 'softsign'"):
        FusionCache.get().deserialize(file)
    with fusewright.registered_op(DOUBLED):
        FusionCache.get().deserialize(file)
        torch.testing.assert_close(FusionDefinition(0).execute([given])[0], 4 * given)
    FusionCache.reset()


def test_the_rows_of_the_table_could_be_registered() -> None:
    for built_in in [op for op in ELEMENTWISE.values() if op.rule in RESULT_TYPE]:
        with fusewright.registered_op(replace(built_in, name="again")):
            assert "again" in OPS


def unannotated(fusion: Fusion, arg) -> TensorView:  # type: ignore[no-untyped-def]
    return arg  # type: ignore[no-any-return]


def without_fusion(arg: TensorView) -> TensorView:
    return arg


@pytest.mark.parametrize(
    "operation, name, text",
    [
        (unannotated, None, "operation unannotated: `arg` is annotated as none of "),
        (
            without_fusion,
            None,
            "without_fusion: its first parameter has to be annotated as a Fusion",
        ),
        (scaled_square, "exp", "operation exp: there is one of this name"),
        (scaled_square, "add_output", "operation add_output: there is one of this name"),
        (scaled_square, "no name", "operation no name: expected the name of a public method"),
        (row("{1}", torch.neg), None, r"the row softsign: the CUDA text for FLOAT uses '1', got '\{1\}'"),
        (row("{0}", lambda x: x.sum()), None, r"FLOAT has to return torch.float32 of \(2,\), not"),
        (row("{0}", lambda x: 1 // 0), None, "the torch function for FLOAT failed: ZeroDivisionError"),
        (
            ElementwiseOp("mine", 1, Rule.CAST, SOFTSIGN.spellings),
            None,
            "of the rules KEEP, .*, got CAST",
        ),
        (PINV, None, "expected an ElementwiseOp, or a function of a Fusion"),
    ],
)
def test_what_cannot_be_registered(operation: Any, name: str | None, text: str) -> None:
    before = list(OPS)
    with pytest.raises(RegistrationError, match=text):
        fusewright.register_op(name=name)(operation)
    assert list(OPS) == before


@pytest.mark.parametrize(
    "answer, text", [(ValueError("x"), "ValueError: x"), (None, "expected a TensorView, .*None")]
)
def test_a_builder_that_fails_is_named(answer: Any, text: str) -> None:
    def wrong(fusion: Fusion, arg: TensorView) -> TensorView:
        if answer is not None:
            raise answer
        return answer  # type: ignore[return-value]

    named = pytest.raises(OperationError, match=f"Operation _wrong_, which .*wrong builds, failed: {text}")
    with fusewright.registered_op(wrong), FusionDefinition() as fd, named:
        fd.ops.wrong(fd.define_tensor([-1]))


def test_the_command_lists_what_a_plugin_registers(tmp_path: Path, capsys: Any) -> None:
    plugin = tmp_path / "plugin.py"
    plugin.write_text(
        "import fusewright\nfrom tests.frontend.test_registered_ops import SOFTSIGN\n"
        "fusewright.register_op(SOFTSIGN)\n"
    )
    try:
        assert main(["ops", "--json", "--plugin", str(plugin)]) == 0
        listed = json.loads(capsys.readouterr().out)["softsign"]
        assert listed["computed"] == "generated" and "Float" in listed["dtypes"] and listed["tested"] == []
        typed = tmp_path / "typed.py"
        assert main(["ops", "--typed", str(typed)]) == 0
        written_module = runpy.run_path(str(typed))
        assert "def softsign(self, x: Tensor, /)" in typed.read_text()
        assert issubclass(written_module["Definition"], FusionDefinition)
    finally:
        fusewright.unregister_op("softsign")
    assert main(["ops", "--typed", str(typed)]) == 1
    assert "there is no registered operation to declare" in capsys.readouterr().err
    assert main(["ops", "--plugin", "no_such_module"]) == 1
    assert "no_such_module (ModuleNotFoundError" in capsys.readouterr().err
