"""Reads the instructions of a kernel from its PTX, or from its machine code as nvdisasm prints it (SASS)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_SASS = re.compile(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?(?P<name>[A-Z][\w.]*)(?P<rest>[^;]*);")
_PTX = re.compile(r"\s*(?:@!?%p\d+\s+)?(?P<name>[a-z]\w*(?:\.[\w:]+)*)(?P<rest>[^;]*);")
_LABEL = re.compile(r"\s*(?P<name>[.$][\w$]+):")


@dataclass(frozen=True)
class Instruction:
    """Its name, as `LDG.E.128` or `ld.global.f32`, and its operands as text."""

    name: str
    rest: str


def read_code(text: str, language: str) -> tuple[list[Instruction], Mapping[str, int]]:
    """The instructions but NOP in order, and for each label the number of the instruction that follows.

    Args:
        language: of `text`, "SASS" or "PTX".
    """
    pattern = _SASS if language == "SASS" else _PTX
    labels: dict[str, int] = {}
    code: list[Instruction] = []
    for line in text.splitlines():
        if label := _LABEL.match(line):
            labels[label["name"]] = len(code)
        elif (found := pattern.match(line)) and found["name"] != "NOP":
            code.append(Instruction(found["name"], found["rest"]))
    return code, labels
