"""Gradients of normalizations over rows."""

from __future__ import annotations

import torch

from tests.ways.computation import Computation, statistics_over
from tests.ways.rows import EPS, SIZES, SMALL, S, W, X, bf16, f32, per_column, per_row


def lnb_ref(dy, x, m, r, w):
    m = m[:, None]
    r = r[:, None]
    xh = (x - m) * r
    g = dy * w
    dx = r * (g - g.mean(1, keepdim=True) - xh * (g * xh).mean(1, keepdim=True))
    return [dx, (dy * xh).sum(0), dy.sum(0)]


layer_norm_backward = Computation(
    "layer_norm_backward", (X, X, S, S, W), lnb_ref, SIZES, 2, SMALL, statistics_over([1])
)


@layer_norm_backward.way("aten")
def _(fd, dy, x, m, r, w):
    n = fd.ops.size(x, 1)
    dy, x, w = f32(fd, dy, x, w)
    m, r = per_row(fd, m), per_row(fd, r)
    xh = (x - m) * r
    g = dy * w
    a = g * n
    b = fd.ops.sum(g, [1], keepdim=True)
    c2 = fd.ops.sum(g * xh, [1], keepdim=True)
    c3 = xh * c2
    inner = a - b - c3
    dx = (r / n) * inner
    dw = fd.ops.sum(dy * xh, [0])
    db = fd.ops.sum(dy, [0])
    return bf16(fd, dx, dw, db)


@layer_norm_backward.way("textbook")
def _(fd, dy, x, m, r, w):
    dy, x, w = f32(fd, dy, x, w)
    m, r = per_row(fd, m), per_row(fd, r)
    xh = (x - m) * r
    db = fd.ops.sum(dy, [0])
    dw = fd.ops.sum(dy * xh, [0])
    g = dy * per_column(fd, w)
    dx = r * (g - fd.ops.mean(g, [1], keepdim=True) - xh * fd.ops.mean(g * xh, [1], keepdim=True))
    return bf16(fd, dx, dw, db)


@layer_norm_backward.way("weights first")
def _(fd, dy, x, m, r, w):
    dw = fd.ops.sum(f32(fd, dy) * ((f32(fd, x) - per_row(fd, m)) * per_row(fd, r)), [0])
    db = fd.ops.sum(f32(fd, dy), [0])
    dw, db = bf16(fd, dw, db)
    g = f32(fd, dy) * per_column(fd, f32(fd, w))
    xh = (f32(fd, x) - per_row(fd, m)) * per_row(fd, r)
    dx = per_row(fd, r) * (
        g - fd.ops.mean(g, [1], keepdim=True) - xh * fd.ops.mean(g * xh, [1], keepdim=True)
    )
    return [*bf16(fd, dx), dw, db]


@layer_norm_backward.way("chain rule")
def _(fd, dy, x, m, r, w):
    n = fd.ops.size(x, 1)
    dy, x, w = f32(fd, dy, x, w)
    m, r = per_row(fd, m), per_row(fd, r)
    d = x - m
    xh = d * r
    dxh = dy * w
    dvar = fd.ops.sum(dxh * d, [1], keepdim=True) * -0.5 * r * r * r
    dmean = fd.ops.sum(dxh * r, [1], keepdim=True) * -1.0
    dx = dxh * r + dvar * 2.0 * d / n + dmean / n
    return bf16(fd, dx, fd.ops.sum(dy * xh, [0]), fd.ops.sum(dy, [0]))


@layer_norm_backward.way("chain rule mean")
def _(fd, dy, x, m, r, w):
    n = fd.ops.size(x, 1)
    dy, x, w = f32(fd, dy, x, w)
    m, r = per_row(fd, m), per_row(fd, r)
    d = x - m
    xh = d * r
    dxh = dy * w
    dvar = fd.ops.sum(dxh * d, [1], keepdim=True) * -0.5 * fd.ops.pow(r, 3.0)
    dmean = fd.ops.sum(dxh * fd.ops.neg(r), [1], keepdim=True) + dvar * fd.ops.mean(
        d * -2.0, [1], keepdim=True
    )
    dx = dxh * r + dvar * 2.0 * d / n + dmean / n
    return bf16(fd, dx, fd.ops.sum(dy * xh, [0]), fd.ops.sum(dy, [0]))


@layer_norm_backward.way("in dim")
def _(fd, dy, x, m, r, w):
    shape = fd.ops.shape(x)
    n = fd.ops.size(x, 1)
    m1 = fd.ops.broadcast_in_dim(m, shape=[fd.ops.size(x, 0), 1], broadcast_dims=[0])
    r1 = fd.ops.broadcast_in_dim(r, shape=[fd.ops.size(x, 0), 1], broadcast_dims=[0])
    mb = fd.ops.broadcast_in_dim(m1, shape=shape, broadcast_dims=[0, 1])
    x32 = f32(fd, x)
    d = x32 - mb
    rb = fd.ops.broadcast_in_dim(r1, shape=shape, broadcast_dims=[0, 1])
    xh = d * rb
    dy32 = f32(fd, dy)
    db = fd.ops.sum(dy32, [0])
    dw = fd.ops.sum(dy32 * xh, [0])
    wb = fd.ops.broadcast_in_dim(w, shape=shape, broadcast_dims=[1])
    g = f32(fd, wb) * dy32
    gd = rb * g
    ng = fd.ops.neg(gd)
    s1 = fd.ops.sum(ng, [1])
    t = fd.ops.sum(g * d, [1])
    t1 = fd.ops.broadcast_in_dim(t, shape=[fd.ops.size(x, 0), 1], broadcast_dims=[0])
    t2 = t1 * -0.5 * fd.ops.pow(r1, 3.0)
    t3 = fd.ops.sum(t2, [1])
    t4 = fd.ops.broadcast_in_dim(t3, shape=[fd.ops.size(x, 0), 1], broadcast_dims=[0])
    t5 = fd.ops.broadcast_in_dim(t4, shape=shape, broadcast_dims=[0, 1])
    d2 = d * 2.0 * t5 / n
    s2 = (
        fd.ops.broadcast_in_dim(
            fd.ops.broadcast_in_dim(s1, shape=[fd.ops.size(x, 0), 1], broadcast_dims=[0]),
            shape=shape,
            broadcast_dims=[0, 1],
        )
        / n
    )
    dx = gd + (d2 + s2)
    return bf16(fd, dx, dw, db)


@layer_norm_backward.way("scaled weights")
def _(fd, dy, x, m, r, w):
    """The gradients of the weights with the statistics taken out of the elements."""
    dy, x, w = f32(fd, dy, x, w)
    m, r = per_row(fd, m), per_row(fd, r)
    g = dy * w
    xr = x * r - m * r
    c = fd.ops.sum(g * xr, [1], keepdim=True) / fd.ops.size(x, 1)
    s = fd.ops.sum(g, [1], keepdim=True) / fd.ops.size(x, 1)
    dx = (g - s - xr * c) * r
    return bf16(fd, dx, fd.ops.sum(xr * dy, [0]), fd.ops.sum(dy, [0]))


@layer_norm_backward.way("double rounded")
def _(fd, dy, x, m, r, w):
    """The normalized input in the input's type, as autocast does."""
    n = fd.ops.size(x, 1)
    xh = f32(fd, (f32(fd, x) - per_row(fd, m)) * per_row(fd, r))
    dw = fd.ops.sum(dy * xh, [0])
    db = fd.ops.sum(f32(fd, dy), [0])
    g = w * dy
    s, t = fd.ops.sum(g, [1]), fd.ops.sum(g * xh, [1])
    dx = (g * n - per_row(fd, s) - xh * per_row(fd, t)) * (per_row(fd, r) / n)
    return bf16(fd, dx, dw, db)


def lnb_full_ref(dy, x, w):
    m = x.mean(1)
    r = (x.var(1, correction=0) + EPS).rsqrt()
    return lnb_ref(dy, x, m, r, w)


layer_norm_recomputed = Computation(
    "layer_norm_backward_recomputed", (X, X, W), lnb_full_ref, SIZES, 2, SMALL
)


def finish(fd, dy, x, m, r, w):
    dy, x, w = f32(fd, dy, x, w)
    xh = (x - m) * r
    g = dy * w
    dx = r * (g - fd.ops.mean(g, [1], keepdim=True) - xh * fd.ops.mean(g * xh, [1], keepdim=True))
    return bf16(fd, dx, fd.ops.sum(dy * xh, [0]), fd.ops.sum(dy, [0]))


@layer_norm_recomputed.way("var mean")
def _(fd, dy, x, w):
    v, m = fd.ops.var_mean(f32(fd, x), [1], correction=0, keepdim=True)
    return finish(fd, dy, x, m, fd.ops.rsqrt(v + EPS), w)


@layer_norm_recomputed.way("deviations")
def _(fd, dy, x, w):
    x32 = f32(fd, x)
    m = fd.ops.mean(x32, [1], keepdim=True)
    d = x32 - m
    v = fd.ops.mean(d * d, [1], keepdim=True)
    return finish(fd, dy, x, m, fd.ops.rsqrt(v + EPS), w)


@layer_norm_recomputed.way("of squares")
def _(fd, dy, x, w):
    x32 = f32(fd, x)
    m = fd.ops.mean(x32, [1], keepdim=True)
    v = fd.ops.mean(x32 * x32, [1], keepdim=True) - m * m
    return finish(fd, dy, x, m, fd.ops.rsqrt(v + EPS), w)


def rmsb_ref(dy, x, r, w):
    r = r[:, None]
    xh = x * r
    g = dy * w
    return [r * (g - xh * (g * xh).mean(1, keepdim=True)), (dy * xh).sum(0)]


rms_norm_backward = Computation("rms_norm_backward", (X, X, S, W), rmsb_ref, SIZES, 2, SMALL)


@rms_norm_backward.way("textbook")
def _(fd, dy, x, r, w):
    dy, x, w = f32(fd, dy, x, w)
    r = per_row(fd, r)
    xh = x * r
    g = dy * w
    dx = r * (g - xh * fd.ops.mean(g * xh, [1], keepdim=True))
    return bf16(fd, dx, fd.ops.sum(dy * xh, [0]))


@rms_norm_backward.way("cubed")
def _(fd, dy, x, r, w):
    n = fd.ops.size(x, 1)
    g = f32(fd, dy) * per_column(fd, f32(fd, w))
    s = fd.ops.sum(g * f32(fd, x), [1])
    r3 = fd.ops.pow(r, 3.0)
    dx = g * per_row(fd, r) - f32(fd, x) * per_row(fd, s * r3 / n)
    dw = fd.ops.sum(f32(fd, dy) * f32(fd, x) * per_row(fd, r), [0])
    return bf16(fd, dx, dw)


@rms_norm_backward.way("autograd")
def _(fd, dy, x, r, w):
    n = fd.ops.size(x, 1)
    shape = fd.ops.shape(x)
    dy, x, w = f32(fd, dy, x, w)
    rb = fd.ops.broadcast_in_dim(r, shape=shape, broadcast_dims=[0])
    dw = fd.ops.sum(dy * (x * rb), [0])
    g = dy * fd.ops.broadcast_in_dim(w, shape=shape, broadcast_dims=[1])
    dr = fd.ops.sum(g * x, [1])
    dv = dr * -0.5 * r * r * r
    dsq = fd.ops.broadcast_in_dim(dv / n, shape=shape, broadcast_dims=[0])
    dx = g * rb + dsq * 2.0 * x
    return bf16(fd, dx, dw)


T3 = ("bsh", torch.bfloat16)
S3 = ("bs", torch.float32)
SIZES3 = ({"b": 8, "s": 1024, "h": 1024}, {"b": 2, "s": 2048, "h": 4096})
SMALL3 = {"b": 2, "s": 3, "h": 40}


def lnb3_ref(dy, x, m, r, w):
    h = x.shape[-1]
    dx, dw, db = lnb_ref(dy.reshape(-1, h), x.reshape(-1, h), m.reshape(-1), r.reshape(-1), w)
    return [dx.reshape(x.shape), dw, db]


layer_norm_backward_3d = Computation(
    "layer_norm_backward_3d", (T3, T3, S3, S3, W), lnb3_ref, SIZES3, 2, SMALL3, statistics_over([2])
)


def last(fd, t):
    return fd.ops.broadcast(t, [False, False, True])


def lnb3(fd, dy, x, m, r, w, over):
    dy, x, w = f32(fd, dy, x, w)
    xh = (x - last(fd, m)) * last(fd, r)
    g = dy * w
    dx = last(fd, r) * (g - fd.ops.mean(g, [2], keepdim=True) - xh * fd.ops.mean(g * xh, [2], keepdim=True))
    return bf16(fd, dx, over(dy * xh), over(dy))


@layer_norm_backward_3d.way("at once")
def _(fd, *t):
    return lnb3(fd, *t, over=lambda v: fd.ops.sum(v, [0, 1]))


@layer_norm_backward_3d.way("sums in turn")
def _(fd, *t):
    return lnb3(fd, *t, over=lambda v: fd.ops.sum(fd.ops.sum(v, [0]), [0]))


@layer_norm_backward_3d.way("sums kept")
def _(fd, *t):
    return lnb3(fd, *t, over=lambda v: fd.ops.squeeze(fd.ops.sum(v, [0, 1], keepdim=True), [0, 1]))


@layer_norm_backward_3d.way("kept in turn")
def _(fd, *t):
    return lnb3(
        fd,
        *t,
        over=lambda v: fd.ops.squeeze(
            fd.ops.sum(fd.ops.sum(v, [0], keepdim=True), [1], keepdim=True), [0, 1]
        ),
    )


@layer_norm_backward_3d.way("sums of rows")
def _(fd, dy, x, m, r, w):
    n = fd.ops.size(x, 0) * fd.ops.size(x, 1)
    return lnb3(fd, dy, x, m, r, w, over=lambda v: fd.ops.sum(fd.ops.reshape(v, [n, fd.ops.size(x, 2)]), [0]))


@layer_norm_backward_3d.way("flat")
def _(fd, dy, x, m, r, w):
    b, s, h = (fd.ops.size(x, i) for i in range(3))
    dy, x = (f32(fd, fd.ops.reshape(t, [b * s, h])) for t in (dy, x))
    m, r = (per_row(fd, fd.ops.reshape(t, [b * s])) for t in (m, r))
    w = f32(fd, w)
    xh = (x - m) * r
    g = dy * w
    dx = r * (g - fd.ops.mean(g, [1], keepdim=True) - xh * fd.ops.mean(g * xh, [1], keepdim=True))
    return bf16(fd, fd.ops.reshape(dx, [b, s, h]), fd.ops.sum(dy * xh, [0]), fd.ops.sum(dy, [0]))


@layer_norm_backward_3d.way("transposed sums")
def _(fd, *t):
    return lnb3(fd, *t, over=lambda v: fd.ops.sum(fd.ops.permute(v, [2, 0, 1]), [1, 2]))


ROW_GRADIENTS = (layer_norm_backward, layer_norm_recomputed, rms_norm_backward, layer_norm_backward_3d)
