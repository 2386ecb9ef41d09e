"""A kernel to tune, as data from which a worker process, or a reader of a journal, rebuilds it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import torch

from fusewright.core.hardware import HardwareInfo
from fusewright.core.once import cached_property
from fusewright.core.serialization import from_dict, to_dict
from fusewright.host.inputs.signature import ALIGNMENT_BYTES
from fusewright.tune.facts import ProblemFacts

KEY_DIGITS = 16
SEED = 0


@dataclass(frozen=True, slots=True)
class TensorLike:
    """The properties of a tensor of a call.

    Attributes:
        dtype: torch's name of it, as in "bfloat16".
        offset: the distance of its address from a multiple of 16, in bytes.
        values: its elements in order, if they determine what the kernel accesses (integers and bools). Other
            elements are drawn anew.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    offset: int = 0
    values: str | None = None

    @staticmethod
    def of(tensor: torch.Tensor, values: str | None = None) -> TensorLike:
        dtype = str(tensor.dtype).removeprefix("torch.")
        offset = 0 if tensor.device.type == "meta" else tensor.data_ptr() % ALIGNMENT_BYTES
        return TensorLike(tuple(tensor.shape), tuple(tensor.stride()), dtype, offset, values)

    @property
    def torch_dtype(self) -> torch.dtype:
        found = getattr(torch, self.dtype)
        assert isinstance(found, torch.dtype)
        return found

    @property
    def bytes(self) -> int:
        """The bytes of the elements in memory: an expanded dimension has one."""
        sizes = [size for size, stride in zip(self.shape, self.strides) if stride]
        return prod(sizes) * self.torch_dtype.itemsize

    @property
    def alignment(self) -> int:
        """Bytes that its address is a multiple of."""
        return self.offset & -self.offset if self.offset else ALIGNMENT_BYTES

    @property
    def span(self) -> int:
        """Elements of memory from its first to its last."""
        if not prod(self.shape):
            return 0
        return 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides))

    def tensor(self, device: torch.device, memory: torch.Tensor | None = None) -> torch.Tensor:
        """A tensor like it; `memory` has its elements, in one dimension, from its first to its last."""
        skipped = self.offset // self.torch_dtype.itemsize if device.type != "meta" else 0
        storage = torch.empty(skipped + self.span, dtype=self.torch_dtype, device=device)
        if memory is not None:
            storage[skipped:].view(torch.uint8).copy_(memory.to(device).view(torch.uint8))
        return storage.as_strided(self.shape, self.strides, skipped)


@dataclass(frozen=True)
class Problem:
    """One kernel with one set of inputs on one GPU.

    Attributes:
        name: for people.
        scheduler: the scheduler whose params are searched.
        definition: Python that makes it, a function of `fd` (`fd.ops...`); it has this one kernel.
        kernel: the kernel's position in launch order.
        inputs: tensors, and numbers.
        outputs: the tensors that it makes.
        modules: modules to import first, which register schedulers.
        folder: the folder of `TensorLike.values` in this run; not part of the problem.
        facts: the facts that heuristics read. None: from a journal without facts.
        formula: the params that the scheduler itself chooses, in this process. None: not computed.
    """

    name: str
    scheduler: str
    definition: str
    kernel: int
    inputs: tuple[TensorLike | int | float | bool | str, ...]
    outputs: tuple[TensorLike, ...]
    hardware: HardwareInfo
    modules: tuple[str, ...] = ()
    folder: str = ""
    facts: ProblemFacts | None = None
    formula: Any = field(default=None, compare=False, repr=False)

    @cached_property
    def key(self) -> str:
        """Equal for equal problems, whatever their names."""
        facts = self.to_dict()
        for what_follows in ("name", "facts"):
            del facts[what_follows]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:KEY_DIGITS]

    def named(self, name: str | None) -> Problem:
        """The same with what people call its definition in place of "fusion 1", if they call it anything."""
        if name is None:
            return self
        _, comma, segment = self.name.partition(", ")
        return replace(self, name=f"{name}{comma}{segment}")

    @property
    def bytes(self) -> int:
        """Read and written at least."""
        return sum(t.bytes for t in (*self.inputs, *self.outputs) if isinstance(t, TensorLike))

    @property
    def length(self) -> int | None:
        """Of the rows, or columns, that a kernel may hold. None: it reduces nothing."""
        reduction = None if self.facts is None else self.facts.reduction
        return None if reduction is None else reduction.length

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "scheduler": self.scheduler,
            "definition": self.definition,
            "kernel": self.kernel,
            "inputs": [to_dict(x) if isinstance(x, TensorLike) else x for x in self.inputs],
            "outputs": [to_dict(x) for x in self.outputs],
            "hardware": to_dict(self.hardware),
            "modules": list(self.modules),
            "facts": None if self.facts is None else to_dict(self.facts),
        }

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Problem:
        """The problem that `to_dict` wrote, without the values of integers."""
        inputs = tuple(from_dict(TensorLike, x) if isinstance(x, dict) else x for x in data["inputs"])
        outputs = tuple(from_dict(TensorLike, x) for x in data["outputs"])
        hardware = from_dict(HardwareInfo, data["hardware"])
        known = data.get("facts")
        facts = None if known is None else from_dict(ProblemFacts, known)
        made = {"inputs": inputs, "outputs": outputs, "hardware": hardware, "modules": tuple(data["modules"])}
        return Problem(**{**data, **made, "facts": facts})
