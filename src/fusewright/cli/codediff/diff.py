"""The unified diff of two texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from functools import lru_cache

# Lines around each change.
CONTEXT = 3
# Lines up to which frequent ones are looked at: that takes up to a second, and grows faster than the square.
MAX_EXACT = 2000
# Diffs kept: many uses share their two texts.
MAX_KEPT = 1024


@lru_cache(MAX_KEPT)
def unified_diff(old: str, new: str) -> tuple[str, ...]:
    """Without a heading. Unlike `difflib.unified_diff` it also finds that lines are equal which occur often,
    such as a closing brace; for that it looks only between what the texts begin and end with in common.
    """
    return tuple(_unified_diff(old, new))


def _unified_diff(old: str, new: str) -> Iterator[str]:
    before, after = old.splitlines(), new.splitlines()
    start = _common(before, after)
    rest = min(len(before), len(after)) - start
    end = min(rest, _common(before[::-1], after[::-1]))
    first = max(0, start - CONTEXT)
    last = max(0, end - CONTEXT)
    before, after = before[first : len(before) - last], after[first : len(after) - last]
    matcher = SequenceMatcher(None, before, after, autojunk=max(len(before), len(after)) > MAX_EXACT)
    for group in matcher.get_grouped_opcodes(CONTEXT):
        (_, a, _, b, _), (_, _, a_end, _, b_end) = group[0], group[-1]
        yield f"@@ -{first + a + 1},{a_end - a} +{first + b + 1},{b_end - b} @@"
        for tag, i, i_end, j, j_end in group:
            if tag == "equal":
                yield from (f" {line}" for line in before[i:i_end])
                continue
            yield from (f"-{line}" for line in before[i:i_end])
            yield from (f"+{line}" for line in after[j:j_end])


def _common(a: Sequence[str], b: Sequence[str]) -> int:
    """How many lines both begin with."""
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
