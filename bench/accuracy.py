"""Accuracy of quantized programs beside PyTorch's own quantization of the same weights.

    PYTHONPATH=python build/venv/bin/python bench/accuracy.py [--only smollm2,minilm,mobilenet,digits] [--peers-only] [--json]

Prints one table. Rows named "dovetail ..." are compiled and run by this project's command line; the others are PyTorch: the float model in eager mode,
torchao's quantize_ in eager mode, and PT2E with ExecuTorch's XNNPACKQuantizer, the converted program run in eager mode. Peers are computed once
and kept in build/bench/accuracy_peers.json (--fresh computes them again). What is measured:
  smollm2    perplexity of a text (accuracy_models.py says which) in windows of 255 tokens without overlap (--windows of them)
  minilm     cosine of the embeddings of 20 sentences with the float model's: the mean, the least
  mobilenet  on 8 pictures that calibration did not see: how often the first class is the float model's, SQNR of all logits in dB
  digits     share of the 360 test pictures whose digit is right
Needs build/release/bin/dovetail, and build/zoo/smollm2_all_logits.pt2 for smollm2 (./test makes both).
"""

import argparse
import copy
import json
import math
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
warnings.filterwarnings("ignore")

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402

import accuracy_models as models  # noqa: E402
from accuracy_models import FOLDER, ROOT  # noqa: E402

Figures = dict[str, float]
SCHEMES = ["int8-dynamic", "int8-weight-only", "int4", "int4-weight-only"]


# Peers.


def torchao_configs() -> dict[str, object]:
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, Int8DynamicActivationIntxWeightConfig, Int8WeightOnlyConfig, IntxWeightOnlyConfig
    from torchao.quantization.granularity import PerAxis, PerGroup

    return {
        "torchao int8 dynamic": Int8DynamicActivationInt8WeightConfig(),
        "torchao 8da8w": Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int8, weight_granularity=PerAxis(0)),
        "torchao int8 weight-only": Int8WeightOnlyConfig(),
        "torchao 8da4w g32": Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=PerGroup(32)),
        "torchao int4 weight-only g32": IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32)),
    }


def quantized(module: nn.Module, config: object, chosen: Callable[[nn.Module, str], bool]) -> nn.Module:
    from torchao.quantization import quantize_

    module = copy.deepcopy(module)
    quantize_(module, config, chosen)
    return module


def is_linear(module: nn.Module, name: str) -> bool:
    return isinstance(module, nn.Linear)


def pt2e(module: nn.Module, args: tuple[Tensor, ...], calibration: Iterable[tuple[Tensor, ...]], **options: bool) -> nn.Module:
    """The converted program of XNNPACKQuantizer, per channel; `module` is an exported one, or is exported."""
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    graph = module if isinstance(module, torch.fx.GraphModule) else torch.export.export(module, args).module()
    prepared = prepare_pt2e(graph, XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True, **options)))
    for call in calibration:
        prepared(*call)
    return convert_pt2e(prepared)


# Ours.


Calls = Iterable[tuple[Tensor, ...]]


def dovetail(source: Path, calls: Calls, flags: list[str], calibration: Calls = (), keep: Callable = lambda x: x) -> list:
    """The first output of each call of the compiled program, or what `keep` makes of it.

    Calls run one by one, each on a fresh instance, so that large outputs are never all on disk.
    """
    binary = os.environ.get("DOVETAIL") or str(ROOT / "build/release/bin/dovetail")

    def save(path: Path, args: tuple[Tensor, ...]) -> None:
        np.savez(path, **{f"input_{i}": value.numpy() for i, value in enumerate(args)})

    with tempfile.TemporaryDirectory(dir=FOLDER) as scratch:
        folder = Path(scratch)
        if calibration:
            (folder / "calibration").mkdir()
            for index, args in enumerate(calibration):
                save(folder / "calibration" / f"{index:03}.npz", args)
            flags = [*flags, "--calibrate", str(folder / "calibration")]

        def call(*command: object) -> None:
            subprocess.run([binary, *map(str, command)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

        call("compile", source, "-o", folder / "model.pte", *flags)
        results = []
        for args in calls:
            save(folder / "call.npz", args)
            call("run", folder / "model.pte", folder / "call.npz", "-o", folder / "out")
            with np.load(folder / "out" / "call.npz") as arrays:
                results.append(keep(torch.from_numpy(arrays["output_0"])))
        return results


def exported(module: nn.Module, args: tuple[Tensor, ...], name: str, dynamic_shapes: object = None) -> Path:
    path = FOLDER / f"{name}.pt2"
    torch.export.save(torch.export.export(module, args, dynamic_shapes=dynamic_shapes), path)
    return path


# The models: each has peers(), which yields names and figures, and ours(), which yields names and functions that give the figures.


class SmolLM2:
    def __init__(self, count: int) -> None:
        from tokenizers import Tokenizer

        self.zoo = ROOT / "build" / "zoo"
        text, self.digest = models.text()
        tokenizer = Tokenizer.from_file(str(self.zoo / "smollm2_all_logits.tokenizer.json"))
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        starts = range(0, len(ids) - models.WINDOW + 1, models.WINDOW)
        self.windows = [torch.tensor([ids[start : start + models.WINDOW]]) for start in list(starts)[:count]]
        self.calls = [(window, torch.arange(window.shape[1])) for window in self.windows]
        heads = [tokenizer.encode(t, add_special_tokens=False).ids[: models.WINDOW] for t in models.calibration_texts()]
        self.calibration = [(torch.tensor([head]), torch.arange(len(head))) for head in heads]

    @staticmethod
    def loss(logits: Tensor, window: Tensor) -> float:
        return float(nn.functional.cross_entropy(logits[0, :-1].double(), window[0, 1:], reduction="sum"))

    def perplexity(self, losses: list[float]) -> Figures:
        return {"perplexity": math.exp(sum(losses) / sum(window.shape[1] - 1 for window in self.windows))}

    def of(self, module: nn.Module) -> Figures:
        """Each window overwrites what the cache shows it, so that one instance serves for all."""
        with torch.no_grad():
            return self.perplexity([self.loss(module(*call), call[0]) for call in self.calls])

    def peers(self):
        from dovetail_zoo import llama, smollm2
        from torchao.quantization import IntxWeightOnlyConfig
        from torchao.quantization.granularity import PerAxis, PerGroup

        module = smollm2.model(smollm2.gguf_file(self.zoo / "wheels"), all_logits=True)
        untied = copy.deepcopy(module)
        untied.lm_head.weight = nn.Parameter(module.lm_head.weight.clone(), requires_grad=False)
        yield "eager float", self.of(module)

        def write_in_8_bits(cache: Tensor, position: Tensor, rows: Tensor) -> Tensor:
            """A cache whose rows have an asymmetric 8-bit scale of their own."""
            low, high = rows.amin(-1, keepdim=True).clamp(max=0), rows.amax(-1, keepdim=True).clamp(min=0)
            scale = ((high - low) / 255).clamp(min=1e-12)
            zero = (-128 - (low / scale).round()).clamp(-128, 127)
            cache[:, :, position] = ((rows / scale).round() + zero).clamp(-128, 127).sub(zero) * scale
            return cache

        plain = llama.CACHE_WRITERS["index_put"]
        llama.CACHE_WRITERS["index_put"] = write_in_8_bits
        yield "eager float, cache in 8 bits by row", self.of(module)
        llama.CACHE_WRITERS["index_put"] = plain
        embeddings = {
            "4": IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32)),
            "8": IntxWeightOnlyConfig(weight_dtype=torch.int8, granularity=PerAxis(0)),
        }
        for name, config in torchao_configs().items():
            yield f"{name}, head in float", self.of(quantized(untied, config, lambda m, n: is_linear(m, n) and n != "lm_head"))
            with_head = quantized(untied, config, is_linear)
            yield f"{name}, head too", self.of(with_head)
            bits = "4" if "g32" in name else "8"
            yield f"{name}, head and embedding in {bits} bits", self.of(quantized(with_head, embeddings[bits], lambda m, n: isinstance(m, nn.Embedding)))

    def ours(self):
        source = self.zoo / "smollm2_all_logits.pt2"
        plain = [["--quantize", "none"], *(["--quantize", scheme] for scheme in SCHEMES), ["--quantize", "int4-embedding8"], ["--state", "int8"],
                 ["--quantize", "int8-dynamic", "--state", "int8"], ["--quantize", "int4", "--state", "int8"]]  # fmt: skip
        calibrated = [["--quantize", scheme] for scheme in ("int8", "int4", "int4-embedding8")]
        for flags, calibration in [*((f, []) for f in plain), *((f, self.calibration) for f in calibrated)]:

            def run(flags: list[str] = flags, calibration: list[tuple[Tensor, ...]] = calibration) -> Figures:
                windows = iter(self.windows)
                return self.perplexity(dovetail(source, self.calls, flags, calibration, keep=lambda logits: self.loss(logits, next(windows))))

            yield f"dovetail {' '.join(flags)}{', calibrated' if calibration else ''}", run


class MiniLM:
    def __init__(self) -> None:
        self.module, self.calls = models.minilm()
        with torch.no_grad():
            self.float = [self.module(*call) for call in self.calls]

    def of(self, outputs: list[Tensor]) -> Figures:
        cosines = [float(nn.functional.cosine_similarity(a, b)) for a, b in zip(outputs, self.float, strict=True)]
        return {"mean cosine": sum(cosines) / len(cosines), "least cosine": min(cosines)}

    def peers(self):
        for name, config in torchao_configs().items():
            module = quantized(self.module, config, is_linear)
            with torch.no_grad():
                yield name, self.of([module(*call) for call in self.calls])

    def ours(self):
        from torch.export import Dim

        batch, length = Dim("batch", min=1, max=8), Dim("seq", min=2, max=128)
        example = (torch.ones(2, 9, dtype=torch.long), torch.ones(2, 9, dtype=torch.long))
        source = exported(self.module, example, "minilm", ({0: batch, 1: length}, {0: batch, 1: length}))
        for scheme in ("none", "int8", *SCHEMES):
            calibration = self.calls[::4] if scheme == "int8" else []
            yield f"dovetail --quantize {scheme}", lambda s=scheme, c=calibration: self.of(dovetail(source, self.calls, ["--quantize", s], c))


def sqnr(got: Tensor, want: Tensor) -> float:
    return float(10 * torch.log10(want.double().square().sum() / (got.double() - want.double()).square().sum().clamp(min=1e-30)))


class MobileNet:
    def __init__(self) -> None:
        self.module, self.calibration, self.calls = models.mobilenet()
        with torch.no_grad():
            self.float = torch.cat([self.module(*call) for call in self.calls])

    def of(self, outputs: Iterable[Tensor]) -> Figures:
        logits = torch.cat(list(outputs))
        return {"first class": float((logits.argmax(1) == self.float.argmax(1)).double().mean()), "SQNR dB": sqnr(logits, self.float)}

    def peers(self):
        converted = pt2e(self.module, self.calls[0], self.calibration)
        with torch.no_grad():
            yield "PT2E XNNPACKQuantizer static int8", self.of([converted(*call) for call in self.calls])
            converted = pt2e(self.module, self.calls[0], self.calibration[:1], is_dynamic=True)
            yield "PT2E XNNPACKQuantizer dynamic int8", self.of([converted(*call) for call in self.calls])

    def ours(self):
        source = exported(self.module, self.calls[0], "mobilenet")
        for scheme in ("none", "int8", "int8-dynamic", "int8-weight-only"):
            calibration = self.calibration if scheme == "int8" else []
            yield f"dovetail --quantize {scheme}", lambda s=scheme, c=calibration: self.of(dovetail(source, self.calls, ["--quantize", s], c))


class Digits:
    def __init__(self) -> None:
        self.program, self.calibration, self.pictures, self.labels = models.digits()

    def of(self, logits: Tensor) -> Figures:
        return {"right": float((logits.argmax(1) == self.labels).double().mean())}

    def peers(self):
        with torch.no_grad():
            yield "eager float", self.of(self.program.module()(self.pictures))
            yield "PT2E XNNPACKQuantizer static int8", self.of(pt2e(self.program.module(), (self.pictures,), self.calibration)(self.pictures))

    def ours(self):
        source, call = ROOT / "tests" / "fixtures" / "digits_cnn_trained.pt2", [(self.pictures,)]
        for scheme in ("none", "int8", *SCHEMES):
            calibration = self.calibration if scheme == "int8" else []
            yield f"dovetail --quantize {scheme}", lambda s=scheme, c=calibration: self.of(dovetail(source, call, ["--quantize", s], c)[0])


MODELS = {"smollm2": SmolLM2, "minilm": MiniLM, "mobilenet": MobileNet, "digits": Digits}


def main() -> int:
    parser = argparse.ArgumentParser(description="Accuracy of quantized programs")
    parser.add_argument("--only", default=",".join(MODELS), help="models, separated by commas")
    parser.add_argument("--peers-only", action="store_true", help="leave out what the command line compiles")
    parser.add_argument("--fresh", action="store_true", help="compute the peers again")
    parser.add_argument("--windows", type=int, default=8, help="of text for smollm2 (8)")
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    FOLDER.mkdir(parents=True, exist_ok=True)
    cache = FOLDER / "accuracy_peers.json"
    peers: dict[str, dict[str, Figures]] = json.loads(cache.read_text()) if cache.exists() and not options.fresh else {}
    rows: list[tuple[str, str, Figures]] = []
    failed = False

    def add(model: str, name: str, figures: Figures) -> None:
        rows.append((model, name, figures))
        if not options.json:
            print(f"{model:10} {name:62} {'  '.join(f'{key} {value:.4f}' for key, value in figures.items())}", flush=True)

    for name in options.only.split(","):
        if name not in MODELS:
            parser.error(f"no model {name}; there are {', '.join(MODELS)}")
        model = SmolLM2(options.windows) if name == "smollm2" else MODELS[name]()
        kept = f"smollm2, {options.windows} windows" if name == "smollm2" else name
        if kept not in peers:
            found = {}
            for label, figures in model.peers():
                found[label] = figures
                add(name, label, figures)
            peers[kept] = found
            cache.write_text(json.dumps(peers, indent=2))
        else:
            for label, figures in peers[kept].items():
                add(name, label, figures)
        if not options.peers_only:
            for label, run in model.ours():
                try:
                    add(name, label, run())
                except subprocess.CalledProcessError as error:
                    failed = True
                    print(f"{name:10} {label}: {error.stderr.strip()}", file=sys.stderr)
    if options.json:
        print(json.dumps([{"model": model, "name": name, **figures} for model, name, figures in rows], indent=2))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
