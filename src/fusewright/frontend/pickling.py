"""Support for `pickle`, `copy` and `clone`: a definition as its records and options."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fusewright.core.errors import ArgumentTypeError, DefinitionError
from fusewright.core.options import Options
from fusewright.frontend.recorded.records import from_plain, to_plain
from fusewright.ops import describe_argument

if TYPE_CHECKING:
    from fusewright.frontend.definition import FusionDefinition

Pickled = tuple[type["FusionDefinition"], list[list[Any]], Options | None]


def pickled(
    fd: FusionDefinition, plain: type[FusionDefinition]
) -> tuple[Callable[..., FusionDefinition], Pickled]:
    """What makes an equal definition, in this process or another. plain: the class of those that it can.

    Raises:
        DefinitionError: it is not complete, or has more than its records: a class, schedule or registry.
    """
    why = f"is a {type(fd).__name__}" if type(fd) is not plain else _own(fd)
    if why is not None or fd._leaf is None:
        raise DefinitionError(
            problem=f"a definition that {why} cannot be pickled or copied",
            hint="FusionCache.serialize writes all definitions to a file; print(fd) is one as Python",
        )
    # Those of the environment are those of the process that it comes to.
    options = None if fd._given_options == Options.from_environment() else fd._given_options
    return restored, (plain, [to_plain(record) for record in fd._leaf.records], options)


def restored(
    cls: type[FusionDefinition], records: list[list[Any]], options: Options | None
) -> FusionDefinition:
    """The definition that `pickled` described. DefinitionError for an operation that is not here."""
    fd = cls(options=options)
    try:
        fd._complete_from([from_plain(record) for record in records], [None] * len(records))
    except ValueError as error:
        raise DefinitionError(problem=f"the definition cannot be restored: {error}") from error
    return fd


def clone(src_fd: FusionDefinition, dst_fd: FusionDefinition) -> None:
    """Writes a complete definition into an empty one, which keeps its own options, registry and schedule.

    Raises:
        DefinitionError: the first is not complete, the second is or is being written.
        ArgumentTypeError: one of them is no definition.
    """
    for name, given in (("src_fd", src_fd), ("dst_fd", dst_fd)):
        if not hasattr(given, "_complete_from"):
            raise ArgumentTypeError(
                function="clone", expected=f"{name}: FusionDefinition", given=describe_argument(given)
            )
    if dst_fd._leaf is not None or dst_fd._recorder is not None:
        raise DefinitionError(
            "clone: dst_fd has a definition already", expected="one whose block was never entered"
        )
    dst_fd._complete_from(src_fd._complete().records, src_fd._call_sites)


def _own(fd: FusionDefinition) -> str | None:
    """What a definition has that its records do not say."""
    if fd._leaf is None:
        return "is not complete"
    if fd._is_scheduled:
        return "is scheduled by hand"
    if fd._registry is not None:
        return "has a registry of its own"
    return "is cut into segments" if fd._segmentation is not None else None
