"""The key of a call: all properties of its inputs that the bound program depends on."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from fusewright.ir import Fusion, TensorView, Val

# Pointers are told apart by their offset from the widest vector access.
ALIGNMENT_BYTES = 16

KeyFunction = Callable[[Sequence[Any]], tuple[Hashable, ...]]


def compile_key_function(fusion: Fusion, sizes: frozenset[Val]) -> KeyFunction:
    """A function from the inputs of a call to its key, as straight code: it runs at every call.

    A tensor counts with class, shape, strides, dtype, device, alignment and its lazy negation or conjugation,
    a scalar with its class, and with its value too if it is in `sizes`. So no tensor that
    `memory_checks.unreadable` refuses has the key of one that it accepts. Inputs that the definition does not
    allow either raise (AttributeError, TypeError, ValueError, RuntimeError) or get a key that no valid call
    has.
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
    """What the key has of one input; of a tensor the shape is second and the strides are third."""
    if not isinstance(value, TensorView):
        return [f"{name}.__class__", name] if value in sizes else [f"{name}.__class__"]
    parts = [f"{name}.__class__", f"{name}.shape", f"{name}.stride()", f"{name}.dtype", f"{name}.device"]
    if value.is_cpu:
        return parts  # its value is asked for, which resolves what is lazy
    parts += [address_part(name), f"{name}.is_neg()"]
    return [*parts, f"{name}.is_conj()"] if value.dtype.is_complex else parts


def address_part(name: str) -> str:
    """What the key has of a tensor's address, as Python."""
    # A tensor without memory has address 0, which a half keeps apart from aligned addresses.
    return f"({name}.data_ptr() or 0.5) % {ALIGNMENT_BYTES}"
