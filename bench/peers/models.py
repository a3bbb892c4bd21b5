"""The PyTorch side of the models: modules, exported programs, weights, and what eager float answers. Imports torch."""

import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from .work import BUILD, LANGUAGES, ROOT, Work, single_inputs

sys.path[:0] = [str(ROOT / "python"), str(ROOT / "bench")]

ZOO_WHEELS = ROOT / "build" / "zoo" / "wheels"
REFERENCE_STEPS = 124  # as many as a context of 256 holds after a prompt of 128


def module(model: str) -> nn.Module:
    """The float model, in eval mode, without gradients."""
    if model.startswith("llama110m"):
        from dovetail_zoo import llama110m

        return llama110m.model(LANGUAGES[model].context)
    if model == "smollm2":
        from dovetail_zoo import smollm2

        return smollm2.model(smollm2.gguf_file(ZOO_WHEELS))
    import accuracy_models

    return accuracy_models.minilm()[0] if model == "minilm" else accuracy_models.mobilenet()[0]


def inputs(model: str, length: int = 8) -> tuple[Tensor, ...]:
    """Example inputs; `length` is of a language model's tokens."""
    if model in LANGUAGES:
        return torch.arange(length)[None], torch.arange(length)
    return tuple(torch.from_numpy(value) for value in single_inputs(model))


def dynamic_shapes(model: str):
    """Language models take 1 to context - 1 tokens; the others are exported for their one shape."""
    if model in LANGUAGES:
        length = torch.export.Dim("seq", min=1, max=LANGUAGES[model].context - 1)
        return {"tokens": {1: length}, "input_pos": {0: length}}
    return None


def calibration(model: str) -> list[tuple[Tensor, ...]]:
    """Calls to calibrate static quantization with."""
    if model != "mobilenet":
        return [inputs(model, 128)]
    import accuracy_models

    return accuracy_models.mobilenet()[1]


def weights(model: str) -> dict[str, np.ndarray]:
    """A language model's float32 weights, named as the zoo names them; rope works on the halves of a head."""
    return {name: value.numpy() for name, value in module(model).named_parameters()}


def write_program(model: str, net: nn.Module | None = None) -> None:
    """Writes MODEL.pt2."""
    (BUILD / "models").mkdir(parents=True, exist_ok=True)
    with torch.no_grad():
        program = torch.export.export(net or module(model), inputs(model), dynamic_shapes=dynamic_shapes(model), strict=False)
    torch.export.save(program, BUILD / "models" / f"{model}.pt2")


def write_common(model: str) -> None:
    """Writes what engines and run.py start from: MODEL.pt2, MODEL.inputs.npz, calibration calls, and MODEL.reference.npz."""
    folder = BUILD / "models"
    folder.mkdir(parents=True, exist_ok=True)
    if model == "mobilenet":
        import accuracy_models

        net, calibrate, held_out = accuracy_models.mobilenet()
        np.savez(folder / "mobilenet.inputs.npz", picture=held_out[0][0].numpy())
        (folder / "mobilenet.calibrate").mkdir(exist_ok=True)
        for index, (picture,) in enumerate(calibrate):
            np.savez(folder / "mobilenet.calibrate" / f"{index}.npz", input_0=picture.numpy())
    else:
        net = module(model)
    write_program(model, net)
    with torch.no_grad():
        _write_reference(model, net, folder / f"{model}.reference.npz")


def _write_reference(model: str, net: nn.Module, path: Path) -> None:
    if model not in LANGUAGES:
        np.savez(path, output=net(*inputs(model)).numpy())
        return
    work = Work(model)
    prefill = net(*map(torch.from_numpy, work.prompt_arrays()))[0, -1].numpy()
    steps = [net(*map(torch.from_numpy, work.step_arrays(step)))[0, -1].numpy() for step in range(REFERENCE_STEPS)]
    np.savez(path, prefill=prefill, steps=np.stack(steps))
