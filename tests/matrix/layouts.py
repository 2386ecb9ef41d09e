"""The shapes of the matrix, and how their tensors lie in memory."""

from __future__ import annotations

from dataclasses import dataclass

from tests.fuzz.values import contiguous_strides


@dataclass(frozen=True)
class Shape:
    """Sizes, strides and the offset of the first element; form: see `tests.fuzz.programs.FORMS`."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0
    form: str = "symbolic"

    def __str__(self) -> str:
        sizes, strides = ("x".join(map(str, part)) or "0d" for part in (self.sizes, self.strides))
        plain = self.strides == contiguous_strides(self.sizes)
        return (
            sizes
            + ("" if plain else f"_by_{strides}")
            + f"_at_{self.offset}" * bool(self.offset)
            + ("" if self.form == "symbolic" else f"_{self.form}")
        )


def _plain(*sizes: int, form: str = "symbolic", offset: int = 0) -> Shape:
    return Shape(sizes, contiguous_strides(sizes), offset, form)


SHAPES: tuple[Shape, ...] = (
    *(_plain(*sizes) for sizes in ((), (1,), (0,), (7,), (64,), (1025,))),
    *(_plain(*sizes) for sizes in ((5, 0), (0, 5), (1, 9), (9, 1), (3, 17), (8, 1024), (33, 31))),
    *(_plain(*sizes) for sizes in ((2, 3, 5), (4, 1, 6), (1, 1, 1), (2, 0, 3), (6, 8, 16))),
    *(_plain(*sizes) for sizes in ((2, 3, 4, 5), (2, 1, 3, 1, 5), (1, 2, 3, 2, 1, 2))),
    *(_plain(*sizes) for sizes in ((2, 1, 2, 3, 1, 2, 2), (2,) * 8, (1, 2, 0, 1, 2, 1, 2, 1))),
    *(
        _plain(*sizes, form="static")
        for sizes in ((7,), (3, 17), (8, 64), (2, 3, 5), (2, 0, 3), (2, 1, 2, 4))
    ),
    *(_plain(*sizes, offset=1) for sizes in ((64,), (3, 16), (2, 3, 8))),
    # permuted
    *(
        Shape(*each)
        for each in (((17, 33), (1, 17)), ((2, 3, 5), (1, 10, 2)), ((4, 3, 8, 8), (192, 1, 24, 3)))
    ),
    # sliced: with gaps, every second element, and from the middle on
    *(Shape(*each) for each in (((3, 16), (40, 1), 8), ((5, 7), (28, 2)), ((2, 3, 5), (60, 10, 1), 3))),
    # expanded
    *(Shape(*each) for each in (((4, 16), (0, 1)), ((16, 4), (1, 0)), ((2, 3, 5), (5, 0, 1)))),
    *(Shape(*each, form="strided") for each in (((4, 16), (0, 1)), ((3, 17), (20, 1)), ((6, 8), (1, 6)))),
)
