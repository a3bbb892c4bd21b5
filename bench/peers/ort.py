"""ONNX Runtime on its CPU provider: language models in its generative operators, quantized by its own tools."""

from pathlib import Path
from typing import Any

import numpy as np

from .work import LANGUAGES, Language, NotMeasured, Stopwatch, Work

VARIANTS = {"onnxruntime": "ONNX Runtime, GroupQueryAttention; MatMulNBits of 4 or 8 bits in blocks of 32, int8 activations"}
VENV = "venv"


def supports(variant: str, model: str) -> bool:
    return True


def _llama(shape: Language, weights: dict[str, np.ndarray]):
    """A float32 graph of MatMul, SimplifiedLayerNormalization and GroupQueryAttention, whose cache is an input and an output that
    share a buffer."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    nodes, initializers, made = [], [], set()

    def tensor(name: str, value: np.ndarray) -> str:
        if name not in made:
            made.add(name)
            initializers.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def node(op: str, inputs: list[str], output: str | list[str], domain: str = "", **attributes) -> str:
        outputs = [output] if isinstance(output, str) else output
        nodes.append(helper.make_node(op, inputs, outputs, name=f"{op}_{outputs[0]}", domain=domain, **attributes))
        return outputs[0]

    def norm(x: str, name: str) -> str:
        weight = tensor(name, weights[name])
        return node("SimplifiedLayerNormalization", [x, weight], f"{name}.out", axis=-1, epsilon=shape.eps, stash_type=1)

    def linear(x: str, name: str, source: str | None = None) -> str:
        return node("MatMul", [x, tensor(f"{name}.t", weights[source or name].T)], f"{name}.out")

    frequency = 1.0 / shape.rope_theta ** (np.arange(0, shape.head_dim, 2, dtype=np.float32) / shape.head_dim)
    angle = np.outer(np.arange(shape.context, dtype=np.float32), frequency)
    cos, sin = tensor("cos", np.cos(angle)), tensor("sin", np.sin(angle))
    x = node("Gather", [tensor("embed", weights["embed_tokens.weight"]), "tokens"], "x", axis=0)
    cache_shape = [1, shape.kv_heads, shape.context, shape.head_dim]
    inputs = [
        helper.make_tensor_value_info("tokens", TensorProto.INT64, [1, "length"]),
        helper.make_tensor_value_info("seqlens_k", TensorProto.INT32, [1]),
        helper.make_tensor_value_info("total", TensorProto.INT32, []),
    ]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 1, shape.vocab])]
    for index in range(shape.layers):
        stem = f"layers.{index}."
        y = norm(x, stem + "input_layernorm.weight")
        q, k, v = (linear(y, f"{stem}self_attn.{name}_proj.weight") for name in "qkv")
        attention = [q, k, v, f"past_k{index}", f"past_v{index}", "seqlens_k", "total", cos, sin]
        y = node(
            "GroupQueryAttention", attention, [f"{stem}attention", f"present_k{index}", f"present_v{index}"], "com.microsoft",
            num_heads=shape.heads, kv_num_heads=shape.kv_heads, do_rotary=1, rotary_interleaved=0, scale=shape.head_dim**-0.5,
        )  # fmt: skip
        for name in (f"k{index}", f"v{index}"):
            inputs.append(helper.make_tensor_value_info(f"past_{name}", TensorProto.FLOAT, cache_shape))
            outputs.append(helper.make_tensor_value_info(f"present_{name}", TensorProto.FLOAT, cache_shape))
        x = node("Add", [x, linear(y, stem + "self_attn.o_proj.weight")], f"{stem}x1")
        y = norm(x, stem + "post_attention_layernorm.weight")
        gate, up = linear(y, stem + "mlp.gate_proj.weight"), linear(y, stem + "mlp.up_proj.weight")
        silu = node("Mul", [gate, node("Sigmoid", [gate], f"{stem}sigmoid")], f"{stem}silu")
        y = linear(node("Mul", [silu, up], f"{stem}product"), stem + "mlp.down_proj.weight")
        x = node("Add", [x, y], f"{stem}x2")
    ranges = [tensor(name, np.array([value])) for name, value in (("minus1", -1), ("end", 2**62), ("axis1", 1))]
    last = node("Slice", [x, *ranges], "last")
    head = linear(norm(last, "norm.weight"), "lm_head.weight", "embed_tokens.weight" if shape.tied else None)
    nodes[-1].output[0] = "logits"
    assert head
    graph = helper.make_graph(nodes, "llama", inputs, outputs, initializers)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=min(onnx.IR_VERSION, 11))


def _export(model: str, path: Path) -> None:
    """torch's own exporter, at the one shape that is measured."""
    import torch

    from . import models

    with torch.no_grad():
        torch.onnx.export(models.module(model), models.inputs(model), str(path), dynamo=True, external_data=False, opset_version=18)


def prepare(variant: str, model: str, scheme: str, folder: Path, work: Work) -> dict[str, Any]:
    import onnx

    from . import models

    target = folder / "model.onnx"
    if model in LANGUAGES:
        from onnxruntime.quantization.matmul_nbits_quantizer import DefaultWeightOnlyQuantConfig, MatMulNBitsQuantizer

        source = models.weights(model)
        watch = Stopwatch()
        proto = _llama(LANGUAGES[model], source)
        if scheme != "f32":
            bits = {"int4": 4, "int8": 8}[scheme]
            config = DefaultWeightOnlyQuantConfig(block_size=32, is_symmetric=True, accuracy_level=4, bits=bits)
            quantizer = MatMulNBitsQuantizer(proto, algo_config=config)
            quantizer.process()
            proto = quantizer.model.model
        onnx.save(proto, target)
        return {**watch.read(), "file_bytes": target.stat().st_size}

    from onnxruntime.quantization import CalibrationDataReader, QuantType, quant_pre_process, quantize_dynamic, quantize_static

    exported, ready = folder / "exported.onnx", folder / "ready.onnx"
    calls = models.calibration(model) if scheme == "int8" else []
    watch = Stopwatch()
    _export(model, exported)
    export_seconds = watch.read()["seconds"]
    if model == "minilm":
        from onnxruntime.transformers.optimizer import optimize_model

        optimize_model(str(exported), model_type="bert", num_heads=12, hidden_size=384, opt_level=0).save_model_to_file(str(ready))
    else:
        quant_pre_process(str(exported), str(ready))
    if scheme == "f32":
        ready.replace(target)
    elif model == "minilm":
        quantize_dynamic(str(ready), str(target), per_channel=True, weight_type=QuantType.QInt8)
    elif model == "mobilenet":

        class Reader(CalibrationDataReader):
            def __init__(self) -> None:
                name = onnx.load(ready).graph.input[0].name
                self.rest = iter([{name: call[0].numpy()} for call in calls])

            def get_next(self):
                return next(self.rest, None)

        kinds = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
        quantize_static(str(ready), str(target), Reader(), per_channel=True, **kinds)
    else:
        raise NotMeasured(f"no scheme {scheme}")
    return {**watch.read(), "export_seconds": export_seconds, "file_bytes": target.stat().st_size}


class _Session:
    def __init__(self, path: Path, threads: int, shape: Language | None) -> None:
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 3
        self.session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.shape = shape
        if shape:
            self.caches = {}
            for index in range(shape.layers):
                for name in (f"k{index}", f"v{index}"):
                    zeros = np.zeros((1, shape.kv_heads, shape.context, shape.head_dim), np.float32)
                    self.caches[name] = ort.OrtValue.ortvalue_from_numpy(zeros)
            self.logits = ort.OrtValue.ortvalue_from_numpy(np.zeros((1, 1, shape.vocab), np.float32))

    def rewind(self) -> None:
        pass  # lengths say which rows of the cache are in use

    def prepare(self, *arrays: np.ndarray):
        if self.shape is None:
            return dict(zip((i.name for i in self.session.get_inputs()), arrays, strict=True))
        tokens, positions = arrays
        binding = self.session.io_binding()
        inputs = {"tokens": tokens, "seqlens_k": positions[-1:].astype(np.int32), "total": np.array(positions[-1] + 1, np.int32)}
        for name, array in inputs.items():
            binding.bind_cpu_input(name, array)
        for name, cache in self.caches.items():
            binding.bind_ortvalue_input(f"past_{name}", cache)
            binding.bind_ortvalue_output(f"present_{name}", cache)
        binding.bind_ortvalue_output("logits", self.logits)
        return binding, inputs  # a binding doesn't keep its arrays alive

    def call(self, prepared) -> np.ndarray:
        if self.shape is None:
            return self.session.run(None, prepared)[0]
        self.session.run_with_iobinding(prepared[0])
        return self.logits.numpy()


def import_runtime() -> None:
    import onnxruntime  # noqa: F401


def command(variant: str, model: str, scheme: str, folder: Path, work: Work, threads: int, out: Path) -> None:
    return None


def session(variant: str, model: str, scheme: str, folder: Path, threads: int) -> _Session:
    return _Session(folder / "model.onnx", threads, LANGUAGES.get(model))
