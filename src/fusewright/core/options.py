"""Options: one frozen object, resolved once at the edge from the environment and handed down.

Three kinds, told apart because they matter to different things:

* `enable` / `disable` switches. Those that change generated code are part of `Options.code_key()`, which
  every cache key includes; the others are accepted for scripts written for nvFuser and change nothing cached.
* `dump` requests. They print and never change what is generated, so no cache key holds them.
* places and targets: the directory of the disk cache, the GPU that the simulator describes.

A list is written `name,name(argument,argument)`, as in nvFuser.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from fusewright.core.errors import OptionError

# A parsed option: its name and the arguments in parentheses.
Request = tuple[str, tuple[str, ...]]

# What each dump stage prints. Arguments select by title, as in `kernel(index,predicate)`.
DUMP_STAGES: Mapping[str, str] = {
    "definition": "the definition as Python",
    "fusion": "the fusion IR",
    "segments": "the partition into kernels, and why each scheduler took or refused a group",
    "schedule": "the scheduled fusion and its trace of primitives",
    "kernel": "the kernel IR after each lowering pass",
    "cuda": "the generated CUDA C++",
    "ptxas": "the assembler's report: registers, spills, shared memory",
    "ptx": "the PTX",
    "sass": "the machine code",
    "params": "the chosen heuristic parameters and their reason",
    "launch": "grid, block and shared memory of each launch",
    "time": "seconds spent in each stage",
    "host": "the host program",
}

# Name -> whether it changes generated code (and so belongs in cache keys).
ENABLE_OPTIONS: Mapping[str, bool] = {
    "fast_math": True,
    "fuse_matmul": True,
    "fuse_multiple_matmuls": True,
    "io_to_lower_precision": True,
    "kernel_debug": True,
    "kernel_lineinfo": True,
    "kernel_profile": True,
    "memory_promotion": True,
    "reuse_zeroed_memory": True,
    "static_fusion_count": True,
    "tma_inner_persistent": True,
    "tma_pointwise": True,
    "tma_reduction": True,
    "ws_normalization": True,
    "cutlass_scheduler": True,
    "host_ir_jit": False,
    "host_ir_lowering": False,
    "id_model": False,
    "id_model_extra_validation": False,
    "insert_resharding_after": False,
    "kernel_db": False,
    "multicast_protocol": False,
    "p2p_protocol": False,
    "p2p_transport": False,
    "parallel_serde": False,
    "wait_debugger": False,
    "warn_register_spill": False,
}

DISABLE_OPTIONS: Mapping[str, bool] = {
    "compile_to_sass": True,
    "contig_indexing": True,
    "expr_simplify": True,
    "fma": True,
    "greedy_scheduler": True,
    "grouped_grid_welford_outer_opt": True,
    "index_hoist": True,
    "infer_contiguity": True,
    "magic_zero": True,
    "matmul_expr_eval": True,
    "predicate_elimination": True,
    "resize_scheduler": True,
    "reuse_mismatched_type_registers": True,
    "var_name_remapping": True,
    "welford_vectorization": True,
    "fallback": False,
    "kernel_reuse": False,
    "multidevice": False,
    "nvrtc_caching": False,
    "nvtx": False,
    "parallel_compile": False,
    "python_inline_definitions": False,
}


def parse_requests(text: str, option: str) -> tuple[Request, ...]:
    """Parse `name,name(argument,argument)`.

    Raises:
        OptionError: parentheses that do not match. `option` names the list in the message.
    """
    requests: list[Request] = []
    rest = text.strip()
    while rest:
        comma, paren = rest.find(","), rest.find("(")
        if paren >= 0 and (comma < 0 or paren < comma):
            close = rest.find(")", paren)
            tail = rest[close + 1 :].lstrip()
            if close < 0 or (tail and not tail.startswith(",")):
                raise OptionError(f"{option}: unclosed or misplaced parenthesis in {text!r}")
            arguments = tuple(part.strip() for part in rest[paren + 1 : close].split(",") if part.strip())
            requests.append((rest[:paren].strip(), arguments))
            rest = tail[1:].strip()
        else:
            name, _, rest = rest.partition(",")
            if ")" in name:
                raise OptionError(f"{option}: unclosed or misplaced parenthesis in {text!r}")
            if name.strip():
                requests.append((name.strip(), ()))
            rest = rest.strip()
    return tuple(requests)


def _check_names(
    requests: Iterable[Request], valid: Mapping[str, object], option: str
) -> tuple[Request, ...]:
    """Reject unknown names, and order the rest: equal sets of options make equal objects."""
    merged: dict[str, tuple[str, ...]] = {}
    for name, arguments in requests:
        if name not in valid:
            raise OptionError(option=option, given=repr(name), expected=", ".join(sorted(valid)))
        merged[name] = arguments
    return tuple(sorted(merged.items()))


def _as_requests(names: str | Iterable[str], option: str) -> tuple[Request, ...]:
    return parse_requests(names if isinstance(names, str) else ",".join(names), option)


@dataclass(frozen=True)
class Options:
    """The resolved options of a process or of one call. Build with `from_environment` or `with_switches`.

    Attributes:
        dump: stages to print, each with the titles to restrict it to (none: all).
        enable, disable: switches, each with its arguments; sorted by name.
        cache_dir: directory of the on-disk kernel cache; None: the platform's cache directory.
        sim_device: name of the described GPU that CPU tensors are simulated on.
    """

    dump: tuple[Request, ...] = ()
    enable: tuple[Request, ...] = ()
    disable: tuple[Request, ...] = ()
    cache_dir: str | None = None
    sim_device: str = "h200"
    _code_key: tuple[tuple[Request, ...], tuple[Request, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        checked = {
            "dump": _check_names(self.dump, DUMP_STAGES, "dump stage"),
            "enable": _check_names(self.enable, ENABLE_OPTIONS, "enable_option"),
            "disable": _check_names(self.disable, DISABLE_OPTIONS, "disable_option"),
        }
        for name, requests in checked.items():
            object.__setattr__(self, name, requests)
        key = (
            tuple(request for request in self.enable if ENABLE_OPTIONS[request[0]]),
            tuple(request for request in self.disable if DISABLE_OPTIONS[request[0]]),
        )
        object.__setattr__(self, "_code_key", key)

    @staticmethod
    def from_environment(environ: Mapping[str, str] | None = None) -> Options:
        """Read FUSEWRIGHT_DUMP, _ENABLE, _DISABLE, _CACHE_DIR and _SIM_DEVICE.

        Raises:
            OptionError: an unknown name (the message lists the valid ones) or parentheses that do not match.
        """
        env = os.environ if environ is None else environ

        def listed(suffix: str) -> tuple[Request, ...]:
            return parse_requests(env.get(f"FUSEWRIGHT_{suffix}", ""), f"FUSEWRIGHT_{suffix}")

        return Options(
            dump=listed("DUMP"),
            enable=listed("ENABLE"),
            disable=listed("DISABLE"),
            cache_dir=env.get("FUSEWRIGHT_CACHE_DIR") or None,
            sim_device=env.get("FUSEWRIGHT_SIM_DEVICE") or "h200",
        )

    def with_switches(self, enable: str | Iterable[str] = (), disable: str | Iterable[str] = ()) -> Options:
        """These options plus more switches: what one call asks for on top of the process's."""
        if not enable and not disable:
            return self
        return replace(
            self,
            enable=self.enable + _as_requests(enable, "enable_option"),
            disable=self.disable + _as_requests(disable, "disable_option"),
        )

    def enabled(self, name: str) -> bool:
        """Whether the switch `name` was enabled. An unknown name is an OptionError, never just off."""
        if name not in ENABLE_OPTIONS:
            raise OptionError(
                option="enable_option", given=repr(name), expected=", ".join(sorted(ENABLE_OPTIONS))
            )
        return any(given == name for given, _ in self.enable)

    def disabled(self, name: str) -> bool:
        """Whether the switch `name` was disabled."""
        if name not in DISABLE_OPTIONS:
            raise OptionError(
                option="disable_option", given=repr(name), expected=", ".join(sorted(DISABLE_OPTIONS))
            )
        return any(given == name for given, _ in self.disable)

    def code_key(self) -> tuple[tuple[Request, ...], tuple[Request, ...]]:
        """The hashable part that generated code depends on; every key of a cache of code holds it."""
        return self._code_key
