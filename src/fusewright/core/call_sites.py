"""The location of a call in the user's program: stored in a fraction of a microsecond, resolved only for an
error.
"""

from __future__ import annotations

import sys
from types import CodeType, FrameType

from fusewright.core.errors import SourceLocation, is_internal

# Frames of the package between a user's call and what remembers it; a user is not looked for further out.
MAX_FRAMES = 12

#: A call in a program: the code that makes it and the offset of its instruction there. A plain tuple, which
#: is made ten times as fast as a class' object.
CallSite = tuple[CodeType, int]

#: by file name, whether it is the package's; not kept for names that several modules may have
_internal: dict[str, bool] = {}


def call_site() -> CallSite | None:
    """The nearest call from outside the package; None if there is none, or too many frames are in between."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(MAX_FRAMES):
        if frame is None:
            return None
        code = frame.f_code
        internal = _internal.get(code.co_filename)
        if internal is None:
            internal = is_internal(frame)
            if code.co_filename != "<string>":
                _internal[code.co_filename] = internal
        if not internal:
            return code, frame.f_lasti
        frame = frame.f_back
    return None


def location_of(site: CallSite) -> SourceLocation:
    """The line of a call."""
    code, offset = site
    lines = [line for start, end, line in code.co_lines() if start <= offset < end and line is not None]
    return SourceLocation(code.co_filename, lines[0] if lines else code.co_firstlineno, code.co_name)
