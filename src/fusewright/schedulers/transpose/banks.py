"""Which bytes of padding spread a tile's rows over the banks of shared memory.

Threads that go across the rows of a tile read one element of each, or of each group of rows. Rows that are
whole lines of all banks would meet in one bank; some elements of no use after each of them prevent that.
"""

from __future__ import annotations

from fusewright.core.hardware import BANK_BYTES, BANKS, WARP_SIZE

_LINE = BANKS * BANK_BYTES


def padding(groups: int, group_elements: int, element_bytes: int, multiple: int) -> int | None:
    """The fewest elements after each group of rows with which no two threads of a warp meet in a bank.

    A warp's threads go over the `groups` first, then along a row. A group has `group_elements` elements
    of `element_bytes` each. None if no padding that is a multiple of `multiple` elements does it.
    """
    for added in range(0, _LINE // element_bytes, multiple):
        if not _meet(groups, (group_elements + added) * element_bytes, element_bytes):
            return added
    return None


def _meet(groups: int, stride: int, element_bytes: int) -> bool:
    """Whether two threads read different words of one bank at a time: a line of all banks is read at once."""
    threads = min(WARP_SIZE, _LINE // element_bytes)
    words: dict[int, int] = {}
    for thread in range(threads):
        first = thread % groups * stride + thread // groups * element_bytes
        for word in {byte // BANK_BYTES for byte in range(first, first + element_bytes)}:
            if words.setdefault(word % BANKS, word) != word:
                return True
    return False
