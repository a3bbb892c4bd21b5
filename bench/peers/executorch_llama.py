"""A Llama for ExecuTorch's own operators: `llama.update_cache` writes the cache in place, `llama.custom_sdpa` reads the rows in use.

Both want tensors [1, S, heads, head_dim] and the first position as a number.
"""

import numpy as np
import torch
import torch.nn.functional as F
from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401, registers the operators
from torch import Tensor, nn

from .work import Language


class _Norm(nn.Module):
    def __init__(self, shape: Language) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(shape.dim)), shape.eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


class _Attention(nn.Module):
    def __init__(self, shape: Language) -> None:
        super().__init__()
        self.shape, kv_dim = shape, shape.kv_heads * shape.head_dim
        self.q_proj = nn.Linear(shape.dim, shape.dim, bias=False)
        self.k_proj = nn.Linear(shape.dim, kv_dim, bias=False)
        self.v_proj = nn.Linear(shape.dim, kv_dim, bias=False)
        self.o_proj = nn.Linear(shape.dim, shape.dim, bias=False)
        for name in ("k_cache", "v_cache"):
            self.register_buffer(name, torch.zeros(1, shape.context, shape.kv_heads, shape.head_dim))

    def forward(self, x: Tensor, start: int, cos: Tensor, sin: Tensor) -> Tensor:
        shape, length = self.shape, x.shape[1]

        def rotated(t: Tensor, heads: int) -> Tensor:
            first, second = t.view(1, length, heads, shape.head_dim).chunk(2, -1)
            return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)

        q, k = rotated(self.q_proj(x), shape.heads), rotated(self.k_proj(x), shape.kv_heads)
        v = self.v_proj(x).view(1, length, shape.kv_heads, shape.head_dim)
        torch.ops.llama.update_cache(k, self.k_cache, start)
        torch.ops.llama.update_cache(v, self.v_cache, start)
        y = torch.ops.llama.custom_sdpa(q, self.k_cache, self.v_cache, start, None, 0.0, True)
        return self.o_proj(y.view(1, length, shape.dim))


class _MLP(nn.Module):
    def __init__(self, shape: Language) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.dim, shape.hidden, bias=False)
        self.up_proj = nn.Linear(shape.dim, shape.hidden, bias=False)
        self.down_proj = nn.Linear(shape.hidden, shape.dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class _Layer(nn.Module):
    def __init__(self, shape: Language) -> None:
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = _Norm(shape), _Norm(shape)
        self.self_attn, self.mlp = _Attention(shape), _MLP(shape)

    def forward(self, x: Tensor, start: int, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), start, cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class _Llama(nn.Module):
    def __init__(self, shape: Language) -> None:
        super().__init__()
        self.shape = shape
        self.embed_tokens = nn.Embedding(shape.vocab, shape.dim)
        self.layers = nn.ModuleList(_Layer(shape) for _ in range(shape.layers))
        self.norm = _Norm(shape)
        self.lm_head = nn.Linear(shape.dim, shape.vocab, bias=False)
        frequency = 1.0 / shape.rope_theta ** (torch.arange(0, shape.head_dim, 2).float() / shape.head_dim)
        angle = torch.outer(torch.arange(shape.context).float(), frequency)[:, None]
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, tokens: Tensor, input_pos: Tensor) -> Tensor:
        start, length = input_pos[0].item(), tokens.shape[1]
        torch._check(start >= 0)
        torch._check(start + length < self.shape.context)
        cos, sin = self.cos.narrow(0, start, length), self.sin.narrow(0, start, length)
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x, start, cos, sin)
        return self.lm_head(self.norm(x[:, -1:]))


def tuned(shape: Language, weights: dict[str, np.ndarray]) -> nn.Module:
    """The model with these weights, which are named as the zoo names them; forward(tokens, input_pos) as the zoo's."""
    model = _Llama(shape)
    state = {name: torch.from_numpy(value) for name, value in weights.items()}
    state.setdefault("lm_head.weight", state["embed_tokens.weight"])
    missing, unexpected = model.load_state_dict(state, strict=False)
    if unexpected or any(not name.endswith("_cache") for name in missing):
        raise ValueError(f"weights don't fit: missing {missing}, unexpected {unexpected}")
    return model.eval().requires_grad_(False)
