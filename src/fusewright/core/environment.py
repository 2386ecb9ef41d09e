"""The environment variables that Fusewright reads, and a warning about unknown ones."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from fusewright.core.errors import warn_user

PREFIX = "FUSEWRIGHT_"

# What each says. Those of the tests, and of ./dev, begin with what `_OF_DEVELOPERS` names.
VARIABLES: Mapping[str, str] = {
    "FUSEWRIGHT_CACHE_DIR": "the directory of the disk cache of kernels",
    "FUSEWRIGHT_DISABLE": "switches (`core.options.DISABLE_OPTIONS`)",
    "FUSEWRIGHT_DUMP": "what to print (`core.options.DUMP_STAGES`)",
    "FUSEWRIGHT_DUMP_DIR": "the folder that compiled kernels are written to",
    "FUSEWRIGHT_ENABLE": "switches (`core.options.ENABLE_OPTIONS`)",
    "FUSEWRIGHT_MAX_FUSIONS": "how many definitions the process keeps",
    "FUSEWRIGHT_POLICY": "a file of params that a search has found, for calls to use",
    "FUSEWRIGHT_SIM_DEVICE": "the GPU that is simulated for CPU tensors",
    "FUSEWRIGHT_TUNE": "how long to search for params of each call",
    "FUSEWRIGHT_TUNE_JOURNAL": "the file that the searches write to",
}
_OF_DEVELOPERS = "FUSEWRIGHT_TEST_", "FUSEWRIGHT_PYTHON"

_warned: set[str] = set()


class UnknownVariableWarning(UserWarning):
    """A variable has Fusewright's prefix, but nothing reads it."""


def warn_of_unknown(environ: Mapping[str, str]) -> None:
    """Warns once per process of each variable that has the prefix but is unknown."""
    for name in environ:
        if not name.upper().startswith(PREFIX) or name in VARIABLES or name in _warned:
            continue
        if name.startswith(_OF_DEVELOPERS):
            continue
        _warned.add(name)
        ends = [each.removeprefix(PREFIX) for each in VARIABLES]
        meant = difflib.get_close_matches(name.upper().removeprefix(PREFIX), ends, n=1)
        known = f"did you mean {PREFIX}{meant[0]}?" if meant else f"there are {', '.join(VARIABLES)}"
        warn_user(f"nothing reads the environment variable {name}: {known}", UnknownVariableWarning)
