"""Llama with 110M parameters (134M with its untied head), random weights of a fixed seed: the model that speed is compared on.

Every engine gets these weights and these tokens, so that only the engines differ. Parameters are created in the order of the
checkpoint (embedding, layers, norm, head), which together with the seed fixes each of them to the bit. The graph differs from
`llama.py` where models in the wild do: an additive mask, rope on the halves of a head, `index_copy_` into the cache.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCAB, DIM, LAYERS, HEADS, HIDDEN, EPS, ROPE_THETA = 32000, 768, 12, 12, 2048, 1e-5, 1e4
HEAD_DIM = DIM // HEADS
CONTEXT = 256


def token(position: int) -> int:
    """The token at a position of the sequence that is measured."""
    return (position * 7919 + 13) % VOCAB


class RMSNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(DIM))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + EPS) * self.weight


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rope of x [1, heads, S, HEAD_DIM] by tables [S, HEAD_DIM / 2]."""
    first, second = x[..., : HEAD_DIM // 2], x[..., HEAD_DIM // 2 :]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


class Attention(nn.Module):
    def __init__(self, context: int) -> None:
        super().__init__()
        self.q_proj = nn.Linear(DIM, DIM, bias=False)
        self.k_proj = nn.Linear(DIM, DIM, bias=False)
        self.v_proj = nn.Linear(DIM, DIM, bias=False)
        self.o_proj = nn.Linear(DIM, DIM, bias=False)
        self.register_buffer("k_cache", torch.zeros(1, HEADS, context, HEAD_DIM))
        self.register_buffer("v_cache", torch.zeros(1, HEADS, context, HEAD_DIM))

    def forward(self, x: Tensor, position: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = (
            project(x).view(batch, length, HEADS, HEAD_DIM).transpose(1, 2) for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        self.k_cache.index_copy_(2, position, k)
        self.v_cache.index_copy_(2, position, v)
        y = F.scaled_dot_product_attention(q, self.k_cache, self.v_cache, attn_mask=mask)
        return self.o_proj(y.transpose(1, 2).reshape(batch, length, DIM))


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(DIM, HIDDEN, bias=False)
        self.up_proj = nn.Linear(DIM, HIDDEN, bias=False)
        self.down_proj = nn.Linear(HIDDEN, DIM, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, context: int) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm()
        self.self_attn = Attention(context)
        self.post_attention_layernorm = RMSNorm()
        self.mlp = MLP()

    def forward(self, x: Tensor, position: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), position, cos, sin, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama110M(nn.Module):
    """forward(tokens [1, S] int64, input_pos [S] int64) -> logits [1, 1, VOCAB] of the last token."""

    def __init__(self, context: int = CONTEXT) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleList(Layer(context) for _ in range(LAYERS))
        self.norm = RMSNorm()
        self.lm_head = nn.Linear(DIM, VOCAB, bias=False)
        frequency = 1.0 / (ROPE_THETA ** (torch.arange(0, HEAD_DIM, 2).float() / HEAD_DIM))
        angle = torch.arange(context).float()[:, None] * frequency
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)
        self.register_buffer("mask", torch.full((context, context), float("-inf")).triu(1), persistent=False)

    def forward(self, tokens: Tensor, input_pos: Tensor) -> Tensor:
        x = self.embed_tokens(tokens)
        cos, sin, mask = self.cos[input_pos], self.sin[input_pos], self.mask[input_pos]
        for layer in self.layers:
            x = layer(x, input_pos, cos, sin, mask)
        return self.lm_head(self.norm(x[:, -1:]))


def model(context: int = CONTEXT) -> Llama110M:
    """The model with its weights; they don't depend on `context`, the number of positions of its cache."""
    torch.manual_seed(0)
    return Llama110M(context).requires_grad_(False).eval()
