"""The table of models: a name, and a function of the folder with the downloaded wheels that returns an `Export`."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from .llama import Llama, LlamaConfig


@dataclass
class Export:
    """What `torch.export.export` is called with, and how to write the files beside the program."""

    module: nn.Module
    args: tuple[Tensor, ...] = ()
    kwargs: dict[str, Tensor] = field(default_factory=dict)
    dynamic_shapes: Any = None
    strict: bool = False
    write_companions: Callable[[Path, str], None] = lambda folder, name: None  # (output folder, model name)


def _prompt(length: int) -> tuple[Tensor, Tensor]:
    return torch.arange(length)[None], torch.arange(length)


def _smollm2(wheel_folder: Path, *, all_logits: bool = False) -> Export:
    from . import smollm2

    path = smollm2.gguf_file(wheel_folder)
    length = Dim("seq", min=1, max=smollm2.CACHE_LENGTH - 1)
    return Export(
        smollm2.model(path, all_logits=all_logits),
        args=_prompt(8),
        dynamic_shapes={"tokens": {1: length}, "input_pos": {0: length}},
        write_companions=partial(smollm2.save_tokenizer, path),
    )


def _smollm2_hf(wheel_folder: Path) -> Export:
    from . import smollm2

    path = smollm2.gguf_file(wheel_folder)
    length = Dim("seq", min=1, max=smollm2.CACHE_LENGTH - 1)
    tokens, positions = _prompt(8)
    return Export(
        smollm2.hugging_face_model(path),
        kwargs={"input_ids": tokens, "cache_position": positions},
        dynamic_shapes={"input_ids": {1: length}, "cache_position": {0: length}},
        strict=True,
        write_companions=partial(smollm2.save_tokenizer, path),
    )


def _tiny_llama(_: Path, *, cache_style: str, grouped_attention: bool = False) -> Export:
    """Random weights of a fixed seed; 2 layers, grouped heads, a cache of 32 positions."""
    config = LlamaConfig(
        vocab=128, dim=64, layers=2, heads=4, kv_heads=2, hidden=128, cache_length=32,
        cache_style=cache_style, grouped_attention=grouped_attention, all_logits=True,
    )
    torch.manual_seed(0)
    module = Llama(config).eval().requires_grad_(False)
    for parameter in module.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.2)
    length = Dim("seq", min=1, max=config.cache_length - 1)
    return Export(module, args=_prompt(5), dynamic_shapes={"tokens": {1: length}, "input_pos": {0: length}})


def _llama110m(_: Path, *, context: int = 256) -> Export:
    from . import llama110m

    length = Dim("seq", min=1, max=context)
    return Export(
        llama110m.model(context),
        args=_prompt(8),
        dynamic_shapes={"tokens": {1: length}, "input_pos": {0: length}},
    )


def _digits_cnn(_: Path) -> Export:
    """A small convolutional net for 8x8 images, random weights of a fixed seed, dynamic batch."""
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.Conv2d(16, 32, 1), nn.BatchNorm2d(32), nn.ReLU6(), nn.MaxPool2d(2),
        nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Dropout(0.1), nn.Linear(128, 10),
    )
    return Export(module.eval(), args=(torch.rand(2, 1, 8, 8),), dynamic_shapes=({0: Dim("batch", min=1, max=64)},))


MODELS: dict[str, Callable[[Path], Export]] = {
    "smollm2": _smollm2,
    "smollm2_all_logits": partial(_smollm2, all_logits=True),
    "smollm2_hf": _smollm2_hf,
    "llama_tiny_index_put": partial(_tiny_llama, cache_style="index_put"),
    "llama_tiny_index_copy": partial(_tiny_llama, cache_style="index_copy"),
    "llama_tiny_slice_copy": partial(_tiny_llama, cache_style="slice_copy"),
    "llama_tiny_functional_copy": partial(_tiny_llama, cache_style="functional_copy"),
    "llama_tiny_one_hot_where": partial(_tiny_llama, cache_style="one_hot_where"),
    "llama_tiny_grouped": partial(_tiny_llama, cache_style="index_put", grouped_attention=True),
    "llama110m": _llama110m,
    "llama110m_4096": partial(_llama110m, context=4096),
    "digits_cnn": _digits_cnn,
}
