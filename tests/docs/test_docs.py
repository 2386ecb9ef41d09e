"""The documentation runs: every python block of README.md and docs/, and every relative link in them."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
NO_RUN = "<!-- no-run -->"
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")


class Block(NamedTuple):
    """A fenced python block: the number of its first line in the page, and its text."""

    line: int
    text: str


def python_blocks(page: str) -> list[Block]:
    """The ```python blocks of a markdown page in order, without those right after a `NO_RUN` comment."""
    blocks: list[Block] = []
    lines = page.splitlines()
    number = 0
    previous = ""  # the last line with text before the fence
    while number < len(lines):
        line = lines[number]
        if line.startswith("```"):
            end = next(i for i in range(number + 1, len(lines)) if lines[i].startswith("```"))
            if line[3:].strip() == "python" and previous != NO_RUN:
                blocks.append(Block(number + 2, "\n".join(lines[number + 1 : end]) + "\n"))
            number, line = end, lines[end]
        if line.strip():
            previous = line.strip()
        number += 1
    return blocks


def relative_links(page: str) -> list[str]:
    return [link for link in LINK.findall(page) if "://" not in link and not link.startswith("mailto:")]


def page_name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_code_blocks_run(page: Path) -> None:
    """The blocks of one page share a namespace, in order, like a session at the prompt.

    What a block checks is what it asserts; here they must run. Line numbers in a failure are the page's.
    """
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in python_blocks(page.read_text(encoding="utf-8")):
        padding = "\n" * (block.line - 1)
        exec(compile(padding + block.text, str(page), "exec"), namespace)


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_relative_links_lead_somewhere(page: Path) -> None:
    links = relative_links(page.read_text(encoding="utf-8"))
    missing = [link for link in links if not (page.parent / link).exists()]
    assert missing == []


def test_blocks_are_found_and_skipped() -> None:
    page = (
        f"text\n```python\na = 1\n```\n{NO_RUN}\n\n```python\nb\n```\n```sh\nc\n```\n```python\nd = a\n```\n"
    )
    assert python_blocks(page) == [Block(3, "a = 1\n"), Block(14, "d = a\n")]


def test_links_are_found() -> None:
    page = "[a](docs/a.md#part) [b](https://example.org) [c](#here) [d](../d)"
    assert relative_links(page) == ["docs/a.md", "../d"]


# What pages of the design name in code font, of a package: `lower.indexing`, `cuda.nvrtc.NvrtcOptions`.
PACKAGES = "|".join(sorted(p.parent.name for p in (ROOT / "src/fusewright").glob("*/__init__.py")))
NAMED = re.compile(rf"`((?:{PACKAGES})(?:\.\w+)+)`")


@pytest.mark.parametrize("page", ["architecture.md", "decisions.md"])
def test_what_the_design_names_exists(page: str) -> None:
    missing = [name for name in NAMED.findall((ROOT / "docs" / page).read_text("utf-8")) if not _exists(name)]
    assert not missing


def _exists(name: str) -> bool:
    """Whether a module of the package has this name, or a part of one."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(["fusewright", *parts[:end]]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            found = getattr(found, part, None)
        return found is not None
    return False
