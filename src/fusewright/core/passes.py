"""The pass manager: runs named passes over one representation, and times, dumps and verifies each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from fusewright.core.tracing import SILENT, Tracer

Subject = TypeVar("Subject")
Pass = tuple[str, Callable[[Subject], Subject]]


@dataclass(frozen=True, slots=True)
class PassManager(Generic[Subject]):
    """Runs `passes` in order. A pass takes a subject and returns the result.

    Attributes:
        stage: the dump stage (`DUMP_STAGES`) that shows the subject after each pass; the pass's name is the
            title.
        text: the printed form of a subject.
        verify: raises VerifyError; its argument names the last step.
        version: equal before and after a pass that changed nothing, whose result is not verified again. By
            default, a pass that changes the subject returns another object.
    """

    stage: str
    passes: tuple[Pass[Subject], ...]
    text: Callable[[Subject], str]
    verify: Callable[[Subject, str], None]
    version: Callable[[Subject], int] = id

    def run(self, subject: Subject, tracer: Tracer = SILENT) -> Subject:
        """The result of all passes on `subject`. A step that changed nothing runs again only after another
        change.
        """
        idle: set[Callable[[Subject], Subject]] = set()
        for name, step in self.passes:
            with tracer.stage(name):
                before, version = subject, self.version(subject)  # kept, so that no other gets its id
                if step not in idle:
                    subject = step(before)
                changed = self.version(subject) != version
                self.check(subject, name, tracer, changed=changed)
                if changed:
                    idle.clear()
                else:
                    idle.add(step)
        return subject

    def check(self, subject: Subject, after: str, tracer: Tracer = SILENT, *, changed: bool = True) -> None:
        """Dumps `subject` after the step of this name, if requested, and verifies it if it changed."""
        if tracer.wants(self.stage, after):
            tracer.dump(self.stage, self.text(subject), after)
        if changed:
            self.verify(subject, after)
