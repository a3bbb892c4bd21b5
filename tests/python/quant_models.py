"""Small models for the tests of quantization, with their calls and what eager PyTorch gives for them.

A `Model` is everything a test needs: the module to export, calls in order on one instance, calls to calibrate with. The models of
CASES are the smallest ones that show faults which people reported of other quantizers; DECODERS are one tiny language model for each
way to write its cache.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim

from dovetail_zoo.llama import CACHE_WRITERS, Llama, LlamaConfig

Call = tuple[Tensor, ...]


@dataclass
class Model:
    module: nn.Module
    calls: list[Call]
    dynamic_shapes: Any = None
    calibration: list[Call] | None = None  # the calls, unless given
    more: list[list[Call]] = field(default_factory=list)  # further sequences of calls, each on a fresh instance
    decompose: bool = False  # for operators that the importer takes after run_decompositions() only

    def export(self, path: Path) -> Path:
        program = torch.export.export(copy.deepcopy(self.module.eval()), copy.deepcopy(self.calls[0]), dynamic_shapes=self.dynamic_shapes)
        torch.export.save(program.run_decompositions() if self.decompose else program, path)
        return path

    def eager(self, calls: list[Call] | None = None) -> list[list[np.ndarray]]:
        """The outputs of each call, from the state that the module has now."""
        module, outputs = copy.deepcopy(self.module.eval()), []
        with torch.no_grad():
            for args in self.calls if calls is None else calls:
                result = module(*copy.deepcopy(args))
                outputs.append([t.clone().numpy() for t in (result if isinstance(result, (tuple, list)) else (result,))])
        return outputs

    def calibration_calls(self) -> list[Call]:
        return self.calls if self.calibration is None else self.calibration


def write_calls(calls: list[Call], folder: Path) -> list[Path]:
    """One .npz for each call, in order of their names."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{index:03}.npz" for index in range(len(calls))]
    for file, args in zip(files, calls, strict=True):
        np.savez(file, **{f"input_{leaf}": value.numpy() for leaf, value in enumerate(args)})
    return files


def noise(seed: int, *shape: int, scale: float = 1.0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale


def seeded(make: Callable[[], nn.Module], seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return make().eval().requires_grad_(False)


# A decoder for each way to write a cache.

PROMPTS = ([3, 17, 42, 8, 60, 25], [51, 9, 33, 2, 14, 47])
STEPS = [11, 29, 5, 40]
FIRST_POSITION = 4  # rows 0 to 3 are never written: attention reads what the cache holds at first
STATEFUL_INITIAL = "index_copy"  # the one kind whose cache is not zero at first


def decoder_calls(prompt: list[int]) -> list[Call]:
    calls = [(torch.tensor([prompt]), torch.arange(FIRST_POSITION, FIRST_POSITION + len(prompt)))]
    for index, token in enumerate(STEPS):
        calls.append((torch.tensor([[token]]), torch.tensor([FIRST_POSITION + len(prompt) + index])))
    return calls


def decoder(kind: str) -> Model:
    """Two layers of dimension 32; the attention's outputs are large beside the embedding's, so logits depend on the prompt."""
    torch.manual_seed(2)
    config = LlamaConfig(vocab=64, dim=32, layers=2, heads=2, kv_heads=2, hidden=64, cache_length=32, cache_style=kind)
    module = Llama(config).eval().requires_grad_(False)
    for name, parameter in module.named_parameters():
        if parameter.dim() > 1:
            gain = 2.0 if name.split(".")[-2] in ("v_proj", "o_proj", "down_proj") else 0.6
            scale = 1.0 if "embed" in name else gain / parameter.shape[1] ** 0.5
            nn.init.uniform_(parameter, -(3**0.5) * scale, 3**0.5 * scale)
    if kind == STATEFUL_INITIAL:
        for index, layer in enumerate(module.layers):
            layer.self_attn.k_cache.copy_(noise(index, 1, 2, 32, 16, scale=0.6))
            layer.self_attn.v_cache.copy_(noise(9 + index, 1, 2, 32, 16, scale=2.0))
    length = Dim("seq", min=1, max=config.cache_length - 1)
    first, second = (decoder_calls(prompt) for prompt in PROMPTS)
    return Model(module, first, {"tokens": {1: length}, "input_pos": {0: length}}, calibration=first + second, more=[second], decompose=kind == "one_hot_where")


DECODERS = sorted(CACHE_WRITERS)


class Decoders:
    """Decoders by kind, made once each: the model, its file, the sequences of calls that `sequences_of` gives, and eager's outputs of each sequence."""

    def __init__(self, folder: Path, sequences_of: Callable[[Model], list[list[Call]]]) -> None:
        self.folder, self.sequences_of = folder, sequences_of
        self.made: dict[str, tuple[Model, Path, list[list[Call]], list[list[list[np.ndarray]]]]] = {}

    def __call__(self, kind: str):
        if kind not in self.made:
            model = decoder(kind)
            sequences = self.sequences_of(model)
            self.made[kind] = model, model.export(self.folder / f"{kind}.pt2"), sequences, [model.eager(calls) for calls in sequences]
        return self.made[kind]


# States.

class SharedSpecState(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.zeros(4))

    def forward(self, x: Tensor, index: Tensor) -> Tensor:
        self.state.index_put_((index,), x)
        return self.state + 0


def case01_index_put() -> Model:
    return Model(SharedSpecState(), [(torch.tensor([value]), torch.tensor([index])) for value, index in ((3.0, 2), (4.0, 0), (1.0, 1))])


class OneLayer(nn.Module):
    """Attention of two heads over a cache [1, 2, 16, 4]."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(12, 8)
        self.q, self.k, self.v, self.out, self.head = (nn.Linear(8, n, bias=False) for n in (8, 8, 8, 8, 12))
        for layer in (self.q, self.k, self.v, self.out):
            nn.init.normal_(layer.weight, std=0.7)
        self.register_buffer("k_cache", torch.zeros(1, 2, 16, 4))
        self.register_buffer("v_cache", torch.zeros(1, 2, 16, 4))
        self.register_buffer("mask", torch.tril(torch.ones(16, 16, dtype=torch.bool)), persistent=False)

    def forward(self, tokens: Tensor, position: Tensor) -> Tensor:
        x = self.embed(tokens)
        q, k, v = (layer(x).view(1, -1, 2, 4).transpose(1, 2) for layer in (self.q, self.k, self.v))
        self.k_cache[:, :, position] = k
        self.v_cache[:, :, position] = v
        y = F.scaled_dot_product_attention(q, self.k_cache, self.v_cache, attn_mask=self.mask[position])
        return self.head(x + self.out(y.transpose(1, 2).reshape(1, -1, 8)))


def case02_decoder() -> Model:
    sequences = [[(torch.tensor([[token]]), torch.tensor([i])) for i, token in enumerate((*prompt, 7, 1))] for prompt in ([3, 9, 4], [11, 0, 6])]
    return Model(seeded(OneLayer, 3), sequences[0], calibration=sequences[0] + sequences[1], more=[sequences[1]])


class InitialOnes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("k", torch.ones(4, 2), persistent=False)

    def forward(self, index: Tensor, rows: Tensor) -> Tensor:
        self.k.index_copy_(0, index, rows)
        return self.k + 0


def case03_initial_state() -> Model:
    return Model(InitialOnes(), [(torch.tensor([1]), torch.tensor([[5.0, 6.0]])), (torch.tensor([3]), torch.tensor([[7.0, 8.0]]))])


class Decay(nn.Module):
    def __init__(self, twice: bool = False) -> None:
        super().__init__()
        self.register_buffer("s", torch.zeros(1, 4))
        if twice:
            self.register_buffer("alias", self.s)

    def forward(self, x: Tensor) -> Tensor:
        previous = self.s.clone()
        self.s.copy_(previous * 0.5 + x)
        return previous * 2 + previous


def case12_stored_state() -> Model:
    return Model(Decay(), [(torch.ones(1, 4),)] * 3)


class AliasedDecay(Decay):
    def __init__(self) -> None:
        super().__init__(twice=True)

    def forward(self, x: Tensor) -> Tensor:
        previous = self.alias.clone()
        self.s.copy_(previous * 0.5 + x)
        return previous * 2 + previous


def case12_aliased_state() -> Model:
    return Model(AliasedDecay(), [(torch.ones(1, 4),)] * 3)


# Convolutions and pools.

def case15_same_padding(kernel: int) -> Model:
    return Model(seeded(lambda: nn.Conv1d(2, 4, kernel, padding="same")), [(noise(i, 1, 2, 16),) for i in range(3)])


def case17_transposed(groups: int) -> Model:
    module = seeded(lambda: nn.ConvTranspose2d(4, 6, 3, groups=groups))
    per_group = 6 // groups
    for channel in range(6):
        scale = 10.0 ** (channel % 3)
        module.weight[channel // per_group * (4 // groups) : (channel // per_group + 1) * (4 // groups), channel % per_group] *= scale
        module.bias[channel] *= scale
    return Model(module, [(noise(i, 1, 4, 8, 8),) for i in range(3)])


POOLS: dict[str, Callable[[Tensor], Tensor]] = {
    "max_ceil": lambda x: F.max_pool2d(x, 2, 2, ceil_mode=True),
    "max_padded_ceil": lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True),
    "max_dilated": lambda x: F.max_pool2d(x, 2, 1, dilation=2),
    "avg_with_pad": lambda x: F.avg_pool2d(x, 3, 2, 1),
    "avg_without_pad": lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
    "avg_ceil": lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
    "avg_divisor": lambda x: F.avg_pool2d(x, 3, 2, 1, divisor_override=5),
}


class Pool(nn.Module):
    """A pool between two 1x1 convolutions, the first of which passes its input on."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.before, self.after, self.kind = nn.Conv2d(2, 2, 1, bias=False), nn.Conv2d(2, 2, 1, bias=False), kind
        with torch.no_grad():
            for layer in (self.before, self.after):
                layer.weight.copy_(torch.eye(2).view(2, 2, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.after(POOLS[self.kind](self.before(x)))


def case22_pool(kind: str) -> Model:
    return Model(Pool(kind).requires_grad_(False), [(-1 - torch.rand(1, 2, 5, 5, generator=torch.Generator().manual_seed(i)),) for i in range(3)])


class SharedConvolution(nn.Module):
    """One convolution used twice, each use followed by its own batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn1, self.bn2 = nn.Conv2d(2, 2, 3, padding=1, bias=False), nn.BatchNorm2d(2), nn.BatchNorm2d(2)
        self.bn2.running_var.fill_(4.0)

    def forward(self, x: Tensor) -> Tensor:
        return self.bn2(self.conv(self.bn1(self.conv(x))))


def case24_shared_convolution() -> Model:
    return Model(seeded(SharedConvolution), [(noise(i, 1, 2, 6, 6),) for i in range(3)])


class SliceAndAdd(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        return y[:, :4] + y[:, 4:]


def case28_slice() -> Model:
    return Model(seeded(SliceAndAdd), [(noise(i, 1, 3, 8, 8),) for i in range(3)])


class Stem(nn.Module):
    """The start of a vision transformer: patches, a class token in front, positions added."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.cls, self.pos = nn.Conv2d(3, 16, 4, stride=4), nn.Parameter(torch.randn(1, 1, 16)), nn.Parameter(torch.randn(1, 17, 16) * 0.3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.patches(x).flatten(2).transpose(1, 2)
        return torch.cat([self.cls.expand(x.shape[0], -1, -1), y], 1) + self.pos


def case28_stem() -> Model:
    return Model(seeded(Stem), [(noise(i, 1, 3, 16, 16),) for i in range(3)])


class SharedResidual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.c = nn.Conv2d(2, 2, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.c(x)
        return F.relu(self.c(F.relu(y)) + y)


def case29_shared_residual() -> Model:
    return Model(seeded(SharedResidual), [(noise(i, 1, 2, 6, 6),) for i in range(3)])


# Linears.

class SharedInput(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = nn.Linear(8, 8), nn.Linear(8, 4), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return self.q(x), self.k(x), self.v(x), x.sum()


def case30_shared_input() -> Model:
    return Model(seeded(SharedInput), [(noise(i, 5, 8),) for i in range(3)])


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.g, self.u, self.down = nn.Linear(8, 16), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.g(x)) * self.u(x))


def case30_feed_forward() -> Model:
    return Model(seeded(FeedForward), [(noise(i, 5, 8),) for i in range(3)])


def case32_convolution_without_bias() -> Model:
    return Model(seeded(lambda: nn.Conv2d(4, 4, 3, padding=1, bias=False)), [(noise(i, 1, 4, 8, 8),) for i in range(3)])


def case33_degenerate() -> Model:
    """Rows of zeros, of one value, of very different and of huge values, and no rows."""
    zeros = torch.zeros(2, 8)
    mixed = torch.stack([torch.zeros(8), torch.full((8,), 100.0)])
    calls = [(zeros,), (torch.full((2, 8), 3.0),), (mixed,), (noise(1, 2, 8) * 1e30,), (torch.zeros(0, 8),)]
    return Model(seeded(lambda: nn.Linear(8, 4)), calls, ({0: Dim("batch", min=0, max=8)},))


def case35_calibration(kind: str) -> Model:
    """Linear(8, 4), called with what is like the calibration where that makes sense."""
    clean = noise(1, 4, 8)
    broken = clean.clone()
    broken[1, 3] = {"nan": float("nan"), "minus_infinity": float("-inf")}.get(kind, broken[1, 3].item())
    constant = {"zeros": 0.0, "three": 3.0, "minus_three": -3.0}.get(kind)
    calibration = [(clean,), (broken,)] if constant is None else [(torch.full((4, 8), constant),)]
    call = clean if constant is None else calibration[0][0]
    return Model(seeded(lambda: nn.Linear(8, 4)), [(call,)], calibration=calibration)


class Tied(nn.Module):
    """Ids to logits with one matrix for both, by a Linear or by a product with its transpose; dim 64 is two groups of 32."""

    def __init__(self, by_product: bool, tied: bool = True) -> None:
        super().__init__()
        self.embed, self.by_product = nn.Embedding(96, 64), by_product
        self.head = nn.Linear(64, 96, bias=False)
        if tied:
            self.head.weight = self.embed.weight
        else:
            self.head.weight = nn.Parameter(self.embed.weight.detach().clone())

    def forward(self, ids: Tensor) -> Tensor:
        x = F.silu(self.embed(ids))
        return x @ self.head.weight.T if self.by_product else self.head(x)


def case37_tied(by_product: bool, tied: bool = True) -> Model:
    return Model(seeded(lambda: Tied(by_product, tied)), [(torch.tensor([[1, 5, 95]]),), (torch.tensor([[0, 33, 7]]),)])


def case38_groups(inputs: int, outputs: int) -> Model:
    return Model(seeded(lambda: nn.Linear(inputs, outputs)), [(noise(i, 3, inputs),) for i in range(3)])


class Recurrent(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.rnn = getattr(nn, kind)(4, 6, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.rnn(x)[0]


def case40_recurrent(kind: str) -> Model:
    return Model(seeded(lambda: Recurrent(kind)), [(noise(i, 1, 5, 4),) for i in range(3)], decompose=True)


CASES: dict[str, Callable[[], Model]] = {
    "case01_index_put": case01_index_put,
    "case02_decoder": case02_decoder,
    "case03_initial_state": case03_initial_state,
    "case12_stored_state": case12_stored_state,
    "case12_aliased_state": case12_aliased_state,
    **{f"case15_same_padding_{k}": lambda k=k: case15_same_padding(k) for k in (2, 4)},
    **{f"case17_transposed_{g}": lambda g=g: case17_transposed(g) for g in (1, 2)},
    **{f"case22_{kind}": lambda kind=kind: case22_pool(kind) for kind in POOLS},
    "case24_shared_convolution": case24_shared_convolution,
    "case28_slice": case28_slice,
    "case28_stem": case28_stem,
    "case29_shared_residual": case29_shared_residual,
    "case30_shared_input": case30_shared_input,
    "case30_feed_forward": case30_feed_forward,
    "case32_convolution_without_bias": case32_convolution_without_bias,
    "case33_degenerate": case33_degenerate,
    **{f"case35_{kind}": lambda kind=kind: case35_calibration(kind) for kind in ("nan", "minus_infinity", "zeros", "three", "minus_three")},
    "case37_tied": lambda: case37_tied(False),
    "case37_tied_product": lambda: case37_tied(True),
    "case37_untied": lambda: case37_tied(False, tied=False),
    **{f"case38_{k}x{n}": lambda k=k, n=n: case38_groups(k, n) for k, n in ((288, 288), (36, 8), (64, 7))},
    **{f"case40_{kind.lower()}": lambda kind=kind: case40_recurrent(kind) for kind in ("GRU", "LSTM")},
}
