"""Options: one frozen object, resolved once from the environment and passed down as an argument.

There are three kinds:

* `enable` / `disable` switches. `ENABLE_OPTIONS` and `DISABLE_OPTIONS` say what each does. Switches with an
  effect are part of `Options.key()`, the cache key of compiled kernels. Switches without an effect are
  accepted for scripts written for nvFuser.
* `dump` requests. They print and never change the generated code, so no key includes them.
* Directories, targets and limits: the directories of dump files and of the disk cache, the GPU that the
  simulator describes, and the maximum number of cached definitions.

A list is written `name,name(argument,argument)`, as in nvFuser.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Protocol

from fusewright.core.environment import warn_of_unknown
from fusewright.core.errors import OptionError

# A parsed option: its name and the arguments in parentheses.
Request = tuple[str, tuple[str, ...]]

# What each dump stage prints. Arguments select by title, as in `kernel(index,predicate)`.
DUMP_STAGES: Mapping[str, str] = {
    "definition": "the definition as Python",
    "fusion": "the fusion IR",
    "rewrite": "the fusion of each group that schedulers are asked about, after each rewrite",
    "segments": "the partition into kernels, and why each scheduler took or refused a group",
    "schedule": "the scheduled fusion and its trace of primitives",
    "kernel": "the kernel IR after each lowering pass",
    "cuda": "the generated CUDA C++",
    "ptxas": "the assembler's report: registers, spills, shared memory",
    "ptx": "the PTX",
    "sass": "the machine code",
    "cubin": "the machine code as a file in FUSEWRIGHT_DUMP_DIR",
    "params": "the chosen heuristic parameters and their reason",
    "launch": "grid, block and shared memory of each launch",
    "time": "seconds spent in each stage",
    "host": "the host program",
}


def _switches(effective: Mapping[str, str], accepted: str) -> Mapping[str, str]:
    return {**effective, **dict.fromkeys(accepted.split(), "")}


# The switches that may be enabled, and what each does. Switches without an effect are accepted, since scripts
# written for nvFuser pass them, and are not part of any key: their behaviour is always on, or not available.
ENABLE_OPTIONS = _switches(
    {
        "fast_math": "approximate division, roots and transcendentals; subnormals are flushed",
        "kernel_debug": "debug information in the machine code, which is not optimised",
        "kernel_lineinfo": "lines of the CUDA source in the machine code, for profilers",
    },
    """cutlass_scheduler fuse_matmul fuse_multiple_matmuls host_ir_jit host_ir_lowering id_model
    id_model_extra_validation insert_resharding_after io_to_lower_precision kernel_db kernel_profile
    memory_promotion multicast_protocol p2p_protocol p2p_transport parallel_serde reuse_zeroed_memory
    static_fusion_count tma_inner_persistent tma_pointwise tma_reduction wait_debugger warn_register_spill
    ws_normalization""",
)

# The switches that may be disabled, as above.
DISABLE_OPTIONS = _switches(
    {
        "constant_sizes": "no kernel is made for the sizes of the first calls alone",
        "fma": "multiplications and additions are not contracted",
        "horizontal_fusion": "independent kernels are not launched as one",
        "matmul_expr_eval": "matmul and linear are not evaluated by torch, and nothing else takes them",
        "nvrtc_caching": "machine code is neither read from the disk cache nor written to it",
        "parallel_compile": "the kernels of a fusion are compiled one after another",
    },
    """compile_to_sass contig_indexing expr_simplify fallback greedy_scheduler
    grouped_grid_welford_outer_opt index_hoist infer_contiguity kernel_reuse magic_zero multidevice
    nvtx predicate_elimination python_inline_definitions resize_scheduler
    reuse_mismatched_type_registers var_name_remapping welford_vectorization""",
)

# Digits of a number that an option may have.
MAX_DIGITS = 10

# nvFuser's own limit; a definition with its kernels takes about a megabyte.
DEFAULT_MAX_FUSIONS = 16384

# Options that are asked for by switches are kept, so that calls with the same ones share an object.
MAX_SWITCHED = 256


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


def _check_name(name: str, valid: Mapping[str, str], option: str) -> None:
    if name not in valid:
        effects = [f"{n} ({effect})" for n, effect in valid.items() if effect]
        raise OptionError(
            option=option,
            given=repr(name),
            expected=", ".join(sorted(valid)),
            hint=f"with an effect: {'; '.join(effects)}",
        )


def _check_names(requests: Iterable[Request], valid: Mapping[str, str], option: str) -> tuple[Request, ...]:
    """Reject unknown names, and order the rest: equal sets of options make equal objects."""
    merged: dict[str, tuple[str, ...]] = {}
    if isinstance(requests, str) or not isinstance(requests, Iterable):
        raise OptionError(f"malformed {option}", expected="pairs (name, arguments)", given=repr(requests))
    for request in requests:
        if not isinstance(request, tuple) or len(request) != 2:
            raise OptionError(f"malformed {option}", expected="a pair (name, arguments)", given=repr(request))
        name, arguments = request
        _check_name(name, valid, option)
        merged[name] = arguments
    return tuple(sorted(merged.items()))


def _effective(requests: Iterable[Request], effects: Mapping[str, str]) -> tuple[str, ...]:
    """The names of the switches that do something; none of these has arguments."""
    return tuple(name for name, _ in requests if effects[name])


class ParamsPolicy(Protocol):
    """Chooses params for kernels. Policies that make the same choices are equal."""

    def __hash__(self) -> int: ...

    @property
    def version(self) -> str:
        """Part of the cache keys."""
        ...

    def choose(self, segment: Any, facts: Any, hardware: Any, params: Any) -> Any | None:
        """The params for a call of a segment (`schedulers.Facts`, HardwareInfo), given the params that its
        scheduler proposes; None to use these. ParamsError if the policy's params are not legal for this call.
        """
        ...


@dataclass(frozen=True)
class Options:
    """The resolved options of a process or of one call. Build with `from_environment` or `with_switches`.

    Attributes:
        dump: the stages to print, each with the titles that restrict it (none: all titles). dump_dir: the
        folder for each compiled kernel's files (`core.dump_folder`). The stages of `FILE_SUFFIXES` are then
        written instead of printed: those that `dump` names, or all if it names none. enable, disable: the
        switches, each with its arguments; sorted by name. cache_dir: the directory of the on-disk kernel
        cache; None: the platform's cache directory. sim_device: the name of the described GPU that simulates
        CPU tensors. max_fusions: the maximum number of cached definitions (`FusionCache`). Read once, when
        the cache is made. policy: chooses params instead of those that schedulers propose.
    """

    dump: tuple[Request, ...] = ()
    dump_dir: str | None = None
    enable: tuple[Request, ...] = ()
    disable: tuple[Request, ...] = ()
    cache_dir: str | None = None
    sim_device: str = "h200"
    max_fusions: int = DEFAULT_MAX_FUSIONS
    policy: ParamsPolicy | None = None
    _key: tuple[object, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        checked = {
            "dump": _check_names(self.dump, DUMP_STAGES, "dump stage"),
            "enable": _check_names(self.enable, ENABLE_OPTIONS, "enable_option"),
            "disable": _check_names(self.disable, DISABLE_OPTIONS, "disable_option"),
        }
        for name, requests in checked.items():
            object.__setattr__(self, name, requests)
        if self.dump_dir is None and any(stage == "cubin" for stage, _ in self.dump):
            raise OptionError("a dump of cubin is a file", hint="name a folder in FUSEWRIGHT_DUMP_DIR")
        switches = _effective(self.enable, ENABLE_OPTIONS), _effective(self.disable, DISABLE_OPTIONS)
        version = None if self.policy is None else self.policy.version
        object.__setattr__(self, "_key", (*switches, self.cache_dir, self.sim_device, version))

    @staticmethod
    def from_environment(environ: Mapping[str, str] | None = None) -> Options:
        """Read FUSEWRIGHT_DUMP, _DUMP_DIR, _ENABLE, _DISABLE, _CACHE_DIR, _SIM_DEVICE and _MAX_FUSIONS.

        Warns of unknown variables with this prefix (`core.environment`).

        Raises:
            OptionError: an unknown name (the message lists the valid ones), parentheses that do not match, or
                a limit that is not a positive integer. Also a mapping of other than texts.
        """
        if not (environ is None or _is_environment(environ)):
            raise OptionError(
                "from_environment: its argument is no environment",
                expected="a mapping of str to str",
                given=type(environ).__name__,
            )
        env = os.environ if environ is None else environ
        warn_of_unknown(env)

        def listed(suffix: str) -> tuple[Request, ...]:
            return parse_requests(env.get(f"FUSEWRIGHT_{suffix}", ""), f"FUSEWRIGHT_{suffix}")

        return Options(
            dump=listed("DUMP"),
            dump_dir=env.get("FUSEWRIGHT_DUMP_DIR") or None,
            enable=listed("ENABLE"),
            disable=listed("DISABLE"),
            cache_dir=env.get("FUSEWRIGHT_CACHE_DIR") or None,
            sim_device=env.get("FUSEWRIGHT_SIM_DEVICE") or "h200",
            max_fusions=_positive(env.get("FUSEWRIGHT_MAX_FUSIONS"), DEFAULT_MAX_FUSIONS),
        )

    def with_switches(self, enable: str | Iterable[str] = (), disable: str | Iterable[str] = ()) -> Options:
        """These options with additional switches, for a call that adds switches to the process's.

        Equal switches added to the same options return the same object.
        """
        enabled, disabled = _names(enable, "enable_option"), _names(disable, "disable_option")
        return _switched(self, enabled, disabled) if enabled or disabled else self

    def with_policy(self, policy: ParamsPolicy) -> Options:
        """These options with a policy that chooses params. The same policy returns the same object."""
        return _with_policy(self, policy)

    def enabled(self, name: str) -> bool:
        """Whether the switch `name` was enabled. An unknown name raises OptionError."""
        _check_name(name, ENABLE_OPTIONS, "enable_option")
        return any(given == name for given, _ in self.enable)

    def disabled(self, name: str) -> bool:
        """Whether the switch `name` was disabled."""
        _check_name(name, DISABLE_OPTIONS, "disable_option")
        return any(given == name for given, _ in self.disable)

    def key(self) -> tuple[object, ...]:
        """The hashable part that compiled kernels depend on: the switches with an effect, and directories."""
        return self._key


def _is_environment(environ: Any) -> bool:
    return isinstance(environ, Mapping) and all(
        isinstance(text, str) for text in itertools.chain(environ, environ.values())
    )


def _positive(text: str | None, default: int) -> int:
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < MAX_DIGITS and int(text) > 0):
        raise OptionError(
            "FUSEWRIGHT_MAX_FUSIONS is no limit",
            expected=f"a positive integer of fewer than {MAX_DIGITS} digits",
            given=repr(text),
        )
    return int(text)


@lru_cache(MAX_SWITCHED)
def _with_policy(options: Options, policy: ParamsPolicy) -> Options:
    return replace(options, policy=policy)


@lru_cache(MAX_SWITCHED)
def _switched(options: Options, enable: str | tuple[str, ...], disable: str | tuple[str, ...]) -> Options:
    return replace(
        options,
        enable=options.enable + _as_requests(enable, "enable_option"),
        disable=options.disable + _as_requests(disable, "disable_option"),
    )


def _names(given: object, option: str) -> str | tuple[str, ...]:
    """What a caller passed as a list of options. OptionError for anything but text and texts."""
    if isinstance(given, str):
        return given
    if isinstance(given, Iterable) and not isinstance(given, (bytes, Mapping)):
        names = tuple(given)
        if all(isinstance(name, str) for name in names):
            return names
        given = next(name for name in names if not isinstance(name, str))
    raise OptionError(
        f"{option}: expected a list of names", expected="a list of str", given=f"a {type(given).__name__}"
    )


def _as_requests(names: str | tuple[str, ...], option: str) -> tuple[Request, ...]:
    return parse_requests(names if isinstance(names, str) else ",".join(names), option)
