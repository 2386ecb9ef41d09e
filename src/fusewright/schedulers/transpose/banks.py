"""The padding that distributes a tile's rows over the banks of shared memory.

Threads that read across the rows of a tile read one element of each row, or of each group of rows. Rows whose
length is a multiple of all banks would conflict in one bank; a few unused elements after each row prevent
that.
"""

from __future__ import annotations

from fusewright.core.hardware import BANK_BYTES, BANKS, WARP_SIZE

_LINE = BANKS * BANK_BYTES


def padding(groups: int, group_elements: int, element_bytes: int, multiple: int) -> int:
    """The fewest elements after each group of rows with which fewest threads of a warp meet in a bank.

    A warp's threads go over the `groups` first, then along a row. A group has `group_elements` elements
    of `element_bytes` each. The padding is a multiple of `multiple` elements.
    """
    tried = range(0, max(1, _LINE // element_bytes), multiple)
    return min(tried, key=lambda n: _ways(groups, (group_elements + n) * element_bytes, element_bytes))


def _ways(groups: int, stride: int, element_bytes: int) -> int:
    """How many words of one bank threads read at a time, at most: a line of all banks is read at once."""
    words: dict[int, set[int]] = {}
    for thread in range(min(WARP_SIZE, _LINE // element_bytes)):
        first = thread % groups * stride + thread // groups * element_bytes
        for word in range(first // BANK_BYTES, (first + element_bytes - 1) // BANK_BYTES + 1):
            words.setdefault(word % BANKS, set()).add(word)
    return max(map(len, words.values()))
