"""`fusewright info`: what Fusewright found on this machine, and what it would use."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from fusewright import __version__
from fusewright.core.errors import FusewrightError
from fusewright.core.hardware import GIB, KIB, MIB, HardwareInfo, described
from fusewright.core.options import Options
from fusewright.cuda import driver
from fusewright.cuda.nvrtc import nvrtc_version
from fusewright.runtime.disk_cache import open_cache
from fusewright.runtime.hardware import from_device

PACKAGES = ("cuda-bindings", "numpy", "msgspec", "rich", "triton")


def gather() -> dict[str, Any]:
    """The facts as plain data. What is missing is named under "error" in its place; nothing raises for it.

    Raises:
        OptionError: the environment names options or a simulated GPU that do not exist.
    """
    options = Options.from_environment()
    return {
        "fusewright": __version__,
        "python": platform.python_version(),
        "torch": {
            "version": torch.__version__,
            "cuda": torch.version.cuda,
            "sees_gpu": torch.cuda.is_available(),
        },
        "packages": {name: _package(name) for name in PACKAGES},
        "nvrtc": _nvrtc(),
        "driver": _driver(),
        "target": "gpu" if torch.cuda.is_available() else "simulator",
        "simulated_gpu": _hardware(described(options.sim_device)),
        "cache": asdict(open_cache(options).stats()),
        "environment": {k: v for k, v in sorted(os.environ.items()) if k.startswith("FUSEWRIGHT_")},
    }


def _package(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _nvrtc() -> dict[str, Any]:
    try:
        return {"version": ".".join(map(str, nvrtc_version()))}
    except FusewrightError as error:
        return {"error": str(error)}


def _driver() -> dict[str, Any]:
    try:
        return {
            "cuda": ".".join(map(str, driver.driver_version())),
            "devices": [_hardware(from_device(index)) for index in range(driver.device_count())],
        }
    except FusewrightError as error:
        return {"error": str(error)}


def _hardware(hardware: HardwareInfo) -> dict[str, Any]:
    return {**asdict(hardware), "arch": hardware.arch}


def info(console: Console, *, as_json: bool) -> None:
    """Print the facts, as one JSON object or as a table."""
    facts = gather()
    if as_json:
        print(json.dumps(facts, indent=2))
        return
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in _lines(facts):
        table.add_row(name, text)
    console.print(table)


def _lines(facts: dict[str, Any]) -> list[tuple[str, str]]:
    torch_facts, cuda = facts["torch"], facts["driver"]
    lines = [
        ("fusewright", f"{facts['fusewright']} on Python {facts['python']}"),
        ("torch", f"{torch_facts['version']}, built for CUDA {torch_facts['cuda'] or 'nothing (CPU only)'}"),
        ("packages", ", ".join(f"{name} {given or 'missing'}" for name, given in facts["packages"].items())),
        ("NVRTC", facts["nvrtc"].get("version") or facts["nvrtc"]["error"]),
        ("driver", f"supports CUDA {cuda['cuda']}" if "cuda" in cuda else cuda["error"]),
    ]
    for index, device in enumerate(cuda.get("devices", ())):
        lines.append((f"device {index}", _hardware_text(device)))
    lines += [
        (
            "simulated GPU",
            _hardware_text(facts["simulated_gpu"]) + "; runs CPU tensors (FUSEWRIGHT_SIM_DEVICE)",
        ),
        ("kernel cache", _cache_text(facts["cache"])),
    ]
    lines += list(facts["environment"].items())
    return lines


def _hardware_text(hardware: dict[str, Any]) -> str:
    return (
        f"{hardware['name']} ({hardware['arch']}): {hardware['sm_count']} SMs, "
        f"{hardware['memory_bytes'] / GIB:.0f} GiB at {hardware['memory_bandwidth_gbs']:.0f} GB/s, "
        f"{hardware['l2_bytes'] // MIB} MiB L2, "
        f"{hardware['shared_memory_per_block_optin'] // KIB} KiB shared memory a block"
    )


def _cache_text(cache: dict[str, Any]) -> str:
    if cache["directory"] is None:
        return f"off: {cache['disabled']}"
    held = f"{cache['entries']} kernels, {cache['bytes'] / MIB:.1f} MiB"
    return f"{cache['directory']}: {held} (FUSEWRIGHT_CACHE_DIR)"
