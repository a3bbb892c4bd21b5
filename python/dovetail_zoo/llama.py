"""The Llama architecture with its KV cache in buffers, in the form that exports to few, high-level ATen nodes.

Parameter names are those of Hugging Face's Llama checkpoints without the leading `model.`.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class LlamaConfig:
    vocab: int
    dim: int
    layers: int
    heads: int
    kv_heads: int
    hidden: int
    eps: float = 1e-5
    rope_theta: float = 1e4
    cache_length: int = 256
    cache_style: str = "index_put"  # how rows are written to the cache, one of CACHE_WRITERS
    grouped_attention: bool = False  # heads grouped by the attention operator, instead of repeated before it
    all_logits: bool = False  # logits of every position, instead of the last one's

    @property
    def head_dim(self) -> int:
        return self.dim // self.heads


def _index_put(cache: Tensor, position: Tensor, rows: Tensor) -> Tensor:
    cache[:, :, position] = rows
    return cache


def _index_copy(cache: Tensor, position: Tensor, rows: Tensor) -> Tensor:
    return cache.index_copy_(2, position, rows)


def _slice_copy(cache: Tensor, position: Tensor, rows: Tensor) -> Tensor:
    start, count = position[0].item(), rows.shape[2]
    torch._check(start >= 0)
    torch._check(start + count <= cache.shape[2])
    cache.narrow(2, start, count).copy_(rows)
    return cache


def _functional_copy(cache: Tensor, position: Tensor, rows: Tensor) -> Tensor:
    updated = torch.ops.aten.index_put(cache, [None, None, position], rows)
    torch.ops.aten.copy_(cache, updated)
    return updated


def _one_hot_where(cache: Tensor, position: Tensor, rows: Tensor) -> Tensor:
    one_hot = (torch.arange(cache.shape[2])[None, :] == position[:, None]).to(rows.dtype)
    untouched = (one_hot.sum(0) == 0)[None, None, :, None]
    updated = torch.where(untouched, cache, torch.einsum("st,bhsd->bhtd", one_hot, rows))
    cache.copy_(updated)
    return cache


# The ways models in the wild write a cache; each returns what attention reads afterwards.
CACHE_WRITERS = {
    "index_put": _index_put,
    "index_copy": _index_copy,
    "slice_copy": _slice_copy,
    "functional_copy": _functional_copy,
    "one_hot_where": _one_hot_where,
}


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) * weight, over the last dim, computed in float32."""

    def __init__(self, dim: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return (wide * scale).type_as(x) * self.weight


def rotate_half(x: Tensor) -> Tensor:
    first, second = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return torch.cat((-second, first), -1)


class Attention(nn.Module):
    """Causal attention with grouped key and value heads over a cache of `cache_length` positions."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.config = config
        head_dim, kv_dim = config.head_dim, config.kv_heads * config.head_dim
        self.q_proj = nn.Linear(config.dim, config.heads * head_dim, bias=False)
        self.k_proj = nn.Linear(config.dim, kv_dim, bias=False)
        self.v_proj = nn.Linear(config.dim, kv_dim, bias=False)
        self.o_proj = nn.Linear(config.heads * head_dim, config.dim, bias=False)
        shape = (1, config.kv_heads, config.cache_length, head_dim)
        self.register_buffer("k_cache", torch.zeros(shape))
        self.register_buffer("v_cache", torch.zeros(shape))

    def forward(self, x: Tensor, position: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        config, (batch, length, _) = self.config, x.shape
        q = self.q_proj(x).view(batch, length, config.heads, config.head_dim).transpose(1, 2)
        k = self.k_proj(x).view(batch, length, config.kv_heads, config.head_dim).transpose(1, 2)
        v = self.v_proj(x).view(batch, length, config.kv_heads, config.head_dim).transpose(1, 2)
        q = q * cos + rotate_half(q) * sin
        k = k * cos + rotate_half(k) * sin

        write = CACHE_WRITERS[config.cache_style]
        k, v = write(self.k_cache, position, k), write(self.v_cache, position, v)
        group = config.heads // config.kv_heads
        if group > 1 and not config.grouped_attention:
            k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        grouped = group > 1 and config.grouped_attention
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=grouped)
        return self.o_proj(y.transpose(1, 2).reshape(batch, length, config.dim))


class MLP(nn.Module):
    """SwiGLU."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.dim, config.hidden, bias=False)
        self.up_proj = nn.Linear(config.dim, config.hidden, bias=False)
        self.down_proj = nn.Linear(config.hidden, config.dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.dim, config.eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config.dim, config.eps)
        self.mlp = MLP(config)

    def forward(self, x: Tensor, position: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), position, cos, sin, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    """forward(tokens [1, S] int64, input_pos [S] int64) -> logits [1, 1 or S, vocab].

    `input_pos` are the positions of the tokens in the sequence: where their keys and values go in the cache. The output
    projection shares the embedding's weight.
    """

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab, config.dim)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = RMSNorm(config.dim, config.eps)
        self.lm_head = nn.Linear(config.dim, config.vocab, bias=False)
        self.lm_head.weight = self.embed_tokens.weight

        head_dim, length = config.head_dim, config.cache_length
        frequency = 1.0 / config.rope_theta ** (torch.arange(0, head_dim, 2).float() / head_dim)
        angle = torch.outer(torch.arange(length).float(), frequency).repeat(1, 2)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)
        causal = torch.tril(torch.ones(length, length, dtype=torch.bool))
        self.register_buffer("mask", causal, persistent=False)

    def forward(self, tokens: Tensor, input_pos: Tensor) -> Tensor:
        x = self.embed_tokens(tokens)
        cos, sin, mask = self.cos[input_pos], self.sin[input_pos], self.mask[input_pos]
        for layer in self.layers:
            x = layer(x, input_pos, cos, sin, mask)
        if not self.config.all_logits:
            x = x[:, -1:]
        return self.lm_head(self.norm(x))
