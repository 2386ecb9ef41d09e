"""The corpus of whole graphs: blocks of published architectures, forward and backward, and an AdamW step.

The modules are written here in plain torch.nn, from the configurations of their papers, with random
weights: GPT-2 (Radford et al. 2019), LLaMA (Touvron et al. 2023), BERT (Devlin et al. 2018), ViT
(Dosovitskiy et al. 2020) and the bottleneck of ResNet-50 (He et al. 2015). Sizes are arguments, so that
tests run the same blocks at tiny ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from fusewright.torch_compile import decompositions

Tensor = torch.Tensor

# Width of an attention head in all published sizes of GPT-2, BERT and ViT.
HEAD = 64
#: The base of LLaMA's rotary frequencies.
ROTARY_BASE = 10000.0
# The hidden layer of LLaMA's gated MLP is 8/3 as wide as the model, rounded up to a multiple of this.
GATED_MULTIPLE = 256
# Channels of the input of a bottleneck are this many times those inside.
EXPANSION = 4


@dataclass(frozen=True)
class Sizes:
    """Batch, sequence length (ResNet-50: pixels of an image, in all), model width and heads."""

    batch: int
    length: int
    hidden: int
    heads: int

    @classmethod
    def of(cls, batch: int, length: int, hidden: int) -> Sizes:
        """With heads of the published width."""
        return cls(batch, length, hidden, hidden // HEAD)


def _heads(x: Tensor, heads: int) -> Tensor:
    """[B, L, H * E] -> [B, H, L, E]."""
    batch, length, hidden = x.shape
    return x.view(batch, length, heads, hidden // heads).transpose(1, 2)


def _merged(x: Tensor) -> Tensor:
    """[B, H, L, E] -> [B, L, H * E]."""
    return x.transpose(1, 2).flatten(2)


class GPT2(nn.Module):
    """Pre-norm, fused query-key-value projection, GELU by tanh, causal attention, dropout where trained."""

    def __init__(self, sizes: Sizes, dropout: float = 0.0) -> None:
        super().__init__()
        hidden = sizes.hidden
        self.heads = sizes.heads
        self.dropout = dropout
        self.norm_1, self.norm_2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.attention, self.projection = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.expand, self.contract = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def _dropped(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training) if self.dropout else x

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            _heads(part, self.heads) for part in self.attention(self.norm_1(x)).split(x.shape[-1], -1)
        )
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self._dropped(self.projection(_merged(attended)))
        inner = F.gelu(self.expand(self.norm_2(x)), approximate="tanh")
        return x + self._dropped(self.contract(inner))


class RMSNorm(nn.Module):
    def __init__(self, hidden: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return (wide * scale).to(x.dtype) * self.weight


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Each pair of elements half a head apart, turned by its position's angle."""
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


class LLaMA(nn.Module):
    """Pre-norm by root mean square, rotary positions, causal attention, gated MLP, no biases."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        hidden, size = sizes.hidden, sizes.hidden // sizes.heads
        inner = -(-8 * hidden // (3 * GATED_MULTIPLE)) * GATED_MULTIPLE
        self.heads = sizes.heads
        self.norm_1, self.norm_2 = RMSNorm(hidden), RMSNorm(hidden)
        self.query, self.key, self.value, self.output = (
            nn.Linear(hidden, hidden, bias=False) for _ in range(4)
        )
        self.gate, self.up = (nn.Linear(hidden, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, hidden, bias=False)
        frequencies = ROTARY_BASE ** (-torch.arange(0, size, 2) / size)
        angles = torch.outer(torch.arange(sizes.length), frequencies).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, x: Tensor) -> Tensor:
        normed = self.norm_1(x)
        query, key, value = (
            _heads(project(normed), self.heads) for project in (self.query, self.key, self.value)
        )
        cos, sin = self.cos.to(x.dtype), self.sin.to(x.dtype)
        query, key = _rotated(query, cos, sin), _rotated(key, cos, sin)
        x = x + self.output(_merged(F.scaled_dot_product_attention(query, key, value, is_causal=True)))
        normed = self.norm_2(x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))


class BERT(nn.Module):
    """Post-norm, exact GELU; attention over all positions."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        hidden = sizes.hidden
        self.heads = sizes.heads
        self.query, self.key, self.value, self.output = (nn.Linear(hidden, hidden) for _ in range(4))
        self.norm_1, self.norm_2 = nn.LayerNorm(hidden, eps=1e-12), nn.LayerNorm(hidden, eps=1e-12)
        self.expand, self.contract = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (_heads(project(x), self.heads) for project in (self.query, self.key, self.value))
        attended = _merged(F.scaled_dot_product_attention(query, key, value))
        x = self.norm_1(x + self.output(attended))
        return self.norm_2(x + self.contract(F.gelu(self.expand(x))))


class ViT(nn.Module):
    """Pre-norm, exact GELU; attention written out, as the first implementations had it."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        hidden = sizes.hidden
        self.heads = sizes.heads
        self.norm_1, self.norm_2 = nn.LayerNorm(hidden, eps=1e-6), nn.LayerNorm(hidden, eps=1e-6)
        self.attention, self.projection = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.expand, self.contract = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, hidden = x.shape
        size = hidden // self.heads
        packed = self.attention(self.norm_1(x)).view(batch, length, 3, self.heads, size)
        query, key, value = packed.permute(2, 0, 3, 1, 4).unbind(0)
        weights = torch.softmax(query @ key.transpose(-2, -1) * size**-0.5, -1)
        x = x + self.projection(_merged(weights @ value))
        return x + self.contract(F.gelu(self.expand(self.norm_2(x))))


class ResNet50(nn.Module):
    """A bottleneck: 1x1, 3x3 and 1x1 convolutions, each normalized over the batch, around a shortcut."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        outer, inner = sizes.hidden, sizes.hidden // EXPANSION
        self.conv_1 = nn.Conv2d(outer, inner, 1, bias=False)
        self.conv_2 = nn.Conv2d(inner, inner, 3, padding=1, bias=False)
        self.conv_3 = nn.Conv2d(inner, outer, 1, bias=False)
        self.norm_1, self.norm_2 = nn.BatchNorm2d(inner), nn.BatchNorm2d(inner)
        self.norm_3 = nn.BatchNorm2d(outer)

    def forward(self, x: Tensor) -> Tensor:
        inner = F.relu(self.norm_1(self.conv_1(x)))
        inner = F.relu(self.norm_2(self.conv_2(inner)))
        return F.relu(x + self.norm_3(self.conv_3(inner)))


@dataclass(frozen=True)
class Block:
    """One architecture: what makes its module, and whether its input is an image."""

    name: str
    module: Callable[[Sizes], nn.Module]
    image: bool = False


BLOCKS: Mapping[str, Block] = {
    block.name: block
    for block in (
        Block("gpt2", GPT2),
        Block("llama", LLaMA),
        Block("bert", BERT),
        Block("vit", ViT),
        Block("resnet50", ResNet50, image=True),
    )
}


def make_module(block: Block, sizes: Sizes, dtype: torch.dtype, device: torch.device | str) -> nn.Module:
    """The module of a block, with the same random weights each time on one device."""
    torch.manual_seed(0)
    with torch.device(device):
        return block.module(sizes).to(dtype)


def _square(points: int) -> tuple[int, int]:
    """Height and width, powers of two as equal as can be, of an image of so many pixels."""
    height = 1 << (points.bit_length() - 1) // 2
    return height, points // height


def inputs_of(
    block: Block, sizes: Sizes, dtype: torch.dtype, device: torch.device | str, seed: int = 0
) -> Tensor:
    """A random input of the block: [B, L, H], or [B, H, height, width] of as many pixels as L."""
    shape = (sizes.batch, sizes.length, sizes.hidden)
    if block.image:
        shape = (sizes.batch, sizes.hidden, *_square(sizes.length))  # type: ignore[assignment]
    return _random(shape, torch.Generator(device).manual_seed(seed)).to(dtype)


def _random(shape: tuple[int, ...] | torch.Size, generator: torch.Generator) -> Tensor:
    """Normal numbers, on the device of the generator."""
    return torch.randn(shape, generator=generator, device=generator.device)


def optimizer_state(parameters: list[Tensor]) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Gradients, and AdamW's two moments, of these parameters."""
    generator = torch.Generator(parameters[0].device).manual_seed(1)

    def random(like: Tensor) -> Tensor:
        return _random(like.shape, generator).to(like)

    grads = [random(p) for p in parameters]
    return grads, [random(p) * 0.1 for p in parameters], [random(p).square() * 0.01 for p in parameters]


def adamw_step(
    parameters: list[Tensor],
    grads: list[Tensor],
    means: list[Tensor],
    squares: list[Tensor],
    step: Tensor,
    lr: float = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.01,
) -> None:
    """One step of AdamW (Loshchilov and Hutter 2017), in place; `step` is a tensor of rank 0."""
    step.add_(1)
    first, second = 1 - betas[0] ** step, 1 - betas[1] ** step
    for parameter, grad, mean, square in zip(parameters, grads, means, squares):
        parameter.mul_(1 - lr * weight_decay)
        mean.lerp_(grad, 1 - betas[0])
        square.mul_(betas[1]).addcmul_(grad, grad, value=1 - betas[1])
        denominator = (square / second).sqrt() + eps
        parameter.sub_(lr * (mean / first) / denominator)


# ---- graphs ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Expected:
    """What torch computes.

    Attributes:
        name: of the node, or of the argument.
        value: the result, or the argument after the call.
        margin: of a comparison, how far apart the values are that it compares, as a fraction of the largest
            or of 1. Where they are as close as rounding, either answer is right.
    """

    name: str
    value: Tensor | None
    margin: Tensor | None = None


_COMPARISONS = frozenset(f"aten.{name}" for name in ("eq", "ne", "lt", "le", "gt", "ge"))


class _WithMargins(fx.Interpreter):
    """Attributes:
    margins: of the comparisons that are results.
    """

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        (output,) = (node for node in module.graph.nodes if node.op == "output")
        self.results = pytree.tree_leaves(output.args)
        self.margins: dict[fx.Node, Tensor] = {}

    def run_node(self, node: fx.Node) -> Any:
        if node in self.results and str(node.target).rpartition(".")[0] in _COMPARISONS:
            left, right = (torch.as_tensor(v).double() for v in self.fetch_args_kwargs_from_env(node)[0])
            largest = torch.maximum(left.abs().max(), right.abs().max().to(left.device)).clamp(min=1)
            self.margins[node] = (left - right).abs() / largest
        return super().run_node(node)


@dataclass(frozen=True)
class Graph:
    """A graph of the corpus, and arguments for it."""

    name: str
    module: fx.GraphModule
    arguments: tuple[Tensor, ...]

    def expected(self) -> list[Expected]:
        """What torch computes for copies of the arguments, and the copies after in-place updates."""
        copies = self.copied_arguments()
        interpreter = _WithMargins(self.module)
        made = pytree.tree_leaves(interpreter.run(*copies))
        names = [node.name for node in self.module.graph.nodes if node.op == "placeholder"]
        return [
            *(Expected(str(n), v, interpreter.margins.get(n)) for n, v in zip(interpreter.results, made)),
            *map(Expected, names, copies),
        ]

    def copied_arguments(self) -> list[Tensor]:
        """Copies of the arguments in the same memory order."""
        return [_copy(t) for t in self.arguments]


def _copy(tensor: Tensor) -> Tensor:
    made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    return made.copy_(tensor) if tensor.numel() else made


def block_graphs(block: Block, sizes: Sizes, dtype: torch.dtype, device: torch.device | str) -> list[Graph]:
    """The forward and the backward pass of a block, as AOTAutograd divides them."""
    module = make_module(block, sizes, dtype, device)
    return pass_graphs(block.name, module, inputs_of(block, sizes, dtype, device))


def pass_graphs(name: str, module: nn.Module, x: Tensor) -> list[Graph]:
    """The forward and the backward pass of a module for this input; either may be of fake tensors."""
    # Imports torch's compiler: as long as torch itself takes, for each process that imports any of `bench`.
    from functorch.compile import (  # noqa: PLC0415
        aot_function,
        make_boxed_func,
        min_cut_rematerialization_partition,
    )

    x = x.detach().requires_grad_()
    found: dict[str, Graph] = {}

    def compiler(kind: str) -> Callable[..., Any]:
        def compile_(graph: fx.GraphModule, _: Any) -> Any:
            def run(*arguments: Any) -> Any:
                kept = tuple(_copy(a.detach()) for a in arguments)
                found[kind] = Graph(f"{name} {kind}", graph, kept)
                return graph(*arguments)

            return make_boxed_func(run)

        return compile_

    def call(parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor], value: Tensor) -> Tensor:
        return torch.func.functional_call(module, (parameters, buffers), (value,))

    traced = aot_function(
        call,
        compiler("forward"),
        compiler("backward"),
        partition_fn=min_cut_rematerialization_partition,
        decompositions=decompositions(),
    )
    result = traced(dict(module.named_parameters()), dict(module.named_buffers()), x)
    result.backward(_random(result.shape, torch.Generator(x.device).manual_seed(2)).to(result))
    return [found["forward"], found["backward"]]


def adamw_graph(block: Block, sizes: Sizes, dtype: torch.dtype, device: torch.device | str) -> Graph:
    """A step over the parameters of a block, which it updates in place."""
    return step_graph(block.name, make_module(block, sizes, dtype, device))


def step_graph(name: str, module: nn.Module) -> Graph:
    """A step over the parameters of a module, which it updates in place; they may be fake tensors."""
    parameters = [p.detach() for p in module.parameters()]
    lists = [parameters, *optimizer_state(parameters)]
    step = torch.tensor(3.0, device=parameters[0].device)
    flat = (*(t for tensors in lists for t in tensors), step)
    count = len(parameters)

    def update(*arguments: Tensor) -> tuple[()]:
        own = [list(arguments[i * count : (i + 1) * count]) for i in range(len(lists))]
        adamw_step(own[0], own[1], own[2], own[3], arguments[-1])
        return ()

    graph = make_fx(torch.func.functionalize(update), decompositions(), tracing_mode="fake")(*flat)
    return Graph(f"adamw {name}", graph, flat)
