"""A definition as one operator of torch: `execute` calls it wherever torch must see a single operation.

That is inside torch.compile, under a TorchDispatchMode (which counts, fakes or records operations), and for
tensor subclasses with their own behaviour. Torch then requests the real outputs (`_run`) or, for tensors
without memory, empty ones (`_fake`).

A functional definition is `fusewright::execute`. A definition that writes into inputs is
`fusewright::execute_<n>`, where n is the number of tensors that it returns: torch functionalizes mutable
operators only if they do not return a list.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from fusewright.core.errors import DefinitionError, InputError
from fusewright.core.options import Options
from fusewright.frontend.inputs import Device, Inputs, device_named, flattened
from fusewright.frontend.recorded.fusion_schedules import FusionSchedules
from fusewright.frontend.tuned.active_tuning import ACTIVE
from fusewright.host.inputs.layout import fresh_outputs
from fusewright.host.inputs.memory_checks import is_plain
from fusewright.ir import LibraryCall, Random, RandomState, TensorView
from fusewright.ops import REGISTERED, describe_argument

if TYPE_CHECKING:
    from fusewright.frontend.definition import FusionDefinition

_ARGUMENTS = (
    "str definition, Tensor[] read, {written}Scalar[] numbers, Device? device, bool automatic, "
    "str[] enable, str[] disable"
)
_LIBRARY = torch.library.Library("fusewright", "FRAGMENT")
_LOCK = threading.Lock()
_TARGETS: dict[str, Any] = {}
#: By handle. A graph holds nothing of a definition but its handle, so those that graphs call stay.
_DEFINITIONS: dict[str, FusionDefinition] = {}
#: Inputs of these classes are what they seem.
PLAIN = frozenset({torch.Tensor, torch.nn.Parameter, bool, int, float, complex})
#: How many TorchDispatchModes are active. The public way to ask is a generator over them.
modes_on = torch._C._len_torch_dispatch_stack
NUMBERS = (bool, int, float, complex, torch.SymInt, torch.SymFloat)


class Operator:
    """How a definition is called as an operator. All attributes are constant, so a graph may rely on them.

    Attributes:
        handle: names the definition: a digest of its records. If the definition has schedulers, a schedule or
            options of its own, the handle includes more, so that a graph that torch stores on disk never
            refers to another definition.
        target: the operator.
        names: of the inputs.
        read, written, numbers: positions of the inputs of each kind.
        returned: for each visible output the position of the input that it is or is written into, or -1 minus
            the number of the tensor that the operator returns for it.
        fresh: for each tensor that the operator returns, the first visible output that is this tensor.
        is_shared: whether the handle is only the digest.
    """

    def __init__(self, handle: str, leaf: FusionSchedules, is_shared: bool) -> None:
        fusion = leaf.fusion
        position = {value: i for i, value in enumerate(fusion.inputs)}
        homes = {position[o.alias] for o in fusion.outputs if o.alias is not None}
        tensors = [i for value, i in position.items() if isinstance(value, TensorView)]
        made = {tensor: -1 - i for i, tensor in enumerate(fresh_outputs(fusion))}
        visible = [o for o in fusion.outputs if not o.hidden]
        self.handle = handle
        self.is_shared = is_shared
        self.names = tuple(value.name for value in fusion.inputs)
        self.written = tuple(sorted(homes))
        self.read = tuple(i for i in tensors if i not in homes)
        self.numbers = tuple(i for i in position.values() if i not in tensors)
        self.returned = tuple(
            made[o.tensor] if o.tensor in made else position[o.alias or o.tensor] for o in visible
        )
        self.fresh = tuple(self.returned.index(-1 - i) for i in range(len(made)))
        random = any(
            isinstance(node, (Random, RandomState)) or (isinstance(node, LibraryCall) and node.op.draws)
            for node in fusion.nodes
        )
        self.target = _target(len(made) if homes else None, random)

    def check(self, values: Sequence[Any]) -> None:
        """Raises InputError if a value is not of the kind of its input."""
        if len(values) != len(self.names):
            names = ", ".join(self.names)
            raise InputError(f"Expected {len(self.names)} inputs ({names}), but got {len(values)}")
        for i in self.read + self.written:
            if not isinstance(values[i], torch.Tensor):
                given = describe_argument(values[i])
                raise InputError(index=i, name=self.names[i], expected="an at::Tensor", given=given)
            if values[i].is_nested:  # which torch's operators are not for
                raise InputError(
                    index=i, name=self.names[i], expected="a dense tensor", given="a nested tensor"
                )
        for i in self.numbers:
            if not isinstance(values[i], NUMBERS):
                given = describe_argument(values[i])
                raise InputError(index=i, name=self.names[i], expected="a scalar", given=given)

    def merged(
        self, read: Sequence[torch.Tensor], written: Sequence[torch.Tensor], numbers: Sequence[Any]
    ) -> list[Any]:
        """The inputs of the definition in their order."""
        inputs: list[Any] = [None] * len(self.names)
        for positions, values in ((self.read, read), (self.written, written), (self.numbers, numbers)):
            for i, value in zip(positions, values):
                inputs[i] = value
        return inputs

    def is_stale(self, fd: FusionDefinition) -> bool:
        """Whether the definition has gained or lost its own schedule since."""
        return self.is_shared != _is_shared(fd)


class CalledByTorch:
    """The part of `FusionDefinition` that torch calls."""

    #: made when a call first needs it
    _operator: Operator | None = None

    def _prepare_operator(self: FusionDefinition) -> None:  # type: ignore[misc]
        """Makes `_operator`, or another where the one there is has become stale."""
        if self._operator is None or self._operator.is_stale(self):
            self._operator = operator_of(self, self._complete())

    # torch.compile calls this as it is, with all that it does, where it would trace others: what
    # torch.compiler.assume_constant_result says, whose import takes seconds.
    _prepare_operator._dynamo_marked_constant = True  # type: ignore[attr-defined]


def acts_by_itself(value: Any) -> bool:
    """Whether it is a tensor whose class defines its own behaviour in operations."""
    return isinstance(value, torch.Tensor) and not is_plain(type(value))


def call_operator(
    fd: FusionDefinition,
    inputs: Inputs,
    device: Device | None,
    automatic: bool,
    enable: Sequence[str],
    disable: Sequence[str],
) -> list[torch.Tensor]:
    """The outputs of a call of `fd`, by one operation of torch. torch.compile traces this function.

    Raises:
        InputError: the number of inputs is wrong, or one is not the required tensor or number.
    """
    fd._prepare_operator()
    operator = fd._operator
    assert operator is not None
    place = None if device is None else device_named(device)
    values = flattened(inputs)
    operator.check(values)
    arguments: list[Any] = [operator.handle, [values[i] for i in operator.read]]
    if operator.written:
        arguments.append([values[i] for i in operator.written])
    numbers = [values[i] for i in operator.numbers]
    with torch.no_grad():  # a definition computes no gradients
        made = operator.target(*arguments, numbers, place, automatic, list(enable), list(disable))
    if operator.written and len(operator.fresh) == 1:
        made = [made]
    return [values[i] if i >= 0 else made[-1 - i] for i in operator.returned]


def operator_of(fd: FusionDefinition, leaf: FusionSchedules) -> Operator:
    """The operator of a definition that is complete."""
    is_shared = _is_shared(fd)
    handle = hashlib.sha256(repr(leaf.records).encode()).hexdigest()
    if not is_shared:
        handle += f"-{os.urandom(8).hex()}"
    # What is shared is nobody's: a definition may get a schedule of its own later.
    with _LOCK:
        if handle not in _DEFINITIONS:
            _DEFINITIONS[handle] = fd._plain_twin() if is_shared else fd
    return Operator(handle, leaf, is_shared)


def _is_shared(fd: FusionDefinition) -> bool:
    """Whether its records are all that tells a definition from others."""
    is_plain = fd._registry is None and not fd._is_scheduled and fd._segmentation is None
    if fd._leaf is not None and any(record.op in REGISTERED for record in fd._leaf.records):
        return False  # another process may have another operation of the name
    return is_plain and fd._given_options == Options.from_environment()


# ---- what torch calls --------------------------------------------------------------------------------------


def _target(returned: int | None, random: bool) -> Any:
    """The operator of definitions that write into inputs and return this many; None: that write nothing."""
    name = "execute" + ("" if returned is None else f"_{returned}") + ("_random" if random else "")
    with _LOCK:
        if name not in _TARGETS:
            _TARGETS[name] = _register(name, returned, random)
        return _TARGETS[name]


def _register(name: str, returned: int | None, random: bool) -> Any:
    written = "" if returned is None else "Tensor(a!)[] written, "
    results = "Tensor[]" if returned is None else f"({', '.join(['Tensor'] * returned)})"
    # Definitions say how their inputs lie in memory; and two calls that draw numbers are not one.
    tags = [torch.Tag.needs_exact_strides] + ([torch.Tag.nondeterministic_seeded] if random else [])
    _LIBRARY.define(f"{name}({_ARGUMENTS.format(written=written)}) -> {results}", tags=tags)

    def convention(function: Any) -> Any:
        if returned is None:
            return lambda definition, read, numbers, *rest: function(definition, read, [], numbers, *rest)

        def mutable(*arguments: Any) -> Any:
            made = function(*arguments)
            return None if not made else made[0] if len(made) == 1 else tuple(made)

        return mutable

    _LIBRARY.impl(name, convention(_run), "CompositeExplicitAutograd")
    torch.library.register_fake(f"fusewright::{name}", convention(_fake), lib=_LIBRARY)
    return getattr(torch.ops.fusewright, name).default


def _run(
    handle: str,
    read: Sequence[torch.Tensor],
    written: Sequence[torch.Tensor],
    numbers: Sequence[Any],
    device: torch.device | None,
    automatic: bool,
    enable: Sequence[str],
    disable: Sequence[str],
) -> list[torch.Tensor]:
    fd = _definition(handle)
    operator = _operator(fd)
    inputs = operator.merged(read, written, numbers)
    if ACTIVE.every is not None:
        fd._tune(inputs, device)
    # What an operator of torch returns must not share memory with what it is given.
    outputs = fd._execute(inputs, device, automatic, tuple(enable), tuple(disable), views=False)
    return [outputs[i] for i in operator.fresh]


def _fake(
    handle: str,
    read: Sequence[torch.Tensor],
    written: Sequence[torch.Tensor],
    numbers: Sequence[Any],
    device: torch.device | None,
    *_: object,
) -> list[torch.Tensor]:
    fd = _definition(handle)
    inputs = _operator(fd).merged(read, written, numbers)
    return fd._complete().executor.empty_outputs(inputs, device)


def _operator(fd: FusionDefinition) -> Operator:
    fd._prepare_operator()
    assert fd._operator is not None
    return fd._operator


def _definition(handle: str) -> FusionDefinition:
    """The definition that a graph means. DefinitionError if this process has none with this handle."""
    found = _DEFINITIONS.get(handle)
    if found is None:
        raise DefinitionError(
            problem=f"the operator's definition {handle[:12]} is not known in this process",
            hint="a graph of another process works where the definition was called as an operator before",
        )
    return found
