"""The key of a call: all properties of its inputs that the bound program depends on."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from fusewright.ir import Fusion, TensorView, Val

# The bytes of the widest vector access. The key contains addresses modulo this.
ALIGNMENT_BYTES = 16

KeyFunction = Callable[[Sequence[Any]], tuple[Hashable, ...]]


def compile_key_function(fusion: Fusion, sizes: frozenset[Val]) -> KeyFunction:
    """A function from the inputs of a call to its key. It is straight-line code, since it runs at every call.

    The key contains the class, shape, strides, dtype, device, alignment and lazy negation or conjugation of
    each tensor, the class of each scalar, and the value of each scalar in `sizes`. So a tensor that
    `memory_checks.unreadable` refuses never has the key of a tensor that it accepts. For inputs that the
    definition does not allow, the function raises an error (AttributeError, TypeError, ValueError,
    RuntimeError) or returns a key that no valid call has.
    """
    names = [f"a{i}" for i in range(len(fusion.inputs))]
    parts: list[str] = []
    for name, value in zip(names, fusion.inputs):
        parts += key_parts(name, value, sizes)
    unpack = f"    {', '.join(names)}, = inputs\n" if names else "    () = inputs\n"
    source = f"def key(inputs):\n{unpack}    return ({', '.join(parts)}{',' if parts else ''})\n"
    namespace: dict[str, Any] = {}
    exec(compile(source, "<fusewright key>", "exec"), namespace)
    return namespace["key"]


def key_parts(name: str, value: Val, sizes: frozenset[Val]) -> list[str]:
    """The parts of the key for one input, as Python.

    For a tensor, part 1 is the shape, part 2 the strides.
    """
    if not isinstance(value, TensorView):
        return [f"{name}.__class__", name] if value in sizes else [f"{name}.__class__"]
    parts = [f"{name}.__class__", f"{name}.shape", f"{name}.stride()", f"{name}.dtype", f"{name}.device"]
    if value.is_cpu:
        return parts  # the program reads its value by `item`, which resolves lazy views
    parts += [address_part(name), f"{name}.is_neg()"]
    return [*parts, f"{name}.is_conj()"] if value.dtype.is_complex else parts


def address_part(name: str) -> str:
    """The part of the key for a tensor's address, as Python."""
    # The address of a tensor without memory is 0. It becomes 0.5, which no aligned address has.
    return f"({name}.data_ptr() or 0.5) % {ALIGNMENT_BYTES}"
