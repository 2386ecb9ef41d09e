"""Normalizations over several dimensions at once, whose sizes vectors do not divide."""

from __future__ import annotations

import torch

from tests.ways.channels import count, per_image
from tests.ways.computation import BF16, Computation
from tests.ways.rows import EPS, bf16, f32

# ---- images without weights

X = ("nchw", torch.bfloat16)
SIZES = ({"n": 256, "c": 32, "h": 31, "w": 33}, {"n": 512, "c": 256, "h": 7, "w": 7})
SMALL = {"n": 2, "c": 4, "h": 3, "w": 5}


def standardized(x):
    return [(x - x.mean((2, 3), keepdim=True)) * (x.var((2, 3), correction=0, keepdim=True) + EPS).rsqrt()]


standardized_images = Computation("standardized_images", (X,), standardized, SIZES, 1, SMALL)


def over(fd, x, dims):
    v, m = fd.ops.var_mean(x, dims, correction=0, keepdim=True)
    return (x - m) * fd.ops.rsqrt(v + EPS)


@standardized_images.way("both dimensions")
def _(fd, x):
    return bf16(fd, over(fd, f32(fd, x), [2, 3]))


@standardized_images.way("sums in turn")
def _(fd, x):
    size, x32 = count(fd, x, (2, 3)), f32(fd, x)
    d = x32 - per_image(fd, fd.ops.sum(fd.ops.sum(x32, [3]), [2]) / size)
    return bf16(fd, d * per_image(fd, fd.ops.rsqrt(fd.ops.sum(fd.ops.sum(d * d, [3]), [2]) / size + EPS)))


@standardized_images.way("flat")
def _(fd, x):
    n, c, h, k = (fd.ops.size(x, i) for i in range(4))
    y = over(fd, fd.ops.reshape(f32(fd, x), [n, c, h * k]), [2])
    return bf16(fd, fd.ops.reshape(y, [n, c, h, k]))


@standardized_images.way("flat as it is stored")
def _(fd, x):
    n, c, h, k = (fd.ops.size(x, i) for i in range(4))
    y = over(fd, f32(fd, fd.ops.reshape(x, [n, c, h * k])), [2])
    return [fd.ops.reshape(fd.ops.cast(y, BF16), [n, c, h, k])]


@standardized_images.way("rows")
def _(fd, x):
    n, c, h, k = (fd.ops.size(x, i) for i in range(4))
    y = over(fd, fd.ops.reshape(f32(fd, x), [n * c, h * k]), [1])
    return bf16(fd, fd.ops.reshape(y, [n, c, h, k]))


@standardized_images.way("grouped")
def _(fd, x):
    n, c, h, k = (fd.ops.size(x, i) for i in range(4))
    y = over(fd, fd.ops.reshape(f32(fd, x), [n, c, 1, h, k]), [2, 3, 4])
    return bf16(fd, fd.ops.reshape(y, [n, c, h, k]))


# ---- a layer norm over two dimensions

ROWS = ("nhw", torch.bfloat16)
W = ("hw", torch.bfloat16)
ROW_SIZES = ({"n": 8192, "h": 31, "w": 33}, {"n": 32768, "h": 7, "w": 11})
ROW_SMALL = {"n": 4, "h": 3, "w": 5}


def layer_norm_ref(x, w, b):
    return [torch.layer_norm(x, w.shape, w, b, EPS)]


layer_norm_2d = Computation("layer_norm_2d", (ROWS, W, W), layer_norm_ref, ROW_SIZES, 1, ROW_SMALL)


def first(fd, t):
    return fd.ops.broadcast(t, [True, *(False for _ in range(t.ndim))])


@layer_norm_2d.way("both dimensions")
def _(fd, x, w, b):
    y = over(fd, f32(fd, x), [1, 2])
    return bf16(fd, y * first(fd, f32(fd, w)) + first(fd, f32(fd, b)))


@layer_norm_2d.way("sums in turn")
def _(fd, x, w, b):
    size, x32 = count(fd, x, (1, 2)), f32(fd, x)

    def mean(t):
        total = fd.ops.sum(fd.ops.sum(t, [2], keepdim=True), [1], keepdim=True)
        return total / size

    d = x32 - mean(x32)
    y = d * fd.ops.rsqrt(mean(d * d) + EPS)
    return bf16(fd, y * first(fd, f32(fd, w)) + first(fd, f32(fd, b)))


@layer_norm_2d.way("flat")
def _(fd, x, w, b):
    n, h, k = (fd.ops.size(x, i) for i in range(3))
    w, b = (f32(fd, fd.ops.reshape(t, [h * k])) for t in (w, b))
    y = over(fd, fd.ops.reshape(f32(fd, x), [n, h * k]), [1])
    return [fd.ops.reshape(fd.ops.cast(y * first(fd, w) + first(fd, b), BF16), [n, h, k])]


@layer_norm_2d.way("flat statistics")
def _(fd, x, w, b):
    n, h, k = (fd.ops.size(x, i) for i in range(3))
    y = fd.ops.reshape(over(fd, fd.ops.reshape(f32(fd, x), [n, h * k]), [1]), [n, h, k])
    return bf16(fd, y * first(fd, f32(fd, w)) + first(fd, f32(fd, b)))


IMAGES = (standardized_images, layer_norm_2d)
