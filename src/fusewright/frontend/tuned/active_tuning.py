"""The active policy, and the tuner of calls that request tuning.

`frontend.tuned.tuned_calls` sets both. It needs definitions, which need this module.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch

from fusewright.core.once import cached_property
from fusewright.core.options import Options, ParamsPolicy
from fusewright.tune.policy import Policy, read_policy

#: Tunes a call of a definition: its flat inputs, where they run, and how much effort (None: as every call).
TuneCall = Callable[[Any, Sequence[Any], "torch.device | None", Any], None]


class ActiveTuning:
    """The active tuning; one object for the process.

    Attributes:
        tune: tunes a call with the requested effort; None: with `every`.
        together: a block whose calls share the effort of one.
        every: the effort for calls that request none; None: they are not tuned.
        learned: the policy from tuning in this process; None: nothing was tuned.
        has_policy: whether there may be a policy; a call without one checks nothing else.
    """

    def __init__(self) -> None:
        self.tune: TuneCall | None = None
        self.together: Callable[[], AbstractContextManager[None]] = nullcontext
        self.every: Any = os.environ.get("FUSEWRIGHT_TUNE") or None
        self._learned: ParamsPolicy | None = None
        self.has_policy = bool(os.environ.get("FUSEWRIGHT_POLICY"))
        # The latest options and policy with their result: hashing options would cost too much per call.
        self._latest: tuple[Options, ParamsPolicy, Options] | None = None

    @property
    def learned(self) -> ParamsPolicy | None:
        return self._learned

    @learned.setter
    def learned(self, policy: ParamsPolicy | None) -> None:
        self._learned = policy
        self.has_policy = policy is not None or bool(os.environ.get("FUSEWRIGHT_POLICY"))

    @cached_property
    def given(self) -> Policy | None:
        """The policy that FUSEWRIGHT_POLICY names, read once. TuneError: it cannot be read."""
        name = os.environ.get("FUSEWRIGHT_POLICY")
        return read_policy(Path(name)) if name else None

    def options(self, options: Options) -> Options:
        """A call's options with the policy that is in force."""
        policy = self.learned or self.given
        if policy is None or options.policy is not None:
            return options
        latest = self._latest
        if latest is None or latest[0] is not options or latest[1] is not policy:
            latest = self._latest = options, policy, options.with_policy(policy)
        return latest[2]


ACTIVE = ActiveTuning()
