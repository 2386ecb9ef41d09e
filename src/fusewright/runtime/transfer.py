"""Transfers kernels from one process to another as bytes, so that they are not lowered twice.

Rows of operations contain functions and are the same in all processes, so they are sent by name. The schedule
that a kernel was made from is not sent.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from fusewright.core.op import ElementwiseOp, ReductionOp
from fusewright.ops.every_row import Row, rows_by_name
from fusewright.runtime.compiled_kernel import CompiledKernel
from fusewright.runtime.disk_cache import DiskCache


def _no_cache() -> DiskCache:
    return DiskCache(None)


class _Writer(pickle.Pickler):
    def persistent_id(self, value: Any) -> tuple[str, str] | None:
        if isinstance(value, (ElementwiseOp, ReductionOp)):
            return type(value).__name__, value.name
        return None


@dataclass
class _OperationRows:
    """The rows of operations. They are looked up again if a name is missing, since users may have registered
    more.
    """

    known: dict[tuple[str, str], Row]

    def find(self, name: tuple[str, str]) -> Row:
        if name not in self.known:
            self.known = rows_by_name()
        return self.known[name]


_rows = _OperationRows({})


class _Reader(pickle.Unpickler):
    def persistent_load(self, name: Any) -> Row:
        return _rows.find(name)


def kernel_to_bytes(kernel: CompiledKernel) -> bytes:
    """For `kernel_from` in another process that has the same operations and classes of params."""
    file = io.BytesIO()
    _Writer(file, pickle.HIGHEST_PROTOCOL).dump(replace(kernel, schedule=None, disk_cache=_no_cache))
    return file.getvalue()


def kernel_from(content: bytes, disk_cache: Callable[[], DiskCache]) -> CompiledKernel:
    """The kernel, without a schedule. Only for bytes of a process of one's own: they may run anything.

    Args:
        disk_cache: opens the cache where its machine code is.
    """
    kernel = _Reader(io.BytesIO(content)).load()
    assert isinstance(kernel, CompiledKernel)
    return replace(kernel, disk_cache=disk_cache)
