"""The name of a kernel: a digest of everything that its code depends on, equal in every process."""

from __future__ import annotations

import hashlib
import inspect
import json
import re
from dataclasses import astuple, fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any

import fusewright
from fusewright.core.dtype import DataType
from fusewright.cuda.nvrtc import NvrtcOptions

# Hex digits of the digest in a kernel's name: enough to tell the kernels of a process apart.
NAME_DIGITS = 8
# The packages whose sources decide what becomes of a segment and its params.
GENERATOR = ("core", "sym", "ir", "ops", "analyze", "rewrite", "schedule", "schedulers", "segment", "kernel",
             "lower", "cuda", "runtime")  # fmt: skip

_NO_IDENTIFIER = re.compile("[^A-Za-z0-9_]")


@cache
def generator_digest() -> str:
    """Of the sources of all packages that take part in making a kernel."""
    found = hashlib.sha256()
    root = Path(fusewright.__file__).parent
    for package in GENERATOR:
        for path in sorted((root / package).rglob("*")):
            if path.suffix in (".py", ".cuh"):
                found.update(str(path.relative_to(root)).encode())
                found.update(path.read_bytes())
    return found.hexdigest()


@cache
def plugin_digest(cls: type) -> str:
    """Of the sources of a user's class, and of what it extends: a kernel that it made has another name once
    they change. Of a class that was written at a prompt, of its compiled code.
    """
    found = hashlib.sha256()
    for base in cls.__mro__:
        if base.__module__.partition(".")[0] in ("builtins", "typing", fusewright.__name__):
            continue
        found.update(f"{base.__module__}.{base.__qualname__}".encode())
        try:
            found.update(Path(inspect.getfile(base)).read_bytes())
        except (OSError, TypeError):
            for name, member in sorted(vars(base).items()):
                code = getattr(member, "__code__", None)
                if code is not None:
                    found.update(f"{name}{_code_text(code)}".encode())
    return found.hexdigest()


def _code_text(code: CodeType) -> str:
    """What a function does: its instructions and constants, without line numbers."""
    constants = [_code_text(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
    return f"{code.co_code.hex()}{constants}{code.co_names}"


def kernel_name(
    text: str, scheduler: str, params: Any, index_dtype: DataType, nvrtc: NvrtcOptions, plugin: str = ""
) -> str:
    """`fusewright_<scheduler>_<digest>`.

    Args:
        text: the canonical text of the segment.
        nvrtc: what the CUDA text is compiled with, the architecture included.
        plugin: the digest of the scheduler where it is a user's (`plugin_digest`).
    """
    parts = [text, scheduler, _plain(params), index_dtype.name, astuple(nvrtc), generator_digest(), plugin]
    digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:NAME_DIGITS]
    # A third party's type may be any text.
    return f"fusewright_{_NO_IDENTIFIER.sub('_', scheduler)}_{digest}"


def _plain(value: Any) -> Any:
    """Params without what takes no part in their equality, such as their reason."""
    if is_dataclass(value) and not isinstance(value, type):
        own = {f.name: _plain(getattr(value, f.name)) for f in fields(value) if f.compare}
        return [type(value).__name__, own]
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if isinstance(value, (set, frozenset)):
        return sorted((_plain(entry) for entry in value), key=repr)
    if isinstance(value, dict):
        return [[_plain(key), _plain(entry)] for key, entry in value.items()]
    return value if value is None or isinstance(value, (bool, int, float, str)) else repr(value)
