"""Params that a policy chooses instead of a scheduler, and the fallback if they do not work."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from fusewright.core.errors import UserError
from fusewright.core.options import ParamsPolicy
from fusewright.schedulers import Proposal
from fusewright.segment import Call, Segment

logger = logging.getLogger("fusewright")

Plan = TypeVar("Plan")


class LearnedParams:
    """A policy's choices for one call.

    If params of the policy cannot be used, a warning is logged and the scheduler's params are used.
    """

    def __init__(self, policy: ParamsPolicy | None, call: Call) -> None:
        self._policy = policy
        self._call = call
        self._chosen: set[Segment] = set()
        self._distrusted: set[Segment] = set()

    def made(self, segment: Segment, proposal: Proposal, make: Callable[[Segment, Any], Plan]) -> Plan:
        """The result of `make` for a segment and the policy's params, or the scheduler's."""
        try:
            chosen = self._params(segment, proposal)
            if chosen is not None:
                self._chosen.add(segment)
                return make(segment, chosen)
        except UserError as error:
            self._refuse(segment, error)
        return make(segment, proposal.params)

    def _params(self, segment: Segment, proposal: Proposal) -> Any | None:
        if self._policy is None or segment.evaluated is not None or segment in self._distrusted:
            return None
        call = self._call
        return self._policy.choose(segment, call.facts(segment), call.hardware, proposal.params)

    def distrust(self, segment: Segment, error: Exception) -> bool:
        """Uses the scheduler's params for a segment from now on; returns whether they were the policy's."""
        if segment not in self._chosen or segment in self._distrusted:
            return False
        self._refuse(segment, error)
        return True

    def _refuse(self, segment: Segment, error: Exception) -> None:
        self._distrusted.add(segment)
        logger.warning("params of the policy cannot be used, the scheduler's are: %s", error)
