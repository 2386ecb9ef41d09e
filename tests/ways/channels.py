"""Normalizations over the positions of channels or of groups of them, and their gradients."""

from __future__ import annotations

import torch

from tests.ways.computation import BF16, Computation, statistics_over
from tests.ways.rows import EPS, bf16, f32

SIZES = ({"n": 32, "c": 256, "h": 56, "w": 56}, {"n": 16, "c": 64, "h": 28, "w": 28})
SMALL = {"n": 2, "c": 6, "h": 3, "w": 4}
GROUPS = 32
GSIZES = ({"n": 32, "c": 256, "h": 16, "w": 16, "g": 32}, {"n": 16, "c": 64, "h": 28, "w": 28, "g": 32})
ODD_GROUPS = {"n": 256, "c": 96, "h": 7, "w": 7, "g": 32}
GSMALL = {"n": 2, "c": 64, "h": 3, "w": 4, "g": 32}
X = ("nchw", torch.bfloat16)
W = ("c", torch.float32)


def per_channel(fd, t):
    return fd.ops.broadcast(t, [True, False, True, True])


def over_positions(t):
    return t[None, :, None, None]


def count(fd, x, dims):
    n = fd.ops.size(x, dims[0])
    for d in dims[1:]:
        n = n * fd.ops.size(x, d)
    return n


def bn_ref(x, w, b):
    m = x.mean((0, 2, 3))
    s = (x.var((0, 2, 3), correction=0) + EPS).rsqrt()
    return [(x - over_positions(m)) * over_positions(s) * over_positions(w) + over_positions(b), m, s]


batch_norm = Computation("batch_norm", (X, W, W), bn_ref, SIZES, 1, SMALL)


def bn_end(fd, x, m, s, w, b):
    return [
        *bf16(
            fd,
            (f32(fd, x) - per_channel(fd, m)) * per_channel(fd, s) * per_channel(fd, w) + per_channel(fd, b),
        ),
        m,
        s,
    ]


@batch_norm.way("composite")
def _(fd, x, w, b):
    return list(fd.ops.batch_norm(x, w, b, None, None, fd.define_scalar(0.1), fd.define_scalar(EPS), True))


@batch_norm.way("var mean")
def _(fd, x, w, b):
    v, m = fd.ops.var_mean(f32(fd, x), [0, 2, 3], correction=0)
    return bn_end(fd, x, m, fd.ops.rsqrt(v + EPS), w, b)


@batch_norm.way("var mean in dim")
def _(fd, x, w, b):
    shape = fd.ops.shape(x)
    x32 = f32(fd, x)
    v, m = fd.ops.var_mean(x32, [0, 2, 3], correction=0)
    s = fd.ops.rsqrt(v + EPS)

    def i(t):
        return fd.ops.broadcast_in_dim(t, shape=shape, broadcast_dims=[1])

    y = (x32 - i(m)) * i(s) * i(w) + i(b)
    return [*bf16(fd, y), m, s]


@batch_norm.way("sums in turn")
def _(fd, x, w, b):
    x32 = f32(fd, x)
    n = count(fd, x, (0, 2, 3))

    def turn(t):
        return fd.ops.sum(fd.ops.sum(fd.ops.sum(t, [3]), [2]), [0])

    m = turn(x32) / n
    d = x32 - per_channel(fd, m)
    v = turn(d * d) / n
    return bn_end(fd, x, m, 1.0 / fd.ops.sqrt(v + EPS), w, b)


@batch_norm.way("of squares")
def _(fd, x, w, b):
    x32 = f32(fd, x)
    m = fd.ops.mean(x32, [0, 2, 3])
    v = fd.ops.mean(x32 * x32, [0, 2, 3]) - m * m
    return bn_end(fd, x, m, fd.ops.rsqrt(v + EPS), w, b)


@batch_norm.way("deviations")
def _(fd, x, w, b):
    x32 = f32(fd, x)
    m = fd.ops.mean(x32, [0, 2, 3])
    d = x32 - per_channel(fd, m)
    v = fd.ops.mean(d * d, [0, 2, 3])
    return bn_end(fd, x, m, fd.ops.rsqrt(v + EPS), w, b)


@batch_norm.way("flat")
def _(fd, x, w, b):
    n, c, h, k = (fd.ops.size(x, i) for i in range(4))
    f = fd.ops.reshape(f32(fd, x), [n, c, h * k])
    v, m = fd.ops.var_mean(f, [0, 2], correction=0, keepdim=True)
    s = fd.ops.rsqrt(v + EPS)
    y = (f - m) * s * fd.ops.broadcast(w, [True, False, True]) + fd.ops.broadcast(b, [True, False, True])
    return [
        fd.ops.cast(fd.ops.reshape(y, [n, c, h, k]), BF16),
        fd.ops.squeeze(m, [0, 2]),
        fd.ops.squeeze(s, [0, 2]),
    ]


@batch_norm.way("channels last")
def _(fd, x, w, b):
    f = fd.ops.permute(f32(fd, x), [0, 2, 3, 1])
    v, m = fd.ops.var_mean(f, [0, 1, 2], correction=0)
    s = fd.ops.rsqrt(v + EPS)
    y = (f - m) * s * w + b
    return [fd.ops.cast(fd.ops.permute(y, [0, 3, 1, 2]), BF16), m, s]


@batch_norm.way("scale and shift")
def _(fd, x, w, b):
    v, m = fd.ops.var_mean(f32(fd, x), [0, 2, 3], correction=0)
    s = fd.ops.rsqrt(v + EPS)
    a = s * w
    return [*bf16(fd, f32(fd, x) * per_channel(fd, a) + per_channel(fd, b - m * a)), m, s]


def bnb_ref(dy, x, m, s, w):
    n = x.numel() / x.shape[1]
    xh = (x - over_positions(m)) * over_positions(s)
    dw = (dy * xh).sum((0, 2, 3))
    db = dy.sum((0, 2, 3))
    return [over_positions(s * w) * (dy - over_positions(db / n) - xh * over_positions(dw / n)), dw, db]


batch_norm_backward = Computation(
    "batch_norm_backward", (X, X, W, W, W), bnb_ref, SIZES, 2, SMALL, statistics_over([0, 2, 3])
)


@batch_norm_backward.way("aten")
def _(fd, dy, x, m, s, w):
    norm = 1.0 / count(fd, x, (0, 2, 3))
    dy, x = f32(fd, dy, x)
    gsum = fd.ops.sum(dy, [0, 2, 3])
    dot = fd.ops.sum(dy * (x - per_channel(fd, m)), [0, 2, 3])
    gm = per_channel(fd, gsum * norm)
    proj = per_channel(fd, dot * norm * (s * s))
    scale = per_channel(fd, s * w)
    dx = ((dy - (x - per_channel(fd, m)) * proj) - gm) * scale
    return [*bf16(fd, dx), dot * s, gsum]


@batch_norm_backward.way("textbook")
def _(fd, dy, x, m, s, w):
    n = count(fd, x, (0, 2, 3))
    dy, x = f32(fd, dy, x)
    xh = (x - per_channel(fd, m)) * per_channel(fd, s)
    dw = fd.ops.sum(dy * xh, [0, 2, 3])
    db = fd.ops.sum(dy, [0, 2, 3])
    g = dy * per_channel(fd, w)
    a = fd.ops.sum(g, [0, 2, 3], keepdim=True)
    b = fd.ops.sum(g * xh, [0, 2, 3], keepdim=True)
    dx = per_channel(fd, s) * (g - a / n - xh * b / n)
    return [*bf16(fd, dx), dw, db]


@batch_norm_backward.way("weights reused")
def _(fd, dy, x, m, s, w):
    n = count(fd, x, (0, 2, 3))
    xh = (f32(fd, x) - per_channel(fd, m)) * per_channel(fd, s)
    dw = fd.ops.sum(f32(fd, dy) * xh, [0, 2, 3])
    db = fd.ops.sum(f32(fd, dy), [0, 2, 3])
    dx = per_channel(fd, s * w) * (f32(fd, dy) - per_channel(fd, db / n) - xh * per_channel(fd, dw / n))
    return [*bf16(fd, dx), dw, db]


@batch_norm_backward.way("chain rule")
def _(fd, dy, x, m, s, w):
    n = count(fd, x, (0, 2, 3))
    dy, x = f32(fd, dy, x)
    d = x - per_channel(fd, m)
    g = dy * per_channel(fd, w)
    dvar = fd.ops.sum(g * d, [0, 2, 3]) * -0.5 * fd.ops.pow(s, 3.0)
    dmean = fd.ops.neg(fd.ops.sum(g * per_channel(fd, s), [0, 2, 3]))
    dx = g * per_channel(fd, s) + per_channel(fd, dvar * 2.0 / n) * d + per_channel(fd, dmean / n)
    dw = fd.ops.sum(dy * d * per_channel(fd, s), [0, 2, 3])
    return [*bf16(fd, dx), dw, fd.ops.sum(dy, [0, 2, 3])]


@batch_norm_backward.way("chain rule mean")
def _(fd, dy, x, m, s, w):
    n = count(fd, x, (0, 2, 3))
    dy, x = f32(fd, dy, x)
    d = x - per_channel(fd, m)
    g = dy * per_channel(fd, w)
    dvar = fd.ops.sum(g * d, [0, 2, 3]) * -0.5 * fd.ops.pow(s, 3.0)
    dmean = (
        fd.ops.sum(g * per_channel(fd, fd.ops.neg(s)), [0, 2, 3]) + dvar * fd.ops.sum(d * -2.0, [0, 2, 3]) / n
    )
    dx = g * per_channel(fd, s) + per_channel(fd, dvar) * d * 2.0 / n + per_channel(fd, dmean) / n
    dw = fd.ops.sum(dy * d * per_channel(fd, s), [0, 2, 3])
    return [*bf16(fd, dx), dw, fd.ops.sum(dy, [0, 2, 3])]


@batch_norm_backward.way("sums in turn")
def _(fd, dy, x, m, s, w):
    n = count(fd, x, (0, 2, 3))

    def turn(t):
        return fd.ops.sum(fd.ops.sum(fd.ops.sum(t, [0]), [1]), [1])

    dy, x = f32(fd, dy, x)
    xh = (x - per_channel(fd, m)) * per_channel(fd, s)
    dw, db = turn(dy * xh), turn(dy)
    dx = per_channel(fd, s * w) * (dy - per_channel(fd, db / n) - xh * per_channel(fd, dw / n))
    return [*bf16(fd, dx), dw, db]


@batch_norm_backward.way("flat")
def _(fd, dy, x, m, s, w):
    n, c, h, k = (fd.ops.size(x, i) for i in range(4))
    fx, fdy = (fd.ops.reshape(f32(fd, t), [n, c, h * k]) for t in (x, dy))

    def wd(t):
        return fd.ops.broadcast(t, [True, False, True])

    xh = (fx - wd(m)) * wd(s)
    dw, db = fd.ops.sum(fdy * xh, [0, 2]), fd.ops.sum(fdy, [0, 2])
    dx = wd(s * w) * (fdy - wd(db / (n * h * k)) - xh * wd(dw / (n * h * k)))
    return [fd.ops.cast(fd.ops.reshape(dx, [n, c, h, k]), BF16), dw, db]


# ---- instance norm
def per_image(fd, t):
    return fd.ops.broadcast(t, [False, False, True, True])


S = ("nc", torch.float32)


def in_ref(x, w, b):
    m = x.mean((2, 3))
    s = (x.var((2, 3), correction=0) + EPS).rsqrt()
    return [(x - m[..., None, None]) * s[..., None, None] * over_positions(w) + over_positions(b), m, s]


instance_norm = Computation("instance_norm", (X, W, W), in_ref, SIZES, 1, SMALL)


@instance_norm.way("composite")
def _(fd, x, w, b):
    return list(fd.ops.instance_norm(x, w, b, EPS))


@instance_norm.way("var mean")
def _(fd, x, w, b):
    x32 = f32(fd, x)
    v, m = fd.ops.var_mean(x32, [2, 3], correction=0)
    s = fd.ops.rsqrt(v + EPS)
    return [
        *bf16(fd, (x32 - per_image(fd, m)) * per_image(fd, s) * per_channel(fd, w) + per_channel(fd, b)),
        m,
        s,
    ]


@instance_norm.way("as batch norm")
def _(fd, x, w, b):
    n, c, h, k = (fd.ops.size(x, i) for i in range(4))
    f = fd.ops.reshape(f32(fd, x), [n * c, h * k])
    v, m = fd.ops.var_mean(f, [1], correction=0, keepdim=True)
    s = fd.ops.rsqrt(v + EPS)
    y = fd.ops.reshape((f - m) * s, [n, c, h, k])
    return [
        *bf16(fd, y * per_channel(fd, w) + per_channel(fd, b)),
        fd.ops.reshape(m, [n, c]),
        fd.ops.reshape(s, [n, c]),
    ]


@instance_norm.way("as batch norm expanded")
def _(fd, x, w, b):
    n, c, h, k = (fd.ops.size(x, i) for i in range(4))
    f = fd.ops.reshape(f32(fd, x), [n * c, h * k])
    v, m = fd.ops.var_mean(f, [1], correction=0, keepdim=True)
    s = fd.ops.rsqrt(v + EPS)

    def ex(t):
        return fd.ops.reshape(fd.ops.broadcast_in_dim(t, shape=[n, c], broadcast_dims=[1]), [n * c, 1])

    y = fd.ops.reshape((f - m) * s * ex(w) + ex(b), [n, c, h, k])
    return [*bf16(fd, y), fd.ops.reshape(m, [n, c]), fd.ops.reshape(s, [n, c])]


@instance_norm.way("deviations")
def _(fd, x, w, b):
    x32 = f32(fd, x)
    m = fd.ops.mean(x32, [2, 3])
    d = x32 - per_image(fd, m)
    s = fd.ops.rsqrt(fd.ops.mean(d * d, [2, 3]) + EPS)
    return [*bf16(fd, d * per_image(fd, s) * per_channel(fd, w) + per_channel(fd, b)), m, s]


@instance_norm.way("sums in turn")
def _(fd, x, w, b):
    n = count(fd, x, (2, 3))
    x32 = f32(fd, x)
    m = fd.ops.sum(fd.ops.sum(x32, [3]), [2]) / n
    d = x32 - per_image(fd, m)
    s = fd.ops.rsqrt(fd.ops.sum(fd.ops.sum(d * d, [2]), [2]) / n + EPS)
    return [*bf16(fd, d * per_image(fd, s) * per_channel(fd, w) + per_channel(fd, b)), m, s]


def inb_ref(dy, x, m, s, w):
    def q(t):
        return t[..., None, None]

    xh = (x - q(m)) * q(s)
    g = dy * over_positions(w)
    dx = q(s) * (g - g.mean((2, 3), keepdim=True) - xh * (g * xh).mean((2, 3), keepdim=True))
    return [dx, (dy * xh).sum((0, 2, 3)), dy.sum((0, 2, 3))]


# Of the gradients of weight and bias each is a kernel that sums what images have; both are one launch.
instance_norm_backward = Computation(
    "instance_norm_backward", (X, X, S, S, W), inb_ref, SIZES, 3, SMALL, statistics_over([2, 3])
)


@instance_norm_backward.way("textbook")
def _(fd, dy, x, m, s, w):
    dy, x = f32(fd, dy, x)
    xh = (x - per_image(fd, m)) * per_image(fd, s)
    g = dy * per_channel(fd, w)
    dx = per_image(fd, s) * (
        g - fd.ops.mean(g, [2, 3], keepdim=True) - xh * fd.ops.mean(g * xh, [2, 3], keepdim=True)
    )
    return [*bf16(fd, dx), fd.ops.sum(dy * xh, [0, 2, 3]), fd.ops.sum(dy, [0, 2, 3])]


@instance_norm_backward.way("sums in turn")
def _(fd, dy, x, m, s, w):
    size = count(fd, x, (2, 3))
    dy, x = f32(fd, dy, x)
    xh = (x - per_image(fd, m)) * per_image(fd, s)
    dw, db = (fd.ops.sum(fd.ops.sum(fd.ops.sum(t, [3]), [2]), [0]) for t in (dy * xh, dy))
    g = dy * per_channel(fd, w)
    a, b = (per_image(fd, fd.ops.sum(fd.ops.sum(t, [3]), [2])) for t in (g, g * xh))
    return [*bf16(fd, per_image(fd, s) / size * (g * size - a - xh * b)), dw, db]


@instance_norm_backward.way("flat")
def _(fd, dy, x, m, s, w):
    n, c, h, k = (fd.ops.size(x, i) for i in range(4))
    fdy, fx = (f32(fd, fd.ops.reshape(t, [n, c, h * k])) for t in (dy, x))
    xh = (fx - fd.ops.broadcast(m, [False, False, True])) * fd.ops.broadcast(s, [False, False, True])
    g = fdy * fd.ops.broadcast(w, [True, False, True])
    a, b = (fd.ops.mean(t, [2], keepdim=True) for t in (g, g * xh))
    dx = fd.ops.reshape((g - a - xh * b) * fd.ops.broadcast(s, [False, False, True]), [n, c, h, k])
    return [*bf16(fd, dx), fd.ops.sum(fdy * xh, [0, 2]), fd.ops.sum(fdy, [0, 2])]


# ---- group norm
SG = ("ng", torch.float32)


def grouped(x):
    return x.reshape(x.shape[0], GROUPS, x.shape[1] // GROUPS, *x.shape[2:])


def over_group(t):
    return t[..., None, None, None]


def gn_ref(x, w, b):
    f = grouped(x)
    m = f.mean((2, 3, 4))
    s = (f.var((2, 3, 4), correction=0) + EPS).rsqrt()
    y = ((f - over_group(m)) * over_group(s)).reshape(x.shape)
    return [y * over_positions(w) + over_positions(b), m, s]


group_norm = Computation("group_norm", (X, W, W), gn_ref, (*GSIZES, ODD_GROUPS), 1, GSMALL)


@group_norm.way("composite")
def _(fd, x, w, b):
    return list(fd.ops.group_norm(x, GROUPS, w, b, EPS))


def dims(fd, x):
    n, c, h, k = (fd.ops.size(x, i) for i in range(4))
    return n, c, h, k, fd.ops.div(c, GROUPS)


@group_norm.way("aten")
def _(fd, x, w, b):
    n, c, h, k, members = dims(fd, x)
    f = fd.ops.reshape(f32(fd, x), [n, GROUPS, members * (h * k)])
    v, m = fd.ops.var_mean(f, [2], correction=0, keepdim=True)
    s = fd.ops.rsqrt(v + EPS)
    y = fd.ops.reshape((f - m) * s, [n, c, h, k]) * per_channel(fd, w) + per_channel(fd, b)
    return [*bf16(fd, y), fd.ops.squeeze(m, [2]), fd.ops.squeeze(s, [2])]


@group_norm.way("five dims")
def _(fd, x, w, b):
    n, c, h, k, members = dims(fd, x)
    f = f32(fd, fd.ops.reshape(x, [n, GROUPS, members, h, k]))
    m = fd.ops.mean(f, [2, 3, 4], keepdim=True)
    d = f - m
    s = fd.ops.rsqrt(fd.ops.mean(d * d, [2, 3, 4], keepdim=True) + EPS)

    def ex(t):
        return fd.ops.broadcast(fd.ops.reshape(t, [GROUPS, members]), [True, False, False, True, True])

    y = fd.ops.reshape(d * s * ex(w) + ex(b), [n, c, h, k])
    return [*bf16(fd, y), fd.ops.squeeze(m, [2, 3, 4]), fd.ops.squeeze(s, [2, 3, 4])]


@group_norm.way("scale and shift")
def _(fd, x, w, b):
    n, c, h, k, members = dims(fd, x)
    f = fd.ops.reshape(f32(fd, x), [n, GROUPS, members, h * k])
    v, m = fd.ops.var_mean(f, [2, 3], correction=0)
    s = fd.ops.rsqrt(v + EPS)

    def one(t):
        return fd.ops.broadcast(t, [False, False, True])

    wg, bg = (fd.ops.broadcast(fd.ops.reshape(t, [GROUPS, members]), [True, False, False]) for t in (w, b))
    a = one(s) * wg
    o = bg - one(m) * a
    y = f * fd.ops.broadcast(a, [False] * 3 + [True]) + fd.ops.broadcast(o, [False] * 3 + [True])
    return [*bf16(fd, fd.ops.reshape(y, [n, c, h, k])), m, s]


@group_norm.way("scale and shift of channels")
def _(fd, x, w, b):
    """As torch itself decomposes it."""
    n, c, h, k, members = dims(fd, x)
    wide = f32(fd, x)
    v, m = fd.ops.var_mean(
        fd.ops.reshape(wide, [n, GROUPS, members, h * k]), [2, 3], correction=0, keepdim=True
    )
    s = fd.ops.rsqrt(v + EPS)
    wg, bg = (fd.ops.reshape(t, [1, GROUPS, members, 1]) for t in (w, b))
    a = s * wg
    o = -m * a + bg
    a, o = (fd.ops.broadcast(fd.ops.reshape(t, [n, c]), [False, False, True, True]) for t in (a, o))
    return [*bf16(fd, wide * a + o), fd.ops.squeeze(m, [2, 3]), fd.ops.squeeze(s, [2, 3])]


def gnb_ref(dy, x, m, s, w):
    f = grouped(x)
    fy = grouped(dy)
    fw = w.reshape(1, GROUPS, -1, 1, 1)
    xh = (f - over_group(m)) * over_group(s)
    g = fy * fw
    dx = over_group(s) * (g - g.mean((2, 3, 4), keepdim=True) - xh * (g * xh).mean((2, 3, 4), keepdim=True))
    return [dx.reshape(x.shape), (fy * xh).sum((0, 3, 4)).reshape(-1), dy.sum((0, 2, 3))]


group_norm_backward = Computation(
    "group_norm_backward", (X, X, SG, SG, W), gnb_ref, GSIZES, 2, GSMALL, statistics_over([2, 3, 4], grouped)
)


def per_group(fd, t):
    return fd.ops.broadcast(t, [False, False, True, True, True])


@group_norm_backward.way("textbook")
def _(fd, dy, x, m, s, w):
    n, c, h, k, members = dims(fd, x)
    f, fy = (f32(fd, fd.ops.reshape(t, [n, GROUPS, members, h, k])) for t in (x, dy))
    fw = fd.ops.broadcast(fd.ops.reshape(w, [GROUPS, members]), [True, False, False, True, True])
    xh = (f - per_group(fd, m)) * per_group(fd, s)
    g = fy * fw
    a, b = fd.ops.mean(g, [2, 3, 4], keepdim=True), fd.ops.mean(g * xh, [2, 3, 4], keepdim=True)
    dx = per_group(fd, s) * (g - a - xh * b)
    dw, db = fd.ops.sum(fy * xh, [0, 3, 4]), fd.ops.sum(fy, [0, 3, 4])
    return [*bf16(fd, fd.ops.reshape(dx, [n, c, h, k])), fd.ops.reshape(dw, [c]), fd.ops.reshape(db, [c])]


@group_norm_backward.way("over channels")
def _(fd, dy, x, m, s, w):
    n, c, h, k, members = dims(fd, x)

    def ex(t):
        return fd.ops.broadcast(
            fd.ops.reshape(
                fd.ops.broadcast_in_dim(t, shape=[n, GROUPS, members], broadcast_dims=[0, 1]), [n, c]
            ),
            [False, False, True, True],
        )

    x, dy = f32(fd, x, dy)
    xh = (x - ex(m)) * ex(s)
    g = dy * per_channel(fd, w)

    def av(t):
        return fd.ops.mean(fd.ops.reshape(t, [n, GROUPS, members * (h * k)]), [2])

    dx = ex(s) * (g - ex(av(g)) - xh * ex(av(g * xh)))
    return [*bf16(fd, dx), fd.ops.sum(dy * xh, [0, 2, 3]), fd.ops.sum(dy, [0, 2, 3])]


CHANNELS = (
    batch_norm,
    batch_norm_backward,
    instance_norm,
    instance_norm_backward,
    group_norm,
    group_norm_backward,
)
