"""Normalizations over rows, and the gradients of those without parameters."""

from __future__ import annotations

import torch

from tests.ways.computation import BF16, FLOAT, Computation

SIZES = ({"n": 16384, "h": 1024}, {"n": 4096, "h": 4096}, {"n": 64, "h": 32768})
SMALL = {"n": 6, "h": 40}
EPS = 1e-5
X = ("nh", torch.bfloat16)
W = ("h", torch.bfloat16)
S = ("n", torch.float32)
LOG2E = 1.4426950408889634


def bf16(fd, *ts):
    return [fd.ops.cast(t, dtype=BF16) for t in ts]


def f32(fd, *ts):
    r = [fd.ops.cast(t, dtype=FLOAT) for t in ts]
    return r if len(r) > 1 else r[0]


def per_row(fd, t):
    return fd.ops.broadcast(t, [False, True])


def per_column(fd, t):
    return fd.ops.broadcast(t, [True, False])


softmax = Computation("softmax", (X,), lambda x: [x.softmax(1)], SIZES, 1, SMALL)


@softmax.way("composite")
def _(fd, x):
    return [fd.ops.softmax(x, 1)]


@softmax.way("kept")
def _(fd, x):
    x = f32(fd, x)
    e = fd.ops.exp(x - fd.ops.max(x, 1, keepdim=True))
    return bf16(fd, e / fd.ops.sum(e, 1, keepdim=True))


@softmax.way("recip")
def _(fd, x):
    x = f32(fd, x)
    e = fd.ops.exp(x - fd.ops.max(x, 1, keepdim=True))
    return bf16(fd, e * fd.ops.reciprocal(fd.ops.sum(e, 1, keepdim=True)))


@softmax.way("each cast")
def _(fd, x):
    m = fd.ops.max(x, 1)
    d = f32(fd, x) - per_row(fd, f32(fd, m))
    s = fd.ops.sum(fd.ops.exp(d), [1])
    return bf16(fd, fd.ops.exp(f32(fd, x) - per_row(fd, f32(fd, m))) / per_row(fd, s))


@softmax.way("in dim")
def _(fd, x):
    x32 = f32(fd, x)
    shape = fd.ops.shape(x)
    m = fd.ops.broadcast_in_dim(fd.ops.max(x32, 1), shape=shape, broadcast_dims=[0])
    e = fd.ops.exp(x32 - m)
    s = fd.ops.broadcast_in_dim(fd.ops.sum(e, 1), shape=shape, broadcast_dims=[0])
    return bf16(fd, e / s)


@softmax.way("by exp2")
def _(fd, x):
    x = f32(fd, x)
    m = fd.ops.max(x, 1, keepdim=True)
    e = fd.ops.exp2(x * LOG2E - m * LOG2E)
    return bf16(fd, e / fd.ops.sum(e, 1, keepdim=True))


@softmax.way("of log")
def _(fd, x):
    x = f32(fd, x)
    m = fd.ops.max(x, 1, keepdim=True)
    s = fd.ops.sum(fd.ops.exp(x - m), 1, keepdim=True)
    return bf16(fd, fd.ops.exp(x - m - fd.ops.log(s)))


@softmax.way("of logsumexp")
def _(fd, x):
    x = f32(fd, x)
    return bf16(fd, fd.ops.exp(x - fd.ops.logsumexp(x, [1], keepdim=True)))


log_softmax = Computation("log_softmax", (X,), lambda x: [x.log_softmax(1)], SIZES, 1, SMALL)


@log_softmax.way("composite")
def _(fd, x):
    return [fd.ops.log_softmax(x, 1)]


@log_softmax.way("each cast")
def _(fd, x):
    m = per_row(fd, f32(fd, fd.ops.max(x, 1)))
    s = fd.ops.sum(fd.ops.exp(f32(fd, x) - m), [1])
    return bf16(fd, f32(fd, x) - (m + per_row(fd, fd.ops.log(s))))


@log_softmax.way("of logsumexp")
def _(fd, x):
    return bf16(fd, f32(fd, x) - fd.ops.logsumexp(f32(fd, x), [1], keepdim=True))


@log_softmax.way("of softmax")
def _(fd, x):
    x = f32(fd, x)
    e = fd.ops.exp(x - fd.ops.max(x, 1, keepdim=True))
    return bf16(fd, fd.ops.log(e / fd.ops.sum(e, 1, keepdim=True)))


softmax_backward = Computation(
    "softmax_backward", (X, X), lambda dy, y: [y * (dy - (dy * y).sum(1, keepdim=True))], SIZES, 1, SMALL
)


@softmax_backward.way("aten")
def _(fd, dy, y):
    dy, y = f32(fd, dy, y)
    g = dy * y
    return bf16(fd, g - y * fd.ops.sum(g, [1], keepdim=True))


@softmax_backward.way("textbook")
def _(fd, dy, y):
    s = fd.ops.sum(f32(fd, dy) * f32(fd, y), [1])
    return bf16(fd, f32(fd, y) * (f32(fd, dy) - per_row(fd, s)))


@softmax_backward.way("in dim")
def _(fd, dy, y):
    shape = fd.ops.shape(y)
    s = fd.ops.sum(dy * y, [1])
    return bf16(fd, (dy - fd.ops.broadcast_in_dim(s, shape=shape, broadcast_dims=[0])) * y)


log_softmax_backward = Computation(
    "log_softmax_backward", (X, X), lambda dy, y: [dy - y.exp() * dy.sum(1, keepdim=True)], SIZES, 1, SMALL
)


@log_softmax_backward.way("aten")
def _(fd, dy, y):
    dy, y = f32(fd, dy, y)
    return bf16(fd, dy - fd.ops.exp(y) * fd.ops.sum(dy, [1], keepdim=True))


@log_softmax_backward.way("each")
def _(fd, dy, y):
    s = f32(fd, fd.ops.sum(f32(fd, dy), [1]))
    return bf16(fd, f32(fd, dy) - per_row(fd, s) * fd.ops.exp(f32(fd, y)))


def ln_ref(x, w, b):
    m = x.mean(1)
    v = x.var(1, correction=0)
    r = (v + EPS).rsqrt()
    return [(x - m[:, None]) * r[:, None] * w + b, m, r]


layer_norm = Computation("layer_norm", (X, W, W), ln_ref, SIZES, 1, SMALL)


@layer_norm.way("composite")
def _(fd, x, w, b):
    y, m, r = fd.ops.layer_norm(x, 1, w, b, EPS)
    return [y, fd.ops.squeeze(m, [1]), fd.ops.squeeze(r, [1])]


def ln_end(fd, x, m, r, w, b):
    return [
        *bf16(
            fd,
            (f32(fd, x) - per_row(fd, m)) * per_row(fd, r) * per_column(fd, f32(fd, w))
            + per_column(fd, f32(fd, b)),
        ),
        m,
        r,
    ]


@layer_norm.way("var mean")
def _(fd, x, w, b):
    v, m = fd.ops.var_mean(f32(fd, x), [1], correction=0)
    return ln_end(fd, x, m, fd.ops.rsqrt(v + EPS), w, b)


@layer_norm.way("var mean in dim")
def _(fd, x, w, b):
    shape = fd.ops.shape(x)
    x32 = f32(fd, x)
    v, m = fd.ops.var_mean(x32, [1], correction=0)
    v1 = fd.ops.broadcast_in_dim(v, shape=[fd.ops.size(x, 0), 1], broadcast_dims=[0])
    m1 = fd.ops.broadcast_in_dim(m, shape=[fd.ops.size(x, 0), 1], broadcast_dims=[0])
    r = fd.ops.rsqrt(v1 + EPS)
    mb = fd.ops.broadcast_in_dim(m1, shape=shape, broadcast_dims=[0, 1])
    rb = fd.ops.broadcast_in_dim(r, shape=shape, broadcast_dims=[0, 1])
    wb = f32(fd, fd.ops.broadcast_in_dim(w, shape=shape, broadcast_dims=[1]))
    bb = f32(fd, fd.ops.broadcast_in_dim(b, shape=shape, broadcast_dims=[1]))
    y = (x32 - mb) * rb * wb + bb
    return [*bf16(fd, y), fd.ops.squeeze(m1, [1]), fd.ops.squeeze(r, [1])]


@layer_norm.way("var and mean")
def _(fd, x, w, b):
    x32 = f32(fd, x)
    v = fd.ops.var(x32, [1], correction=0)
    m = fd.ops.mean(x32, [1])
    return ln_end(fd, x, m, fd.ops.reciprocal(fd.ops.sqrt(v + EPS)), w, b)


@layer_norm.way("welford")
def _(fd, x, w, b):
    m, m2, n = fd.ops.welford(f32(fd, x), [1])
    return ln_end(fd, x, m, fd.ops.rsqrt(m2 / n + EPS), w, b)


@layer_norm.way("deviations")
def _(fd, x, w, b):
    x32 = f32(fd, x)
    m = fd.ops.mean(x32, [1])
    d = x32 - per_row(fd, m)
    v = fd.ops.mean(d * d, [1])
    r = fd.ops.rsqrt(v + EPS)
    return [*bf16(fd, d * per_row(fd, r) * f32(fd, w) + f32(fd, b)), m, r]


@layer_norm.way("deviations each")
def _(fd, x, w, b):
    n = fd.ops.size(x, 1)
    m = fd.ops.sum(f32(fd, x), [1]) / n
    v = fd.ops.sum(fd.ops.pow(f32(fd, x) - per_row(fd, m), 2.0), [1]) / n
    return ln_end(fd, x, m, fd.ops.pow(v + EPS, -0.5), w, b)


@layer_norm.way("of squares")
def _(fd, x, w, b):
    x32 = f32(fd, x)
    m = fd.ops.mean(x32, [1])
    v = fd.ops.mean(x32 * x32, [1]) - m * m
    return ln_end(fd, x, m, 1.0 / fd.ops.sqrt(v + EPS), w, b)


@layer_norm.way("by std")
def _(fd, x, w, b):
    x32 = f32(fd, x)
    m = fd.ops.mean(x32, [1])
    s = fd.ops.sqrt(fd.ops.var(x32, [1], correction=0) + EPS)
    return [
        *bf16(fd, (x32 - per_row(fd, m)) / per_row(fd, s) * f32(fd, w) + f32(fd, b)),
        m,
        fd.ops.reciprocal(s),
    ]


def rms_ref(x, w):
    r = ((x * x).mean(1) + EPS).rsqrt()
    return [x * r[:, None] * w, r]


rms_norm = Computation("rms_norm", (X, W), rms_ref, SIZES, 1, SMALL)


@rms_norm.way("composite")
def _(fd, x, w):
    y, r = fd.ops.rms_norm(x, 1, w, EPS)
    return [y, fd.ops.squeeze(r, [1])]


@rms_norm.way("each")
def _(fd, x, w):
    v = fd.ops.mean(fd.ops.pow(f32(fd, x), 2), [1])
    r = fd.ops.rsqrt(v + EPS)
    return [*bf16(fd, f32(fd, x) * per_row(fd, r) * f32(fd, w)), r]


@rms_norm.way("divided")
def _(fd, x, w):
    x32 = f32(fd, x)
    s = fd.ops.sqrt(fd.ops.sum(x32 * x32, [1], keepdim=True) / fd.ops.size(x, 1) + EPS)
    return [*bf16(fd, x32 / s * f32(fd, w)), fd.ops.squeeze(1.0 / s, [1])]


@rms_norm.way("rounded first")
def _(fd, x, w):
    shape = fd.ops.shape(x)
    x32 = f32(fd, x)
    r = fd.ops.pow(fd.ops.mean(x32 * x32, [1], keepdim=True) + EPS, -0.5)
    wb = fd.ops.broadcast_in_dim(w, shape=shape, broadcast_dims=[1])
    y = x32 * fd.ops.expand(r, shape)
    return [*bf16(fd, f32(fd, wb) * y), fd.ops.squeeze(r, [1])]


MASK = ("nh", torch.bool)
dropped_softmax = Computation(
    "softmax_dropout", (X, MASK), lambda x, k: [x.softmax(1) * k * 2, x.softmax(1)], SIZES, 1, SMALL
)


@dropped_softmax.way("where")
def _(fd, x, k):
    y = fd.ops.softmax(f32(fd, x), 1)
    return bf16(fd, fd.ops.where(k, y * 2.0, 0.0), y)


@dropped_softmax.way("product")
def _(fd, x, k):
    y = fd.ops.softmax(x, 1)
    return [*bf16(fd, y * f32(fd, k) * 2.0), y]


@dropped_softmax.way("scaled mask")
def _(fd, x, k):
    x = f32(fd, x)
    e = fd.ops.exp(x - fd.ops.max(x, 1, keepdim=True))
    r = fd.ops.reciprocal(fd.ops.sum(e, [1], keepdim=True))
    return bf16(fd, fd.ops.where(k, e, fd.ops.zeros_like(e)) * (r * 2.0), e * r)


def ldn_ref(x, k, res, w, b):
    h = x * k * 2 + res
    y, _m, _r = ln_ref(h, w, b)
    return [y, h]


norm_after_dropout = Computation("layer_norm_dropout_add", (X, MASK, X, W, W), ldn_ref, SIZES, 1, SMALL)


def var_of(fd, h):
    v, m = fd.ops.var_mean(h, [1], correction=0, keepdim=True)
    return m, fd.ops.rsqrt(v + EPS)


@norm_after_dropout.way("where")
def _(fd, x, k, res, w, b):
    h = fd.ops.where(k, f32(fd, x) * 2.0, 0.0) + f32(fd, res)
    m, r = var_of(fd, h)
    return bf16(fd, (h - m) * r * f32(fd, w) + f32(fd, b), h)


@norm_after_dropout.way("composite of the rounded sum")
def _(fd, x, k, res, w, b):
    h = f32(fd, x) * f32(fd, k) * 2.0 + f32(fd, res)
    return [*bf16(fd, fd.ops.layer_norm(h, 1, f32(fd, w), f32(fd, b), EPS)[0]), *bf16(fd, h)]


@norm_after_dropout.way("deviations")
def _(fd, x, k, res, w, b):
    h = f32(fd, x) * f32(fd, k) * 2.0 + f32(fd, res)
    d = h - fd.ops.mean(h, [1], keepdim=True)
    s = fd.ops.sqrt(fd.ops.sum(d * d, [1], keepdim=True) / fd.ops.size(x, 1) + EPS)
    return bf16(fd, d / s * f32(fd, w) + f32(fd, b), h)


ROWS = (
    softmax,
    log_softmax,
    softmax_backward,
    log_softmax_backward,
    layer_norm,
    rms_norm,
    dropped_softmax,
    norm_after_dropout,
)
