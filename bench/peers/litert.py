"""LiteRT with its XNNPACK delegate: programs by litert-torch, quantized by ai-edge-quantizer."""

from pathlib import Path
from typing import Any

import numpy as np

from .work import LANGUAGES, Language, NotMeasured, Stopwatch, Work

VARIANTS = {"litert": "LiteRT, dynamic range by ai-edge-quantizer; the cache is an input and an output"}
VENV = "litert"


def supports(variant: str, model: str) -> bool:
    return True


def _functional(model: str):
    """The language model with its caches as inputs and outputs, in the zoo's own definition otherwise."""
    import torch

    from . import models

    shape = LANGUAGES[model]

    class Functional(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = models.module(model)
            self.names = [name for name, _ in self.inner.named_buffers() if name.endswith("_cache")]

        def forward(self, tokens, input_pos, *caches):
            modules = dict(self.inner.named_modules())
            for name, cache in zip(self.names, caches, strict=True):
                owner, leaf = name.rsplit(".", 1)
                modules[owner]._buffers[leaf] = cache.clone()
            logits = self.inner(tokens, input_pos)
            updated = [modules[name.rsplit(".", 1)[0]]._buffers[name.rsplit(".", 1)[1]] for name in self.names]
            return logits, *updated

    module = Functional().eval()
    caches = [torch.zeros(1, shape.kv_heads, shape.context, shape.head_dim) for _ in module.names]
    return module, caches


def _recipe(scheme: str):
    from ai_edge_quantizer import recipe

    return {"int8": recipe.dynamic_wi8_afp32, "int4": recipe.dynamic_wi4_afp32}[scheme]()


def prepare(variant: str, model: str, scheme: str, folder: Path, work: Work) -> dict[str, Any]:
    import litert_torch
    import torch

    from . import models

    target, floating = folder / "model.tflite", folder / "float.tflite"
    if model in LANGUAGES:
        module, caches = _functional(model)
        watch = Stopwatch()
        with torch.no_grad():
            converter = litert_torch.signature("prefill", module, (*models.inputs(model, work.prompt), *caches))
            program = converter.signature("decode", module, (*models.inputs(model, 1), *caches)).convert()
    else:
        watch = Stopwatch()
        with torch.no_grad():
            program = litert_torch.convert(models.module(model), models.inputs(model))
    program.export(str(floating))
    if scheme == "f32":
        floating.replace(target)
    else:
        from ai_edge_quantizer import quantizer as quantizers

        if model == "mobilenet":
            from ai_edge_quantizer import recipe

            quantizer = quantizers.Quantizer(str(floating), recipe.static_wi8_ai8())
            import ai_edge_litert.interpreter as tfl

            name = list(tfl.Interpreter(str(floating)).get_signature_list())[0]
            key = tfl.Interpreter(str(floating)).get_signature_list()[name]["inputs"][0]
            statistics = quantizer.calibrate({name: [{key: call[0].numpy()} for call in models.calibration(model)]})
            quantizer.quantize(statistics).export_model(str(target), overwrite=True)
        else:
            quantizers.Quantizer(str(floating), _recipe(scheme)).quantize().export_model(str(target), overwrite=True)
        floating.unlink()
    return {**watch.read(), "file_bytes": target.stat().st_size}


def _scale_and_zero(details: dict) -> tuple[float, int]:
    parameters = details["quantization_parameters"]
    [scale], [zero] = parameters["scales"], parameters["zero_points"]
    return float(scale), int(zero)


def _as_declared(array: np.ndarray, details: dict) -> np.ndarray:
    """Converters make int32 of int64, and int8 of the input of a calibrated network; this isn't timed."""
    if details["dtype"] == np.int8 and array.dtype == np.float32:
        scale, zero = _scale_and_zero(details)
        return np.clip(np.rint(array / scale) + zero, -128, 127).astype(np.int8)
    return array.astype(details["dtype"], copy=False)


def _as_float(array: np.ndarray, details: dict) -> np.ndarray:
    if array.dtype != np.int8:
        return array
    scale, zero = _scale_and_zero(details)
    return (array.astype(np.float32) - zero) * scale


class _Session:
    def __init__(self, path: Path, threads: int, shape: Language | None) -> None:
        from ai_edge_litert.interpreter import Interpreter

        self.shape = shape
        self.interpreter = Interpreter(str(path), num_threads=threads)
        names = list(self.interpreter.get_signature_list())
        if shape is None:
            self.runners = {1: self.interpreter.get_signature_runner(names[0])}
            self.output_details = self.runners[1].get_output_details()
        else:
            self.runners = {name: self.interpreter.get_signature_runner(name) for name in ("prefill", "decode")}
            self.prompt = self.runners["prefill"].get_input_details()["args_0"]["shape"][1]
            count = 2 * shape.layers
            self.caches = [np.zeros((1, shape.kv_heads, shape.context, shape.head_dim), np.float32) for _ in range(count)]
        for runner in self.runners.values():  # what the first call would do: it belongs to loading
            runner._interpreter_wrapper.AllocateTensors(runner._subgraph_index)

    def rewind(self) -> None:
        pass  # the positions say which rows of the cache are in use

    def _runner(self, length: int):
        if self.shape is None:
            return self.runners[1]
        if length not in (1, self.prompt):
            raise NotMeasured(f"converted for prompts of {self.prompt} tokens")
        return self.runners["decode" if length == 1 else "prefill"]

    def prepare(self, *arrays: np.ndarray):
        details = self._runner(arrays[0].shape[1]).get_input_details()
        return tuple(_as_declared(array, details[f"args_{i}"]) for i, array in enumerate(arrays))

    def call(self, prepared) -> np.ndarray:
        if self.shape is None:
            runner = self.runners[1]
            [(name, output)] = runner(**{f"args_{i}": array for i, array in enumerate(prepared)}).items()
            return _as_float(output, self.output_details[name])
        inputs = {f"args_{i}": array for i, array in enumerate((*prepared, *self.caches))}
        outputs = self._runner(prepared[0].shape[1])(**inputs)
        self.caches = [outputs[f"output_{i + 1}"] for i in range(len(self.caches))]
        return outputs["output_0"]


def import_runtime() -> None:
    import ai_edge_litert.interpreter  # noqa: F401


def command(variant: str, model: str, scheme: str, folder: Path, work: Work, threads: int, out: Path) -> None:
    return None


def session(variant: str, model: str, scheme: str, folder: Path, threads: int) -> _Session:
    return _Session(folder / "model.tflite", threads, LANGUAGES.get(model))
