"""OpenVINO on its CPU plugin in float32 inference precision: stateful models for language, nncf for quantization."""

from pathlib import Path
from typing import Any

import numpy as np

from .work import LANGUAGES, Language, Stopwatch, Work

VARIANTS = {"openvino": "OpenVINO, f32 inference precision, weights and activations by nncf"}
VENV = "venv"


def supports(variant: str, model: str) -> bool:
    return True


def _llama(shape: Language, weights: dict[str, np.ndarray]):
    """The model in the form that the plugin fuses: cache in variables that grow by concatenation, one SDPA for each layer."""
    import openvino as ov
    from openvino import opset13 as op

    def constant(value, kind=np.float32):
        return op.constant(np.asarray(value, kind))

    tokens = op.parameter([1, -1], ov.Type.i64, name="tokens")
    positions = op.parameter([-1], ov.Type.i64, name="positions")
    beam = op.parameter([1], ov.Type.i32, name="beam_idx")
    frequency = 1.0 / shape.rope_theta ** (np.arange(0, shape.head_dim, 2, dtype=np.float32) / shape.head_dim)
    angle = np.tile(np.outer(np.arange(shape.context, dtype=np.float32), frequency), 2)
    axis0 = constant(0, np.int64)

    def row(table):  # [1, 1, S, head_dim]
        return op.unsqueeze(op.gather(constant(table), positions, axis0), constant([0, 1], np.int64))

    cos, sin = row(np.cos(angle)), row(np.sin(angle))
    sinks = []

    def norm(x, name):
        square = op.reduce_mean(op.power(x, constant(2.0)), constant([-1], np.int64), True)
        inverse = op.divide(constant(1.0), op.sqrt(op.add(square, constant(shape.eps))))
        return op.multiply(op.multiply(x, inverse), constant(weights[name]))

    def linear(x, name):
        return op.matmul(x, constant(weights[name]), False, True)

    def heads(x, count):
        return op.transpose(op.reshape(x, constant([0, 0, count, shape.head_dim], np.int64), True), constant([0, 2, 1, 3], np.int64))

    def rotated(x):
        half, one, last = shape.head_dim // 2, constant([1], np.int64), constant([3], np.int64)
        first = op.slice(x, constant([0], np.int64), constant([half], np.int64), one, last)
        second = op.slice(x, constant([half], np.int64), constant([2**62], np.int64), one, last)
        return op.add(op.multiply(x, cos), op.multiply(op.concat([op.multiply(second, constant(-1.0)), first], -1), sin))

    def cached(x, name):
        empty = constant(np.zeros((1, shape.kv_heads, 0, shape.head_dim)))
        past = op.read_value(empty, name, ov.Type.f32, ov.PartialShape([1, shape.kv_heads, -1, shape.head_dim]))
        whole = op.concat([op.gather(past, beam, axis0), x], 2)
        sinks.append(op.assign(whole, name))
        return whole

    def repeated(x):
        group = shape.heads // shape.kv_heads
        if group == 1:
            return x
        sizes = op.shape_of(x)
        count = op.gather(sizes, constant([2], np.int64), axis0)
        target = op.concat([constant([1, shape.kv_heads, group], np.int64), count, constant([shape.head_dim], np.int64)], 0)
        wide = op.broadcast(op.unsqueeze(x, constant(2, np.int64)), target, "BIDIRECTIONAL")
        return op.reshape(wide, constant([0, shape.heads, -1, shape.head_dim], np.int64), True)

    x = op.gather(constant(weights["embed_tokens.weight"]), tokens, axis0)
    mask = None
    for index in range(shape.layers):
        stem = f"layers.{index}."
        y = norm(x, stem + "input_layernorm.weight")
        q = rotated(heads(linear(y, stem + "self_attn.q_proj.weight"), shape.heads))
        k = cached(rotated(heads(linear(y, stem + "self_attn.k_proj.weight"), shape.kv_heads)), f"k{index}")
        v = cached(heads(linear(y, stem + "self_attn.v_proj.weight"), shape.kv_heads), f"v{index}")
        if mask is None:
            total = op.squeeze(op.gather(op.shape_of(k), constant([2], np.int64), axis0), axis0)
            columns = op.range(constant(0, np.int64), total, constant(1, np.int64), "i64")
            visible = op.greater_equal(op.unsqueeze(positions, constant(1, np.int64)), op.unsqueeze(columns, axis0))
            additive = op.select(visible, constant(0.0), constant(np.finfo(np.float32).min))
            mask = op.unsqueeze(additive, constant([0, 1], np.int64))
        y = op.scaled_dot_product_attention(q, repeated(k), repeated(v), mask, constant(shape.head_dim**-0.5))
        y = op.reshape(op.transpose(y, constant([0, 2, 1, 3], np.int64)), constant([0, 0, shape.dim], np.int64), True)
        x = op.add(x, linear(y, stem + "self_attn.o_proj.weight"))
        y = norm(x, stem + "post_attention_layernorm.weight")
        y = op.multiply(op.swish(linear(y, stem + "mlp.gate_proj.weight")), linear(y, stem + "mlp.up_proj.weight"))
        x = op.add(x, linear(y, stem + "mlp.down_proj.weight"))
    last = op.slice(x, constant([-1], np.int64), constant([2**62], np.int64), constant([1], np.int64), constant([1], np.int64))
    head = "embed_tokens.weight" if shape.tied else "lm_head.weight"
    logits = op.result(linear(norm(last, "norm.weight"), head))
    return ov.Model([logits], sinks, [tokens, positions, beam], "llama")


def prepare(variant: str, model: str, scheme: str, folder: Path, work: Work) -> dict[str, Any]:
    import nncf
    import openvino as ov

    from . import models

    if model in LANGUAGES:
        source = models.weights(model)
        watch = Stopwatch()
        converted = _llama(LANGUAGES[model], source)
        if scheme == "int8":
            converted = nncf.compress_weights(converted, mode=nncf.CompressWeightsMode.INT8_SYM)
        elif scheme == "int4":
            mode = nncf.CompressWeightsMode.INT4_SYM
            converted = nncf.compress_weights(converted, mode=mode, group_size=32, ratio=1.0, all_layers=True)
    else:
        module, example = models.module(model), models.inputs(model)
        calls = models.calibration(model) if scheme == "int8" else []
        watch = Stopwatch()
        shapes = [tuple(value.shape) for value in example]
        converted = ov.convert_model(module, example_input=example, input=shapes)
        if scheme == "int8":
            dataset = nncf.Dataset([[value.numpy() for value in call] for call in calls])
            kind = nncf.ModelType.TRANSFORMER if model == "minilm" else None
            converted = nncf.quantize(converted, dataset, model_type=kind, subset_size=len(calls))
    ov.save_model(converted, folder / "model.xml", compress_to_fp16=False)
    taken = watch.read()
    size = sum(file.stat().st_size for file in (folder / "model.xml", folder / "model.bin"))
    return {**taken, "file_bytes": size}


class _Session:
    def __init__(self, path: Path, threads: int, language: bool) -> None:
        import openvino as ov

        options = {
            "INFERENCE_PRECISION_HINT": "f32",
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": 1,
            "INFERENCE_NUM_THREADS": threads,
        }
        self.language = language
        self.request = ov.Core().compile_model(path, "CPU", options).create_infer_request()

    def rewind(self) -> None:
        if self.language:
            self.request.reset_state()

    def prepare(self, *arrays: np.ndarray) -> list[np.ndarray]:
        return [*arrays, np.zeros(1, np.int32)] if self.language else list(arrays)

    def call(self, prepared: list[np.ndarray]) -> np.ndarray:
        return self.request.infer(prepared, share_inputs=True)[0]


def import_runtime() -> None:
    import openvino  # noqa: F401


def command(variant: str, model: str, scheme: str, folder: Path, work: Work, threads: int, out: Path) -> None:
    return None


def session(variant: str, model: str, scheme: str, folder: Path, threads: int) -> _Session:
    return _Session(folder / "model.xml", threads, model in LANGUAGES)
