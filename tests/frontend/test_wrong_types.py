"""What is given to functions beside definitions' own: values of the wrong type are errors that say so."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fusewright import (
    FusionDefinition,
    Options,
    PointwiseParams,
    Registry,
    RtcKernel,
    compute_contiguity,
    compute_tensor_descriptor,
    from_dict,
    from_json,
    heuristic,
    heuristics,
    register_op,
    register_scheduler,
    remove_heuristic,
    to_dict,
    to_json,
    unregister_op,
    unregister_scheduler,
)
from fusewright.core.errors import ArgumentTypeError, OptionError, ParamsError, RegistrationError
from fusewright.core.hardware import described

WRONG: list[Any] = [3, 2.5, None, object(), int]
SOURCE = "__global__ void a(int* p) {}"


def _within(block: Any) -> None:
    with block:
        pass


@pytest.mark.parametrize("given", [3, 2.5, object(), [], int])
@pytest.mark.parametrize(
    "use",
    [
        unregister_scheduler,
        lambda given: register_scheduler(before=given),
        heuristic,
        lambda given: remove_heuristic(given, print),
        lambda given: _within(heuristics({repr(given) if given == [] else given: print})),
        lambda given: _scheduled(lambda sched: sched.compute_heuristics(given)),
        lambda given: _scheduled(lambda sched: sched.can_schedule(given)),
    ],
)
def test_what_names_no_scheduler(use: Any, given: Any) -> None:
    with pytest.raises(OptionError, match="unknown scheduler"):
        use(given)


def _scheduled(body: Any) -> None:
    class Scheduled(FusionDefinition):
        def definition(self) -> None:
            self.add_output(self.ops.exp(self.define_tensor([-1])))

        def schedule(self) -> None:
            body(self.sched)

    Scheduled().execute([torch.ones(3)])


@pytest.mark.parametrize("given", WRONG)
def test_what_is_no_registry_operation_or_option(given: Any) -> None:
    with pytest.raises(RegistrationError, match="expected"):
        Registry(given)
    with pytest.raises(RegistrationError, match="is no operation that register_op was given"):
        unregister_op(given)
    if given is not None:
        with pytest.raises(RegistrationError, match="the name of a public method"):
            register_op(name=given)
    with pytest.raises(OptionError, match="malformed dump stage"):
        Options(dump=given)


@pytest.mark.parametrize("given", [*WRONG, "text"])
def test_what_are_no_params(given: Any) -> None:
    for convert in (to_dict, to_json):
        with pytest.raises(ParamsError, match="expected an object of a class of params"):
            convert(given)
    for read, text in ((from_json, "{}"), (from_dict, {})):
        with pytest.raises(ParamsError, match="expected a class of params"):
            read(given, text)  # type: ignore[operator]
    with pytest.raises(ParamsError, match="PointwiseParams"):
        from_dict(PointwiseParams, given)


@pytest.mark.parametrize("given", [*WRONG, "text", [1.5], ["a"], {"a": 1}])
def test_what_are_no_sizes(given: Any) -> None:
    for function in (compute_contiguity, compute_tensor_descriptor):
        for sizes, strides in ((given, [1]), ([1], given)):
            with pytest.raises(ArgumentTypeError, match=f"{function.__name__}.*list of ints"):
                function(sizes, strides)


@pytest.mark.parametrize("given", [*WRONG, {1.0}, {"x": 1.0}, "x", b"x"])
def test_what_are_no_inputs(given: Any) -> None:
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.exp(fd.define_tensor([-1])))
    for method in (fd.execute, fd.cuda_code_for, fd.scheduled_fusion_ir_for, fd.validate, fd.kernels_for):
        with pytest.raises(ArgumentTypeError, match="Expected a list of inputs"):
            method(given)
    if given is not None:
        with pytest.raises(ArgumentTypeError, match="Expected a list of inputs"):
            fd.repro_script_for(given)


def test_sets_of_inputs_have_no_order() -> None:
    with FusionDefinition() as fd:
        fd.add_output(fd.define_tensor([-1]) - fd.define_tensor([-1]))
    with pytest.raises(ArgumentTypeError, match="Expected a list of inputs, got set"):
        fd.execute({torch.ones(3), torch.zeros(3)})
    [out] = fd.execute(iter([torch.ones(3), torch.zeros(3)]))
    assert out.tolist() == [1.0] * 3


@pytest.mark.parametrize("given", [3, 2.5, object(), int, []])
def test_what_a_kernel_of_the_users_takes(given: Any) -> None:
    for name in ("arch", "options", "cache"):
        with pytest.raises(ArgumentTypeError, match=rf"RtcKernel.*{name}: "):
            RtcKernel(SOURCE, "a", **{name: given})
    kernel = RtcKernel(SOURCE, "a", arch=described("h200").arch)
    if given != []:
        with pytest.raises(ArgumentTypeError, match="args: a list of arguments"):
            kernel.launch(1, 1, given)
    if not isinstance(given, (int, list)):
        with pytest.raises(ArgumentTypeError, match="integers in grid"):
            kernel.launch(given, 1, [])
