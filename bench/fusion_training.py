"""Rows of the catalogue from training loops: steps of optimizers, clipping, losses of several kinds."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from bench.fusion import MEDIUM, MakesInputs, alike, fusion
from bench.operation import Inputs, Operation, Shape, Tensors, wide

Tensor = torch.Tensor
#: Shapes of the parameters of a small block: what one step of an optimizer over a list gets.
MANY = (
    (3072, 768),
    (3072,),
    (768, 3072),
    (768,),
    (2304, 768),
    (2304,),
    (768, 768),
    (768,),
    (1000, 77),
    (17,),
)

# ---- optimizers --------------------------------------------------------------------------------------------


def adam_amsgrad(p: Tensor, g: Tensor, m: Tensor, v: Tensor, most: Tensor) -> tuple[Tensor, ...]:
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    most = torch.maximum(most, v)
    return m, v, most, p - 1e-3 * m / (most.sqrt() + 1e-8)


def adafactor(p: Tensor, g: Tensor, rows: Tensor, columns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    squares = g.square() + 1e-30
    rows = 0.999 * rows + 0.001 * squares.mean(-1)
    columns = 0.999 * columns + 0.001 * squares.mean(-2)
    factor = torch.rsqrt(rows / rows.mean())[:, None] * torch.rsqrt(columns)[None, :]
    return rows, columns, p - 1e-3 * g * factor


def factored(s: Shape, r: Inputs) -> Tensors:
    kept = (r(n, dtype=torch.float32).square() + 0.1 for n in s)
    return r(*s, dtype=torch.float32), r(*s, dtype=torch.float32), *kept


def lamb(p: Tensor, g: Tensor, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    update = m / (v.sqrt() + 1e-6) + 0.01 * p
    trust = p.norm() / update.norm()
    return m, v, p - 1e-3 * trust * update


def rmsprop(p: Tensor, g: Tensor, v: Tensor, average: Tensor, momentum: Tensor) -> tuple[Tensor, ...]:
    v = 0.99 * v + 0.01 * g * g
    average = average.lerp(g, 0.01)
    momentum = 0.9 * momentum + g / ((v - average.square()).clamp(min=0).sqrt() + 1e-5)
    return v, average, momentum, p - 1e-2 * momentum


def adagrad(p: Tensor, g: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
    total = total + g * g
    return total, p - 0.01 * g / (total.sqrt() + 1e-10)


def nesterov(p: Tensor, g: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
    g = wide(g) + 1e-4 * p
    m = 0.9 * m + g
    return m, (p - 0.1 * (g + 0.9 * m)).to(p.dtype)


def master_adam(
    p: Tensor, g: Tensor, m: Tensor, v: Tensor, scale: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Parameters of float with a copy of less digits, which the next pass uses; a scaled gradient."""
    g = wide(g) / scale
    m = torch.lerp(m, g, 0.1)
    v = torch.addcmul(0.95 * v, g, g, value=0.05)
    p = p * (1 - 1e-4) - 1e-3 * (m / 0.19) / ((v / 0.0975).sqrt() + 1e-8)
    return m, v, p, p.to(torch.bfloat16)


def floats(count: int) -> MakesInputs:
    """So many tensors of float; the last ones may serve as sums of squares."""
    return lambda s, r: tuple(r(*s, dtype=torch.float32).abs() for _ in range(count))


def masters(s: Shape, r: Inputs) -> Tensors:
    p, m, v = (r(*s, dtype=torch.float32) for _ in range(3))
    return p, r(*s), m, v.square(), torch.full((), 1024.0, device=p.device)


def stochastic(x: Tensor, noise: Tensor) -> Tensor:
    """To bfloat16, up or down by chance: noise is added to the bits that are dropped."""
    bits = x.to(torch.float32).view(torch.int32)
    return ((bits + (noise & 0xFFFF)) & -65536).view(torch.float32).to(torch.bfloat16)


def noisy(s: Shape, r: Inputs) -> Tensors:
    return r(*s, dtype=torch.float32), r.indices(1 << 31, *s).to(torch.int32)


def clipped_many(*grads: Tensor) -> Sequence[Tensor]:
    norm = torch.stack([wide(g).norm() for g in grads]).norm()
    factor = (1.0 / (norm + 1e-6)).clamp(max=1.0)
    return [(g * factor).to(g.dtype) for g in grads]


def averaged_many(*both: Tensor) -> Sequence[Tensor]:
    half = len(both) // 2
    return torch._foreach_lerp(both[:half], both[half:], 0.01)


def many(times: int) -> MakesInputs:
    """Tensors of `MANY`; the shape says how many times smaller they are."""
    return lambda s, r: tuple(r(*(max(1, n // s[0]) for n in shape)) for _ in range(times) for shape in MANY)


def unscaled(grad: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """And whether anything is not finite."""
    g = wide(grad) * (1 / scale)
    return g.to(grad.dtype), (~torch.isfinite(g)).any()


def perturbed(p: Tensor, g: Tensor) -> Tensor:
    """The first step of sharpness-aware minimization."""
    return p + g * (0.05 / (wide(g).norm() + 1e-12)).to(p.dtype)


def sign_compressed(g: Tensor, residual: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A sign a value, one size a row, and what is left for the next step."""
    total = wide(g) + residual
    size = total.abs().mean(-1, keepdim=True)
    sent = torch.where(total >= 0, size, -size)
    return size, total >= 0, (total - sent).to(g.dtype)


def adam_of_bytes(p: Tensor, g: Tensor, m: Tensor, scale: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Momentum as int8 with a scale for each 256 values."""
    momentum = m.view(-1, 256).to(g.dtype) * scale[:, None]
    momentum = 0.9 * momentum + 0.1 * g.view(-1, 256)
    most = momentum.abs().amax(-1) / 127
    kept = (momentum / most[:, None]).round().to(torch.int8)
    return most, kept.view(p.shape), p - 1e-3 * momentum.view(p.shape).sign()


def momenta(s: Shape, r: Inputs) -> Tensors:
    m = (r.indices(255, *s) - 127).to(torch.int8)
    count = m.numel() // 256
    return r(*s, dtype=torch.float32), r(*s, dtype=torch.float32), m, r(count, dtype=torch.float32).abs()


PARAMETERS = (4096, 2048)
OPTIMIZERS = (
    fusion("adam_amsgrad", adam_amsgrad, floats(5), PARAMETERS),
    fusion("adafactor", adafactor, factored, PARAMETERS),
    fusion("lamb", lamb, floats(4), PARAMETERS),
    fusion("rmsprop", rmsprop, floats(5), PARAMETERS),
    fusion("adagrad", adagrad, floats(3), (50257, 96)),
    fusion("nesterov", nesterov, lambda s, r: (r(*s), r(*s), r(*s, dtype=torch.float32)), (1000, 4097)),
    fusion("master_adam", master_adam, masters, PARAMETERS),
    fusion("stochastic_rounding", stochastic, noisy, PARAMETERS),
    fusion("clipped_many", clipped_many, many(1), (1,), small=(64,)),
    fusion("averaged_many", averaged_many, many(2), (1,), small=(64,)),
    fusion("unscaled", unscaled, lambda s, r: (r(*s), r(1, dtype=torch.float32)[0]), MEDIUM),
    fusion("perturbed", perturbed, alike(2), MEDIUM),
    fusion("sign_compressed", sign_compressed, alike(2), MEDIUM),
    fusion("adam_of_bytes", adam_of_bytes, momenta, PARAMETERS, small=(4, 256)),
)

# ---- losses ------------------------------------------------------------------------------------------------


def of_classes(classes: int) -> MakesInputs:
    """Logits whose second dimension is that of classes, and the right classes."""
    return lambda s, r: (r(*s), r.indices(min(classes, s[1]), s[0], *s[2:]))


def segmentation(x: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(wide(x), target, label_smoothing=0.1)


def dice_classes(x: Tensor, target: Tensor) -> Tensor:
    p = F.softmax(wide(x), 1)
    right = F.one_hot(target, x.shape[1]).permute(0, 3, 1, 2)
    both = (p * right).sum((0, 2, 3))
    return 1 - ((2 * both + 1) / (p.sum((0, 2, 3)) + right.sum((0, 2, 3)) + 1)).mean()


def focal_classes(x: Tensor, target: Tensor) -> Tensor:
    logarithm = F.log_softmax(wide(x), -1).gather(1, target[:, None])[:, 0]
    return (-((1 - logarithm.exp()) ** 2) * logarithm).mean()


def contrastive(logits: Tensor) -> Tensor:
    """Rows and columns of a square, whose diagonal is right."""
    x = wide(logits)
    right = x.diagonal()
    return ((x.logsumexp(1) - right).mean() + (x.logsumexp(0) - right).mean()) / 2


def nt_xent(logits: Tensor) -> Tensor:
    """The other view of each row is half of the rows away; a row is no match of itself."""
    count = logits.shape[0]
    own = torch.eye(count, dtype=torch.bool, device=logits.device)
    x = (wide(logits) / 0.5).masked_fill(own, -1e9)
    right = torch.arange(count, device=logits.device).roll(count // 2)
    return F.cross_entropy(x, right)


def arc_margin(cosines: Tensor, target: Tensor) -> Tensor:
    angle = torch.acos(wide(cosines).clamp(-0.999, 0.999))
    right = F.one_hot(target, cosines.shape[1]).bool()
    return (64 * torch.where(right, torch.cos(angle + 0.5), wide(cosines))).to(cosines.dtype)


def distilled(student: Tensor, teacher: Tensor) -> Tensor:
    warm = F.log_softmax(wide(teacher) / 4, -1)
    return 16 * F.kl_div(F.log_softmax(wide(student) / 4, -1), warm, log_target=True, reduction="batchmean")


def latent(mean: Tensor, logarithm: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """A draw of a variational encoder, and its divergence."""
    divergence = -0.5 * (1 + wide(logarithm) - wide(mean).square() - wide(logarithm).exp()).sum(-1).mean()
    return divergence, mean + noise * (0.5 * logarithm).exp()


def sequence_scores(x: Tensor, target: Tensor, mask: Tensor) -> Tensor:
    """The mean logarithm of each sequence's tokens, as preferences are trained by."""
    scores = F.log_softmax(wide(x), -1).gather(-1, target[..., None])[..., 0]
    return (scores * mask).sum(-1) / mask.sum(-1)


def sequences(s: Shape, r: Inputs) -> Tensors:
    return r(*s), r.indices(s[-1], *s[:-1]), r.mask(*s[:-1])


def mixture(x: Tensor, means: Tensor, logarithms: Tensor) -> Tensor:
    """The likelihood of points under a mixture of normal distributions without covariance."""
    apart = (wide(x)[:, None] - means) * torch.exp(-wide(logarithms))
    each = -0.5 * apart.square().sum(-1) - wide(logarithms).sum(-1)
    return torch.logsumexp(each, -1)


def pinball(x: Tensor, target: Tensor, quantiles: Tensor) -> Tensor:
    apart = wide(target)[..., None] - x
    return torch.maximum(quantiles * apart, (quantiles - 1) * apart).mean()


def log_cosh(x: Tensor, y: Tensor) -> Tensor:
    apart = wide(x) - y
    return (apart + F.softplus(-2 * apart) - 0.6931472).mean()


def depth(x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    """Scale-invariant, of each image, where something was measured."""
    apart = torch.where(mask, wide(x) - y, 0.0)
    count = mask.sum((1, 2)).clamp(min=1)
    return (apart.square().sum((1, 2)) / count - 0.5 * (apart.sum((1, 2)) / count).square()).sqrt().mean()


def weighted_bce(x: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(wide(x), wide(target), pos_weight=wide(weight).abs())


def value_loss(new: Tensor, old: Tensor, gains: Tensor) -> Tensor:
    bounded = old + (wide(new) - old).clamp(-0.2, 0.2)
    return 0.5 * torch.maximum((new - gains).square(), (bounded - gains).square()).mean()


def normal_gains(gains: Tensor, mask: Tensor) -> Tensor:
    """Standardized over what the mask keeps, of the whole batch."""
    count = mask.sum()
    mean = (wide(gains) * mask).sum() / count
    variance = ((wide(gains) - mean).square() * mask).sum() / count
    return ((gains - mean) * torch.rsqrt(variance + 1e-8)).to(gains.dtype)


def barlow(correlation: Tensor) -> Tensor:
    own = torch.eye(correlation.shape[0], dtype=torch.bool, device=correlation.device)
    x = wide(correlation)
    return torch.where(own, (x - 1).square(), 0.005 * x.square()).sum()


def spectral_convergence(x: Tensor, y: Tensor) -> Tensor:
    apart = (wide(x) - y).square().sum((1, 2)).sqrt() / wide(y).square().sum((1, 2)).sqrt()
    logarithms = (torch.log(wide(x).abs() + 1e-5) - torch.log(wide(y).abs() + 1e-5)).abs().mean()
    return apart.mean() + logarithms


def cross_entropy_chunk(x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The loss of each row with its gradient, of capped logits."""
    capped = 30 * torch.tanh(wide(x) / 30)
    logarithm = torch.logsumexp(capped, -1, keepdim=True)
    right = F.one_hot(target, x.shape[-1])
    loss = logarithm[:, 0] - capped.gather(1, target[:, None])[:, 0]
    gradient = (torch.exp(capped - logarithm) - right) * (1 - (capped / 30).square())
    return loss, gradient.to(x.dtype)


CLASSES = of_classes(1 << 30)
LOSSES = (
    fusion("segmentation", segmentation, CLASSES, (8, 21, 512, 512), (2, 150, 256, 257), small=(2, 5, 8, 9)),
    fusion("dice_classes", dice_classes, CLASSES, (8, 19, 256, 256), small=(2, 5, 8, 9)),
    fusion("focal_classes", focal_classes, CLASSES, (262144, 91)),
    fusion("contrastive", contrastive, alike(1), (4096, 4096)),
    fusion("nt_xent", nt_xent, alike(1), (4096, 4096)),
    fusion("arc_margin", arc_margin, CLASSES, (1024, 10575)),
    fusion("distilled", distilled, alike(2), (4096, 10000)),
    fusion("latent", latent, alike(3), (65536, 200)),
    fusion("sequence_scores", sequence_scores, sequences, (4, 512, 32001), small=(2, 3, 65)),
    fusion("mixture", mixture, lambda s, r: (r(s[0], s[2]), r(*s[1:]), r(*s[1:]) * 0.1), (16384, 64, 16)),
    fusion("pinball", pinball, lambda s, r: (r(*s), r(*s[:-1]), torch.sigmoid(r(s[-1]))), (4096, 336, 9)),
    fusion("log_cosh", log_cosh, alike(2), MEDIUM),
    fusion("depth_loss", depth, lambda s, r: (r(*s), r(*s), r.mask(*s)), (32, 480, 640)),
    fusion("weighted_bce", weighted_bce, lambda s, r: (r(*s), r.mask(*s), r(s[-1])), (65536, 80)),
    fusion("value_loss", value_loss, alike(3), (512, 8192)),
    fusion("normal_gains", normal_gains, lambda s, r: (r(*s), r.mask(*s)), (512, 1025), MEDIUM),
    fusion("barlow", barlow, alike(1), (8192, 8192)),
    fusion("spectral_convergence", spectral_convergence, alike(2), (32, 513, 860)),
    fusion("ce_capped_both", cross_entropy_chunk, CLASSES, (2048, 32000)),
)

TRAINING: tuple[Operation, ...] = (*OPTIMIZERS, *LOSSES)
