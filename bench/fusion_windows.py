"""Windows of windows, as image processing has them, and sums inside of points and pixels."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from bench.fusion import fusion
from bench.operation import Inputs, Shape, Tensors

Tensor = torch.Tensor
FLOAT = torch.float32
SMOOTHING = (0.03, 0.1, 0.22, 0.3, 0.22, 0.1, 0.03)

# ---- windows of windows ------------------------------------------------------------------------------------


def floats(shape: Shape, r: Inputs) -> Tensors:
    return (r(*shape, dtype=FLOAT),)


def pyramid_pooling(x: Tensor) -> Tensor:
    """Pools of pools beside each other."""
    once = F.max_pool2d(x, 5, 1, 2)
    return torch.cat([x, once, F.max_pool2d(once, 5, 1, 2)], 1)


def opening(x: Tensor) -> Tensor:
    """What is left of pictures without small bright spots."""
    darker = -F.max_pool2d(-x[:, None], 3, 1, 1)
    return x - F.max_pool2d(darker, 3, 1, 1)[:, 0]


def local_deviation(x: Tensor) -> Tensor:
    centred = x - F.avg_pool2d(x[:, None], 3, 1, 1)[:, 0]
    return F.avg_pool2d(centred.square()[:, None], 3, 1, 1)[:, 0].sqrt()


def peaks(x: Tensor) -> Tensor:
    """Scores that no neighbour exceeds."""
    scores = torch.sigmoid(x.float())
    return torch.where(F.max_pool2d(scores, 3, 1, 1) == scores, scores, 0)


def smoothed_both_ways(x: Tensor) -> Tensor:
    padded = F.pad(x, (3, 3))
    along = sum(weight * padded[..., i : i + x.shape[-1]] for i, weight in enumerate(SMOOTHING))
    padded = F.pad(along, (0, 0, 3, 3))  # type: ignore[arg-type]
    return sum(weight * padded[:, i : i + x.shape[-2]] for i, weight in enumerate(SMOOTHING))  # type: ignore[return-value]


def corners(x: Tensor) -> Tensor:
    """Harris' measure, of the products of slopes around each pixel."""
    around = F.pad(x, (1, 1, 1, 1))
    across = around[:, 1:-1, 2:] - around[:, 1:-1, :-2]
    down = around[:, 2:, 1:-1] - around[:, :-2, 1:-1]
    products = (across * across, down * down, across * down)
    first, second, both = (F.avg_pool2d(each[:, None], 3, 1, 1)[:, 0] for each in products)
    return first * second - both * both - 0.05 * (first + second).square()


def relaxed(x: Tensor) -> Tensor:
    """Three steps towards the mean of the neighbours."""
    for _ in range(3):
        x = 0.25 * (x.roll(1, 0) + x.roll(-1, 0) + x.roll(1, 1) + x.roll(-1, 1))
    return x


def bent(x: Tensor) -> Tensor:
    """A step of a thin plate: the Laplacian of the Laplacian, with the nearest pixel beyond the border."""

    def laplacian(t: Tensor) -> Tensor:
        p = F.pad(t[:, None], (1, 1, 1, 1), mode="replicate")[:, 0]
        return p[:, 1:-1, 2:] + p[:, 1:-1, :-2] + p[:, 2:, 1:-1] + p[:, :-2, 1:-1] - 4 * t

    return x - 0.1 * laplacian(laplacian(x))


def delta_features(x: Tensor) -> Tensor:
    """Spectra, their slopes over time and the slopes of these."""

    def slopes(t: Tensor) -> Tensor:
        p = F.pad(t, (2, 2), mode="replicate")
        return (p[..., 3:-1] - p[..., 1:-3] + 2 * (p[..., 4:] - p[..., :-4])) / 10

    first = slopes(x)
    return torch.cat([x, first, slopes(first)], 1)


IMAGE, SMALL_IMAGE = (16, 1024, 1024), (2, 24, 40)
WINDOWED = (
    fusion(
        "pyramid_pooling",
        pyramid_pooling,
        lambda s, r: (r(*s),),
        (16, 128, 40, 40),
        small=(2, 3, 12, 16),
    ),
    fusion("opening", opening, floats, IMAGE, small=SMALL_IMAGE),
    fusion("local_deviation", local_deviation, floats, IMAGE, small=SMALL_IMAGE),
    fusion("peaks", peaks, lambda s, r: (r(*s),), (16, 64, 128, 128), small=(2, 3, 16, 24)),
    fusion("smoothed_both_ways", smoothed_both_ways, floats, IMAGE, small=SMALL_IMAGE),
    fusion("corners", corners, floats, IMAGE, small=SMALL_IMAGE),
    fusion("relaxed", relaxed, floats, (4096, 4096), small=(24, 40)),
    fusion("bent", bent, floats, IMAGE, small=SMALL_IMAGE),
    fusion("delta_features", delta_features, floats, (256, 80, 1501), small=(2, 3, 61)),
)

# ---- inside of points and pixels ---------------------------------------------------------------------------


def joint_sums(x: Tensor) -> Tensor:
    """Over the joints of skeletons."""
    return x.sum(1)


def image_means(x: Tensor) -> Tensor:
    """Of images of bytes, by channel."""
    return (x.float() / 255).mean((1, 2))


def bone_errors(points: Tensor, wanted: Tensor, parent: Tensor) -> Tensor:
    """How far the lengths of bones are off."""
    ours, theirs = ((x - x[:, parent]).square().sum(-1).sqrt() for x in (points, wanted))
    return (ours - theirs).abs().mean()


def centred_by_brightness(x: Tensor, brightness: Tensor) -> Tensor:
    """Images in another brightness, less the mean of their grey values."""
    x = (x * brightness[:, None, None, None].abs()).clamp(0, 1)
    grey = 0.299 * x[:, 0] + 0.587 * x[:, 1] + 0.114 * x[:, 2]
    return x - grey.mean((1, 2))[:, None, None, None]


def opponent_colours(x: Tensor) -> Tensor:
    """Two colours' sum and difference, each without its mean."""
    stacked = torch.stack([x[:, 0] + x[:, 1], x[:, 0] - x[:, 1]], 1)
    return stacked - stacked.mean((2, 3), keepdim=True)


def pixels(shape: Shape, r: Inputs) -> Tensors:
    return (r.indices(256, *shape).to(torch.uint8),)


INSIDE = (
    fusion("joint_sums", joint_sums, floats, (500000, 24, 3), small=(70, 24, 3)),
    fusion("image_means", image_means, pixels, (64, 512, 512, 3), small=(3, 20, 12, 3)),
    fusion(
        "bone_errors",
        bone_errors,
        lambda s, r: (r(*s, dtype=FLOAT), r(*s, dtype=FLOAT), r.indices(s[1], s[1])),
        (500000, 24, 3),
        small=(70, 24, 3),
    ),
    fusion(
        "centred_by_brightness",
        centred_by_brightness,
        lambda s, r: (r(*s, dtype=FLOAT), r(s[0], dtype=FLOAT)),
        (64, 3, 256, 256),
        small=(3, 3, 16, 24),
    ),
    fusion("opponent_colours", opponent_colours, floats, (32, 2, 512, 512), small=(3, 2, 16, 24)),
)

WINDOWS = (*WINDOWED, *INSIDE)
