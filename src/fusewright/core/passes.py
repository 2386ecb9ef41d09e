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
    """Runs `passes`, in order; a pass takes a subject and returns what it makes of it.

    stage: the dump, of `DUMP_STAGES`, that shows the subject after each pass; a pass's name is the title.
    text: the printed form of a subject. verify: raises VerifyError; is told what was done last. version:
    equal before and after a pass that changed nothing, which is not verified again; by default a subject is
    changed by making another.
    """

    stage: str
    passes: tuple[Pass[Subject], ...]
    text: Callable[[Subject], str]
    verify: Callable[[Subject, str], None]
    version: Callable[[Subject], int] = id

    def run(self, subject: Subject, tracer: Tracer = SILENT) -> Subject:
        """What all passes make of `subject`. A step that changed nothing runs again only after a change."""
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
        """Dumps `subject` as the step of this name left it, if asked to; verifies it if it changed."""
        if tracer.wants(self.stage, after):
            tracer.dump(self.stage, self.text(subject), after)
        if changed:
            self.verify(subject, after)
