"""Every exception that Fusewright raises.

There are three families, because the reader has to react to them differently:

* `UserError`: a mistake in the user's program. There is one class for each kind of mistake. The message says
  what was expected, what was given, where in the user's program, and what to do about it.
* `InternalError`: a bug in Fusewright. It says so, asks for a report, and has a script that reproduces it.
* `DriverError` and `SimulationError`: the device (or the simulated one) refused or misbehaved.

Graph and execution errors are `RuntimeError`s, argument-type errors `TypeError`s, so that scripts written for
nvFuser's Python interface catch what they expect to catch.

Raising one::

    raise DtypeError(what="bias", expected="float", given="int64")          # the class' template, filled in
    raise ShapeError(f"Invalid resized domain extent {extent}", hint="pad widths may not crop below 0")
"""

from __future__ import annotations

import contextlib
import dataclasses
import linecache
import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import ClassVar

_PACKAGE_PREFIX = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
# Code that is no user's: the interpreter's own frozen modules, generated host programs, and modules of the
# standard library through which the package calls itself.
_SYNTHETIC_PREFIXES = ("<frozen ", "<fusewright", contextlib.__file__, dataclasses.__file__)


# Longer integers are not written out in messages: Python refuses to from some 14,000 bits.
MAX_SHOWN_BITS = 128


def shown_number(value: complex) -> str:
    """A number as text for a message; a very long integer is shown by its length."""
    if isinstance(value, int) and value.bit_length() > MAX_SHOWN_BITS:
        return f"of {value.bit_length()} bits"
    return str(value)


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """A line of a Python program. The text of the line is read only when it is asked for."""

    file: str
    line: int
    function: str = "<module>"

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"

    @property
    def text(self) -> str:
        """The stripped source line, or "" if the file cannot be read (an interactive session)."""
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        text = self.text
        return self.place + (f": {text}" if text else "")


def is_internal(frame: FrameType) -> bool:
    """Whether a frame belongs to this package or to code through which it calls itself."""
    file = frame.f_code.co_filename
    if file == "<string>":  # a user's `python -c`, or a method that dataclasses made
        return str(frame.f_globals.get("__name__")).partition(".")[0] == __name__.partition(".")[0]
    return file.startswith(_PACKAGE_PREFIX) or file.startswith(_SYNTHETIC_PREFIXES)


def user_location(skip_package: bool = True) -> SourceLocation | None:
    """The nearest frame outside the fusewright package: the line that the user wrote.

    With `skip_package=False`, it is the frame that called this function. Returns None if no frame qualifies
    (a command of the package itself). It walks frames without building a traceback, which takes about a
    microsecond at a typical depth. So a definition can record a location for every operation.
    """
    frame: FrameType | None = sys._getframe(1)
    while skip_package and frame is not None and is_internal(frame):
        frame = frame.f_back
    if frame is None:
        return None
    return SourceLocation(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warns at the nearest line outside the package, once for each such line unless filters say otherwise."""
    frame: FrameType | None = sys._getframe(1)
    level = 2
    while frame is not None and is_internal(frame):
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level)


def _sentence(message: str) -> str:
    """A message of one line with a full stop at its end, unless it ends in punctuation already."""
    ends_in_word = message[-1:].isalnum() or message[-1:] in tuple(")]}`'\"")
    return f"{message}." if ends_in_word and "\n" not in message else message


class FusewrightError(Exception):
    """The base of all exceptions. `facts` are the keyword arguments that it was raised with.

    Args:
        message: literal text, which is never formatted and may contain braces. Without a message, the class'
            `template` is filled with the facts. With one, facts named `expected` and `given` are printed
            below it.
    """

    template: ClassVar[str] = ""

    def __init__(self, message: str | None = None, **facts: object) -> None:
        self.facts = facts
        if message is None:
            message = self.template.format(**facts)
            self._details: tuple[str, ...] = ()
        else:
            named = ("expected", "given")
            self._details = tuple(f"{name}: {facts[name]}" for name in named if name in facts)
        self.message = message
        #: the lines of a definition that make what the message names
        self.origins: tuple[str, ...] = ()
        #: the primitive of a schedule that leads to it
        self.primitive: str | None = None
        super().__init__(message)

    @property
    def naming(self) -> str:
        """The text whose names are the definition's."""
        return "\n".join((self.message, *self._details, self.primitive or ""))

    def reword(self, rename: Callable[[str], str]) -> None:
        """Replaces the message, and the text printed below it, by `rename` of it."""
        self.message = rename(self.message)
        self._details = tuple(rename(detail) for detail in self._details)
        self.primitive = None if self.primitive is None else rename(self.primitive)
        self.args = (self.message, *self.args[1:])

    def _lines(self) -> list[str]:
        return [
            _sentence(self.message),
            *(f"  {detail}" for detail in self._details),
            *(f"  {line}" for line in (*self.origins, self.primitive) if line),
        ]

    def __str__(self) -> str:
        return "\n".join(self._lines())


class UserError(FusewrightError, RuntimeError):
    """A mistake in the user's program.

    Args:
        location: the user's line; by default it is found by walking the stack. Pass the line recorded with a
            definition if the error occurs only at execution.
        hint: what the user can do about it.
    """

    def __init__(
        self,
        message: str | None = None,
        *,
        location: SourceLocation | None = None,
        hint: str | None = None,
        **facts: object,
    ) -> None:
        super().__init__(message, **facts)
        self.location = location if location is not None else user_location()
        self.hint = hint

    def reword(self, rename: Callable[[str], str]) -> None:
        super().reword(rename)
        self.hint = None if self.hint is None else rename(self.hint)

    def again(self) -> UserError:
        """The same mistake made again: at the line that the user calls from now, and without frames."""
        new = type(self).__new__(type(self))
        new.__dict__.update(self.__dict__)
        new.args = self.args
        new.location = user_location()
        return new

    def _lines(self) -> list[str]:
        lines = super()._lines()
        if self.location is not None:
            lines.append(f"  at {self.location}")
        if self.hint is not None:
            lines.append(f"  hint: {self.hint}")
        return lines


# ---- definition ----------------------------------------------------------------------------------


class DefinitionError(UserError):
    """The definition itself is wrong: an operation outside one, a change to a complete one."""

    template = "Invalid fusion definition: {problem}"


class GraphError(UserError):
    """A graph of torch that does not consist of ATen operators, or that mutates its intermediate tensors."""

    template = "Cannot convert the graph: {problem}"


class MissingDefinitionError(DefinitionError, NotImplementedError):
    """There is nothing to run: no definition was written, or it has no outputs."""


class UnknownOpError(DefinitionError, AttributeError):
    """A method of `fd.ops` or `fd.sched` that does not exist: it is not implemented or misspelled.

    It is an AttributeError, so that hasattr works.
    """

    template = "{name} is not available (yet)"


class ArgumentTypeError(UserError, TypeError):
    """An argument of a type that the function does not accept."""

    template = "{function}(): incompatible function arguments. Expected {expected}, got {given}"


class DtypeError(UserError):
    """A value of a data type that the operation does not accept."""

    template = "Expected {what} to have dtype {expected}, but got {given}"


class ShapeError(UserError):
    """Incompatible extents: not broadcastable, not divisible, or an index out of range."""

    template = "Expected {what} to have shape {expected}, but got {given}"


class RankError(ShapeError):
    """A tensor, or a list with an entry per dimension, has the wrong number of dimensions."""

    template = "Expected {what} to have {expected} dimensions, but got {given}"


class ContiguityError(UserError):
    """Strides that contradict the contiguity which the definition declares."""

    template = "Expected {what} to have contiguity {expected}, but got {given}"


class OutputError(UserError):
    """A value that cannot be an output: not a tensor, a constant, or an alias of a wrong input."""

    template = "{what} cannot be an output: {problem}"


class OperationError(DefinitionError):
    """The builder of a user's operation raised an error, or did not return a tensor or scalar."""

    template = "Operation _{name}_, which {builder} builds, failed: {problem}"


class OptionError(UserError):
    """An unknown or malformed option."""

    template = "Unrecognized {option}: {given}. Valid names: {expected}"


class DumpError(UserError):
    """Dumped kernels that cannot be read or compared, or a revision that cannot dump any."""


class TuneError(UserError):
    """A search for params that cannot run, because of its script, its journal or its worker processes."""


# ---- execution -----------------------------------------------------------------------------------


class InputError(UserError):
    """An input of a call that does not fit the definition."""

    template = "Expected input {index}, {name}, to be {expected} but got {given}"


class LibraryError(UserError):
    """torch rejected an operation that it evaluates, for the sizes, types or device of a call."""

    template = "{op}: {problem}"


class InputDtypeError(InputError, DtypeError):
    """An input tensor of another dtype than the definition says."""

    template = (
        "Expected input {index}, {name}, to be bound to a tensor of dtype {expected}, "
        "but got a tensor of dtype {given}"
    )


class DeviceError(UserError):
    """A tensor is on the wrong device, inputs are on several devices, or no device is given where one is
    needed.
    """

    template = "Expected {what} to be on {expected}, but got {given}"


class UnsupportedDeviceError(DeviceError, ValueError):
    """A tensor on a device that no target of Fusewright serves."""

    template = "Found unsupported device {given}, only scalar CPU or CUDA tensors are supported"


class UnsupportedHardwareError(DeviceError):
    """An operation that only other GPUs than the supported ones can do."""

    template = "{what} needs {needed}"


class ProfileError(UserError, ValueError):
    """A profile was asked for that was not collected."""


class ExecutionOrderError(UserError, AssertionError):
    """Two ways to run the same definition were mixed, or a result was asked for before its run."""


# ---- scheduling ----------------------------------------------------------------------------------


class ScheduleError(UserError):
    """A scheduling primitive that cannot be applied, or a schedule that leads to no valid kernel."""

    template = "{primitive}: {problem}"


class NoSchedulerError(ScheduleError):
    """No scheduler takes part of a fusion, alone or with its neighbours."""


class RejectedError(ScheduleError):
    """A scheduler was told to take a fusion that it cannot take."""

    template = "Scheduler _{scheduler}_ ***rejected*** because : {reason}"


class SchedulerError(ScheduleError):
    """A scheduler that the user registered raised an error, or answered with something unexpected."""

    template = "Scheduler _{scheduler}_ failed in {step}: {problem}"


class RegistrationError(UserError):
    """A scheduler, heuristic or operation that cannot be registered as it is, or under its name."""

    template = "Cannot register {what}: {problem}"


class ParamsError(UserError):
    """Heuristic parameters that are malformed or contradict one another. `path` names the field."""

    template = "`{path}`: expected {expected}, got {given}"

    def move_into(self, outer: str) -> None:
        """Makes this an error of the field `outer` of another object: its path begins there."""
        path = self.facts.get("path")
        self.facts["path"] = outer if path is None else f"{outer}.{path}"
        if path is None:
            self.message = f"`{outer}`: {self.message}"
        else:
            self.message = self.message.replace(f"`{path}`", f"`{outer}.{path}`", 1)
        self.args = (self.message, *self.args[1:])

    def move(self, outer: str, other: str) -> None:
        """Replaces `outer` at the start of the path by `other`, for example if indices are counted from
        another start.
        """
        path = str(self.facts.get("path"))
        if path.startswith(outer):
            self.facts["path"] = other + path[len(outer) :]
            self.message = self.message.replace(f"`{outer}", f"`{other}", 1)
            self.args = (self.message, *self.args[1:])


class FrozenParamsError(ParamsError, dataclasses.FrozenInstanceError):
    """An assignment to a field of a params object, whose values are final: an AttributeError, as for every
    frozen dataclass.
    """


class KernelSourceError(UserError):
    """CUDA source that the user wrote does not compile. `log`: the compiler's, `excerpt`: the lines named."""

    def __init__(self, message: str, *, log: str = "", excerpt: str = "", **facts: object) -> None:
        super().__init__(message, location=None, hint=None, **facts)
        self.log = log
        self.excerpt = excerpt

    def _lines(self) -> list[str]:
        return [*super()._lines(), *(part for part in (self.log, self.excerpt) if part)]


# ---- faults of ours ------------------------------------------------------------------------------


class InternalError(FusewrightError, RuntimeError):
    """A fault of Fusewright. `repro` is a script that shows it; whoever holds the definition fills it in."""

    template = "internal error: {problem}"

    def __init__(self, message: str | None = None, *, repro: str | None = None, **facts: object) -> None:
        super().__init__(message, **facts)
        self.repro = repro

    def _lines(self) -> list[str]:
        lines = super()._lines()
        lines.append(
            "This is a fault of Fusewright, not of your program. Please report it with this message."
        )
        if self.repro:
            lines += ["A script that reproduces it:", self.repro]
        return lines


#: What Python raises for mistakes of code. Where none of it is a user's, these are internal errors.
FAULTS_OF_CODE = (
    AssertionError,
    AttributeError,
    ArithmeticError,
    LookupError,
    NotImplementedError,
    RecursionError,
    TypeError,
)


class VerifyError(InternalError):
    """An IR verifier found what no pass may produce. Facts: the level, the pass that ran last, the node."""

    template = "{level} verifier, after {after}: {problem}"


class CompileError(InternalError):
    """NVRTC refused generated code.

    Attributes:
        log: the compiler's log. excerpt: numbered source lines around each error. source: the CUDA text.
    """

    def __init__(
        self,
        message: str | None = None,
        *,
        log: str = "",
        excerpt: str = "",
        source: str = "",
        repro: str | None = None,
        **facts: object,
    ) -> None:
        super().__init__(message, repro=repro, **facts)
        self.log = log
        self.excerpt = excerpt
        self.source = source

    def _lines(self) -> list[str]:
        head, *rest = super()._lines()
        return [head, *(part for part in (self.log, self.excerpt) if part), *rest]


# ---- devices -------------------------------------------------------------------------------------


class DriverError(FusewrightError, RuntimeError):
    """A driver call failed. Facts: `call`, `code` (CUDA_ERROR_...), `problem` (the driver's description)."""

    template = "{call} failed with {code}: {problem}"


class SimulationError(FusewrightError, RuntimeError):
    """The simulator caught a kernel at something that is wrong on any GPU.

    Facts: `statement` (kernel IR text), `block` and `thread` (3-tuples, x first), `problem`.
    """

    template = "{problem}, at `{statement}` in block {block}, thread {thread}"
    #: what names of the kernel, as `T0 is T4`, are in the definition; None: the kernel has the definition's
    where: str | None = None

    @property
    def naming(self) -> str:
        return super().naming if self.where is None else self.where

    def _lines(self) -> list[str]:
        head, *rest = super()._lines()
        return [f"{head.removesuffix('.')}, where {self.where}." if self.where else head, *rest]


class OutOfBoundsError(SimulationError):
    """An access outside the buffer."""


class UninitializedReadError(SimulationError):
    """A read of memory that nothing has written."""


class DeadlockError(SimulationError):
    """Threads wait for what nobody will do."""


class UnwrittenOutputError(SimulationError):
    """A kernel ended and left an element of an output unwritten.

    Facts: `kernel`, `tensor` (their names), `element` (its position along each dimension of the tensor),
    `index` (in the buffer), `missing` and `elements` (how many there are).
    """

    template = (
        "`{kernel}` ended, and element {position} of the output `{tensor}` was never written "
        "(index {index} of the buffer; {missing} of its {elements} elements are missing)"
    )

    def __init__(self, message: str | None = None, *, element: tuple[int, ...], **facts: object) -> None:
        super().__init__(message, position=list(element), element=element, **facts)


class RaceError(SimulationError):
    """Two threads touch one address, at least one writes, and no barrier stands between."""
