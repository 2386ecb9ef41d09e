"""Rows of operators that scale images, and of their gradients.

An element of the nearest neighbour is a read by position. What a gradient is summed over is a window of few
elements, which torch finds by atomic additions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import reduce
from typing import TYPE_CHECKING, Any

import torch

from fusewright.core.dtype import DataType
from fusewright.torch_compile.lines import (
    Ratio,
    Windows,
    along,
    known_sizes,
    one_after_another,
    quotient_below,
    read,
    summed,
    terms,
    windows_of,
)
from fusewright.torch_compile.rows import row

if TYPE_CHECKING:
    from fusewright.torch_compile.recording import Recording

# Denominators of the scales that users state: 0.3, 1.75, 2 / 3.
MOST_DENOMINATOR = 1000


class _Scaling:
    """How the positions of a result lie in an image along one dimension.

    Attributes:
        size, made: elements of the image and of the result.
        stated: the scale that a user stated, instead of the sizes' ratio.
    """

    def __init__(
        self, r: Recording, size: int, made: int, stated: float | None, is_double: bool, rank: int
    ) -> None:
        """`rank`: dimensions of the image."""
        self.size, self.made = size, made
        self._rank = rank
        self.stated = stated if stated is not None and stated > 0 else None
        # torch computes positions in float, on the host in double for tensors of double.
        self._dtype = torch.float64 if is_double and not r.on_gpu else torch.float32
        self._on_gpu = r.on_gpu

    @property
    def ratio(self) -> Ratio:
        """Elements of the image by which a position of the result goes up, as a quotient."""
        if self.stated is None:
            return self.size, self.made
        found = Fraction(1 / self.stated).limit_denominator(MOST_DENOMINATOR)
        return max(1, found.numerator), found.denominator

    def _positions(self) -> torch.Tensor:
        return torch.arange(self.made, dtype=self._dtype)

    def _scale(self) -> torch.Tensor:
        if self.stated is not None:
            return torch.tensor(1.0 / self.stated, dtype=self._dtype)
        return torch.tensor(self.size, dtype=self._dtype) / self.made

    def nearest(self, exact: bool, backward: bool = False) -> list[int]:
        """The element that is nearest to each position: of centres if `exact`, else of their first edges.

        Where a stated scale is not the ratio of sizes, torch goes by the sizes in some cases.
        """
        by_sizes = self._rank == 2 or (backward and not self._on_gpu)
        if by_sizes and self.made == self.size and (self._on_gpu or not exact):
            return list(range(self.size))
        if by_sizes and self.made == 2 * self.size and not (self._on_gpu or exact):
            return [i // 2 for i in range(self.made)]
        position = self._positions()
        if not exact:
            found = position * self._scale()
        elif self._on_gpu:
            found = (position + 0.5) * self._scale()
        else:
            found = ((position + 0.5) * self._scale() - 0.5) + 0.5
        return [min(int(each), self.size - 1) for each in found.floor().tolist()]

    def readers(self, exact: bool) -> list[int]:
        """The first position of the result that counts for each element's gradient, and the end."""
        if not self._on_gpu:
            nearest = self.nearest(exact, backward=True)
            return [sum(each < i for each in nearest) for i in range(self.size + 1)]
        scale = torch.tensor(self.stated or self.made / self.size, dtype=torch.float32)
        first = torch.arange(self.size + 1, dtype=torch.float32) * scale
        return [min(int(each), self.made) for each in (first - 0.5 if exact else first).ceil().tolist()]

    def source(self, align_corners: bool) -> tuple[float, float]:
        """(a, b) of a position i in the image, i * a + b, between the elements that it is interpolated of."""
        if align_corners:
            return ((self.size - 1) / (self.made - 1) if self.made > 1 else 0.0), 0.0
        scale = float(self._scale())
        return scale, 0.5 * scale - 0.5


def _scalings(
    r: Recording, sizes: Sequence[int], made: Sequence[int], stated: Sequence[float | None], is_double: bool
) -> list[_Scaling]:
    """One for each of the last dimensions."""
    scales = list(stated) if stated else [None] * (len(sizes) - 2)
    return [
        _Scaling(r, n, m, s, is_double, len(scales))
        for n, m, s in zip(sizes[2:], made[2:], scales, strict=True)
    ]


def _stated_scales(
    x: Any, scales: float | None, d: float | None, h: float | None, w: float | None
) -> list[float | None]:
    """The stated scale of each dimension of an image, outermost first. `scales`: that of a line."""
    rank = x.ndim - 2
    return [scales] if rank == 1 else [d, h, w][-rank:]


# ---- the nearest element -----------------------------------------------------------------------------------


def _nearest(r: Recording, x: Any, stated: Sequence[float | None], exact: bool) -> Any:
    sizes, made = known_sizes(r.sizes(x)), known_sizes(r.shape())
    if made == sizes:
        return r.ops.set(x)
    tables = [
        (scaling, scaling.nearest(exact))
        for scaling in _scalings(r, sizes, made, stated, x.dtype is DataType.Double)
    ]
    repeated = [_repetitions(scaling, table) for scaling, table in tables]
    if all(repeated):
        return _repeated(r, x, sizes, made, repeated)
    result = x
    for dim, (scaling, table) in enumerate(tables, 2):
        result = read(r, result, sizes, dim, table, scaling.ratio)
        sizes[dim] = scaling.made
    return r.ops.set(result)


def _repetitions(scaling: _Scaling, table: Sequence[int]) -> int:
    """How often each element is repeated; 0 where that differs."""
    times, rest = divmod(scaling.made, scaling.size)
    return times if not rest and table == [i // times for i in range(scaling.made)] else 0


def _repeated(r: Recording, x: Any, sizes: Sequence[int], made: Sequence[int], times: Sequence[int]) -> Any:
    """A broadcast, where each element becomes as many along each dimension."""
    apart, repeated = list(sizes[:2]), list(sizes[:2])
    for size, n in zip(sizes[2:], times):
        apart += [size, 1]
        repeated += [size, n]
    return r.ops.reshape(r.ops.expand(r.ops.reshape(x, apart), repeated), list(made))


# ---- gradients ---------------------------------------------------------------------------------------------


def _nearest_backward(r: Recording, grad: Any, stated: Sequence[float | None], exact: bool) -> Any:
    """The sum over all positions that an element was read at."""
    made, sizes = known_sizes(r.sizes(grad)), known_sizes(r.shape())
    scalings = _scalings(r, sizes, made, stated, grad.dtype is DataType.Double)
    if made == sizes:
        return r.ops.set(grad)
    starts = [scaling.readers(exact) for scaling in scalings]
    times = [_steps(scaling, line) for scaling, line in zip(scalings, starts)]
    if all(times):
        apart, dims = list(sizes[:2]), []
        for size, n in zip(sizes[2:], times):
            dims.append(len(apart) + 1)
            apart += [size, n]
        return r.ops.sum(r.ops.reshape(grad, apart), dims)
    steps = []
    for dim, (scaling, line) in enumerate(zip(scalings, starts), 2):
        factor, divisor = scaling.ratio
        windows = windows_of(line[:-1], line[1:], scaling.made, (divisor, factor))
        steps.append((windows.most, summed(r, dim, windows, scaling.size)))
    return one_after_another(r, grad, steps)


def _steps(scaling: _Scaling, starts: Sequence[int]) -> int:
    """How many positions read each element; 0 where that differs."""
    times, rest = divmod(scaling.made, scaling.size)
    return times if not rest and all(each == i * times for i, each in enumerate(starts)) else 0


def _nearest_rows(stem: str, exact: bool) -> None:
    """Registers the rows of ATen's names with this stem."""

    @row(*(f"{stem}{n}d.{name}" for n in (1, 2, 3) for name in ("default", "vec")))
    def nearest(
        r: Recording,
        x: Any,
        scale_factors: Sequence[float] | None = None,
        scales: float | None = None,
        scales_d: float | None = None,
        scales_h: float | None = None,
        scales_w: float | None = None,
        **_: Any,
    ) -> Any:
        return _nearest(r, x, scale_factors or _stated_scales(x, scales, scales_d, scales_h, scales_w), exact)

    @row(*(f"{stem}{n}d_backward.default" for n in (1, 2, 3)))
    def nearest_backward(
        r: Recording,
        x: Any,
        scales: float | None = None,
        scales_d: float | None = None,
        scales_h: float | None = None,
        scales_w: float | None = None,
        **_: Any,
    ) -> Any:
        return _nearest_backward(r, x, _stated_scales(x, scales, scales_d, scales_h, scales_w), exact)


_nearest_rows("upsample_nearest", exact=False)
_nearest_rows("_upsample_nearest_exact", exact=True)


def _linear_backward(r: Recording, grad: Any, align_corners: bool, stated: Sequence[float | None]) -> Any:
    """The sum over positions next to an element, times 1 at the element to 0 at its neighbours."""
    made, sizes = known_sizes(r.sizes(grad)), known_sizes(r.shape())
    scalings = _scalings(r, sizes, made, stated, grad.dtype is DataType.Double)
    windows = [_neighbours(scaling, align_corners) for scaling in scalings]
    steps = [
        (window.most, _near(r, dim, window, scaling, align_corners))
        for dim, (window, scaling) in enumerate(zip(windows, scalings), 2)
    ]
    return one_after_another(r, grad, steps)


def _near(
    r: Recording, dim: int, windows: Windows, scaling: _Scaling, align_corners: bool
) -> Callable[[Any], Any]:
    """A step: the sum along one dimension."""

    def step(x: Any) -> Any:
        found = terms(r, x, dim, windows, scaling.size, 0.0)
        values = [_weighted(r, value, place, dim, scaling, align_corners) for value, place in found]
        return reduce(r.ops.add, values)

    return step


def _neighbours(scaling: _Scaling, align_corners: bool) -> Windows:
    factor, shift = scaling.source(align_corners)
    source = [min(max(0.0, o * factor + shift), scaling.size - 1.0) for o in range(scaling.made)]
    starts = [sum(each <= i - 1 for each in source) for i in range(scaling.size)]
    ends = [sum(each < i + 1 for each in source) for i in range(scaling.size)]
    step = (max(1, scaling.size - 1), max(1, scaling.made - 1)) if align_corners else scaling.ratio
    first = quotient_below(starts, (step[1], step[0]))
    most = max(end - first.at(i) for i, end in enumerate(ends))
    return Windows(first, most, scaling.made)


def _weighted(r: Recording, value: Any, place: Any, dim: int, scaling: _Scaling, align_corners: bool) -> Any:
    factor, shift = scaling.source(align_corners)
    source = r.ops.add(r.ops.mul(r.ops.cast(place, DataType.Float), factor), shift)
    source = r.ops.clamp(source, 0.0, float(scaling.size - 1))
    own = r.ops.iota(scaling.size, 0, 1, DataType.Int)
    weight = r.ops.sub(1.0, r.ops.abs(r.ops.sub(source, r.ops.cast(own, DataType.Float))))
    weight = along(r, r.ops.clamp(weight, 0.0, 1.0), dim, value.ndim)
    # What is not finite, and not next to the element, makes nothing of it.
    return r.ops.where(r.ops.gt(weight, 0.0), r.ops.mul(value, weight), 0.0)


@row(*(f"upsample_{name}_backward.default" for name in ("linear1d", "bilinear2d", "trilinear3d")))
def upsample_linear_backward(
    r: Recording,
    x: Any,
    align_corners: bool,
    scales: float | None = None,
    scales_d: float | None = None,
    scales_h: float | None = None,
    scales_w: float | None = None,
    **_: Any,
) -> Any:
    return _linear_backward(r, x, align_corners, _stated_scales(x, scales, scales_d, scales_h, scales_w))
