"""Rows of the catalogue from vision: normalizations and activations of images, patches, boxes, colours."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from bench.fusion import MakesInputs, alike, fusion
from bench.operation import EPSILON, Inputs, Operation, Shape, Tensors, wide

Tensor = torch.Tensor
IMAGES, SMALL_IMAGES = (64, 256, 56, 56), (2, 32, 9, 8)
#: Images with the channels last in memory, not in order.
LAST = torch.channels_last


def images_last(count: int, vectors: int) -> MakesInputs:
    """So many images, channels last in memory, and vectors along the channels."""
    return lambda s, r: (
        *(r(*s).contiguous(memory_format=LAST) for _ in range(count)),
        *(r(s[1]) for _ in range(vectors)),
    )


def per_channel(vector: Tensor) -> Tensor:
    return vector[None, :, None, None]


# ---- normalizations of images ------------------------------------------------------------------------------


def batch_norm_relu(x: Tensor, mean: Tensor, deviation: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    variance = wide(deviation).square() + 0.1
    return F.relu(F.batch_norm(x, mean, variance.to(x.dtype), weight, bias, False, 0.1, EPSILON))


def batch_norm_residual(x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """In training, as the last of a block of a ResNet."""
    normal = F.batch_norm(wide(x), None, None, wide(weight), wide(bias), True, 0.1, EPSILON)
    return F.relu(normal + residual).to(x.dtype)


def batch_norm_backward(grad: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    variance, mean = torch.var_mean(wide(x), (0, 2, 3), correction=0, keepdim=True)
    inverse = torch.rsqrt(variance + EPSILON)
    normal = (wide(x) - mean) * inverse
    of_bias = wide(grad).sum((0, 2, 3), keepdim=True)
    of_weight = (wide(grad) * normal).sum((0, 2, 3), keepdim=True)
    count = x.numel() // x.shape[1]
    of_x = per_channel(wide(weight)) * inverse * (wide(grad) - (of_bias + normal * of_weight) / count)
    return of_x.to(x.dtype), of_weight.flatten(), of_bias.flatten()


def pixel_norm(x: Tensor) -> Tensor:
    return (x * torch.rsqrt(wide(x).square().mean(1, keepdim=True) + 1e-8)).to(x.dtype)


def adaptive_instance_norm(x: Tensor, style: Tensor) -> Tensor:
    scale, shift = wide(style).chunk(2, 1)
    normal = F.instance_norm(wide(x))
    return (normal * (1 + scale[:, :, None, None]) + shift[:, :, None, None]).to(x.dtype)


def styles(s: Shape, r: Inputs) -> Tensors:
    return r(*s), r(s[0], 2 * s[1])


def instance_norm_volume(x: Tensor) -> Tensor:
    return F.leaky_relu(F.instance_norm(wide(x)), 0.01).to(x.dtype)


def global_response(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The response normalization of ConvNeXt V2, over images whose channels are the last dimension."""
    norm = wide(x).square().sum((1, 2), keepdim=True).sqrt()
    ratio = norm / (norm.mean(-1, keepdim=True) + 1e-6)
    return (weight * (x * ratio) + bias + x).to(x.dtype)


def local_response(x: Tensor) -> Tensor:
    """Over windows of five channels."""
    squares = F.pad(wide(x).square(), (0, 0, 0, 0, 2, 2))
    count = x.shape[1]
    window = squares[:, :count]
    for start in range(1, 5):
        window = window + squares[:, start : start + count]
    return (x * (1 + 1e-4 / 5 * window) ** -0.75).to(x.dtype)


def weight_standardized(w: Tensor) -> Tensor:
    variance, mean = torch.var_mean(wide(w), (1, 2, 3), keepdim=True)
    return ((w - mean) * torch.rsqrt(variance + EPSILON)).to(w.dtype)


def demodulated(w: Tensor, style: Tensor) -> Tensor:
    """Weights of a convolution for each image of a batch, as in StyleGAN 2."""
    own = wide(w) * style[:, None, :, None, None]
    return (own * torch.rsqrt(own.square().sum((2, 3, 4), keepdim=True) + 1e-8)).to(w.dtype)


NORMS = (
    fusion("bn_relu_last", batch_norm_relu, images_last(1, 4), IMAGES, small=SMALL_IMAGES),
    fusion("bn_train_last", batch_norm_residual, images_last(2, 2), IMAGES, small=SMALL_IMAGES),
    fusion(
        "bn_train",
        batch_norm_residual,
        lambda s, r: (r(*s), r(*s), r(s[1]), r(s[1])),
        (64, 96, 57, 57),
        small=(3, 8, 9, 7),
    ),
    fusion("bn_backward_last", batch_norm_backward, images_last(2, 1), IMAGES, small=SMALL_IMAGES),
    fusion(
        "bn_backward",
        batch_norm_backward,
        lambda s, r: (r(*s), r(*s), r(s[1])),
        (64, 128, 56, 56),
        small=SMALL_IMAGES,
    ),
    fusion("pixel_norm", pixel_norm, alike(1), (32, 512, 32, 32), small=SMALL_IMAGES),
    fusion("pixel_norm_last", pixel_norm, images_last(1, 0), (32, 512, 32, 32), small=SMALL_IMAGES),
    fusion("adain", adaptive_instance_norm, styles, (16, 256, 64, 64), small=(2, 6, 8, 8)),
    fusion(
        "instance_norm_volume", instance_norm_volume, alike(1), (2, 32, 96, 96, 96), small=(2, 3, 6, 4, 8)
    ),
    fusion(
        "global_response",
        global_response,
        lambda s, r: (r(*s), r(s[-1]), r(s[-1])),
        (64, 28, 28, 768),
        small=(2, 5, 6, 16),
    ),
    fusion("local_response", local_response, alike(1), (64, 96, 55, 55), small=(2, 8, 7, 7)),
    fusion("weight_standardized", weight_standardized, alike(1), (1024, 512, 3, 3), small=(6, 8, 3, 3)),
    fusion(
        "demodulated",
        demodulated,
        lambda s, r: (r(*s[1:]), r(s[0], s[2])),
        (8, 512, 512, 3, 3),
        small=(2, 5, 8, 3, 3),
    ),
)

# ---- attention to channels and pixels ----------------------------------------------------------------------


def channel_statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    """The means and maxima of CBAM's attention to channels."""
    return wide(x).mean((2, 3)).to(x.dtype), x.amax((2, 3))


def spatial_statistics(x: Tensor) -> Tensor:
    return torch.cat([wide(x).mean(1, keepdim=True).to(x.dtype), x.amax(1, keepdim=True)], 1)


def squeeze_backward(grad: Tensor, x: Tensor, gate: Tensor) -> tuple[Tensor, Tensor]:
    of_gate = (wide(grad) * x).sum((2, 3)) * gate * (1 - wide(gate))
    return grad * gate[:, :, None, None], of_gate.to(x.dtype)


def soft_argmax(x: Tensor) -> Tensor:
    """The expected place in each heat map."""
    height, width = x.shape[2:]
    p = F.softmax(wide(x).flatten(2), -1).view(x.shape)
    rows = torch.arange(height, device=x.device, dtype=p.dtype)
    columns = torch.arange(width, device=x.device, dtype=p.dtype)
    return torch.stack([(p.sum(2) * columns).sum(-1), (p.sum(3) * rows).sum(-1)], -1)


ATTENTION = (
    fusion("channel_statistics", channel_statistics, alike(1), (64, 256, 28, 28), small=SMALL_IMAGES),
    fusion("spatial_statistics", spatial_statistics, alike(1), (64, 256, 28, 28), small=SMALL_IMAGES),
    fusion(
        "squeeze_backward",
        squeeze_backward,
        lambda s, r: (r(*s), r(*s), torch.sigmoid(r(*s[:2]))),
        (64, 256, 28, 28),
        small=SMALL_IMAGES,
    ),
    fusion("soft_argmax", soft_argmax, alike(1), (64, 17, 64, 48), small=(2, 3, 8, 6)),
)

# ---- blocks ------------------------------------------------------------------------------------------------


def layer_scale(x: Tensor, branch: Tensor, gamma: Tensor) -> Tensor:
    return x + gamma * branch


def dropped_path(x: Tensor, branch: Tensor, kept: Tensor) -> Tensor:
    return x + branch * kept[:, None, None] / 0.9


def paths(s: Shape, r: Inputs) -> Tensors:
    return r(*s), r(*s), r.mask(s[0])


def patch_merging(x: Tensor) -> Tensor:
    """Swin's, with the norm that follows."""
    parts = [x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)]
    return F.layer_norm(torch.cat(parts, -1), (4 * x.shape[-1],), eps=EPSILON)


def normed_windows(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    batch, height, width, channels = x.shape
    y = F.layer_norm(x, (channels,), weight, bias, EPSILON)
    return y.view(batch, height // 7, 7, width // 7, 7, channels).transpose(2, 3).reshape(-1, 49, channels)


def windows_back(x: Tensor, residual: Tensor) -> Tensor:
    batch, height, width, channels = residual.shape
    parts = x.view(batch, height // 7, width // 7, 7, 7, channels)
    return residual + parts.transpose(2, 3).reshape(residual.shape)


def tokens(x: Tensor, positions: Tensor, first: Tensor) -> Tensor:
    """What a ViT starts from: patches as rows, a class token before them, positions."""
    rows = x.flatten(2).transpose(1, 2)
    return torch.cat([first.expand(x.shape[0], 1, -1), rows], 1) + positions


def tokens_in(s: Shape, r: Inputs) -> Tensors:
    return r(*s), r(s[2] * s[3] + 1, s[1]), r(1, 1, s[1])


def mae_target(x: Tensor) -> Tensor:
    """Normalized patches of 16 x 16 pixels."""
    batch, colours, height, width = x.shape
    parts = x.view(batch, colours, height // 16, 16, width // 16, 16).permute(0, 2, 4, 3, 5, 1).flatten(3)
    variance, mean = torch.var_mean(wide(parts), -1, keepdim=True)
    return ((parts - mean) / (variance + 1e-6).sqrt()).to(x.dtype)


def skip_joined(x: Tensor, skip: Tensor) -> Tensor:
    """An up step of a U-Net: the nearest pixels, beside what came down."""
    return F.silu(torch.cat([F.interpolate(x, scale_factor=2, mode="nearest"), skip], 1))


BLOCKS = (
    fusion("layer_scale", layer_scale, lambda s, r: (r(*s), r(*s), r(s[-1])), (64, 197, 768)),
    fusion("dropped_path", dropped_path, paths, (64, 197, 768)),
    fusion("patch_merging", patch_merging, alike(1), (64, 56, 56, 96), small=(2, 4, 6, 8)),
    fusion(
        "normed_windows",
        normed_windows,
        lambda s, r: (r(*s), r(s[-1]), r(s[-1])),
        (64, 56, 56, 96),
        small=(2, 14, 7, 8),
    ),
    fusion(
        "windows_back",
        windows_back,
        lambda s, r: (r(s[0] * (s[1] // 7) * (s[2] // 7), 49, s[3]), r(*s)),
        (64, 56, 56, 96),
        small=(2, 14, 7, 8),
    ),
    fusion("vit_tokens", tokens, tokens_in, (128, 768, 14, 14), small=(2, 16, 3, 3)),
    fusion("mae_target", mae_target, alike(1), (64, 3, 224, 224), small=(2, 3, 32, 16)),
    fusion(
        "skip_joined",
        skip_joined,
        lambda s, r: (r(*s), r(s[0], s[1] // 2, 2 * s[2], 2 * s[3])),
        (16, 128, 32, 32),
        small=(2, 4, 3, 4),
    ),
)

# ---- pixels and boxes --------------------------------------------------------------------------------------


def pictures(s: Shape, r: Inputs) -> Tensors:
    return (r.indices(256, *s).to(torch.uint8),)


def hsv_value(x: Tensor) -> Tensor:
    """Saturation and value of colours."""
    largest, least = x.amax(1), x.amin(1)
    return torch.stack([(largest - least) / (largest + 1e-6), largest], 1)


def yuv(x: Tensor) -> Tensor:
    red, green, blue = wide(x).unbind(1)
    luma = 0.299 * red + 0.587 * green + 0.114 * blue
    return torch.stack([luma, 0.492 * (blue - luma), 0.877 * (red - luma)], 1).to(x.dtype)


def contrast(x: Tensor) -> Tensor:
    """uint8 pictures around their own mean."""
    values = x.float()
    mean = values.mean((1, 2, 3), keepdim=True)
    return ((values - mean) * 1.2 + mean).clamp(0, 255).to(torch.uint8)


def mixed_up(x: Tensor, weight: Tensor) -> Tensor:
    share = weight[:, None, None, None]
    return share * x + (1 - share) * x.flip(0)


def corners(boxes: Tensor) -> Tensor:
    x, y, width, height = boxes.unbind(-1)
    return torch.stack([x - width / 2, y - height / 2, x + width / 2, y + height / 2], -1)


def decoded(deltas: Tensor, anchors: Tensor) -> Tensor:
    centre = anchors[..., :2] + deltas[..., :2] * anchors[..., 2:]
    size = anchors[..., 2:] * wide(deltas)[..., 2:].clamp(max=4.0).exp()
    return torch.cat([centre - size / 2, centre + size / 2], -1)


def general_overlap(a: Tensor, b: Tensor) -> Tensor:
    """GIoU of pairs of boxes, averaged."""
    a, b = (torch.cat([wide(t)[:, :2], wide(t)[:, :2] + wide(t)[:, 2:].abs() + 0.1], -1) for t in (a, b))
    inner = (torch.minimum(a[:, 2:], b[:, 2:]) - torch.maximum(a[:, :2], b[:, :2])).clamp(min=0).prod(-1)
    outer = (torch.maximum(a[:, 2:], b[:, 2:]) - torch.minimum(a[:, :2], b[:, :2])).prod(-1)
    union = (a[:, 2:] - a[:, :2]).prod(-1) + (b[:, 2:] - b[:, :2]).prod(-1) - inner
    return (1 - (inner / union - (outer - union) / outer)).mean()


PIXELS = (
    fusion("saturation", hsv_value, alike(1), (64, 3, 224, 224), small=(2, 3, 8, 9)),
    fusion("yuv", yuv, alike(1), (64, 3, 224, 224), small=(2, 3, 8, 9)),
    fusion("contrast", contrast, pictures, (256, 3, 128, 128), small=(2, 3, 8, 9)),
    fusion("mixed_up", mixed_up, lambda s, r: (r(*s), r(s[0])), (128, 3, 224, 224), small=(3, 3, 8, 9)),
    fusion("box_corners", corners, alike(1), (1048576, 4)),
    fusion("boxes_decoded", decoded, alike(2), (32, 65536, 4)),
    fusion("boxes_giou", general_overlap, alike(2), (1048577, 4)),
)

VISION: tuple[Operation, ...] = (*NORMS, *ATTENTION, *BLOCKS, *PIXELS)
