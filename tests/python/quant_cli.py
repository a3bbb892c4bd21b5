"""Compiles a model of quant_models.py from the command line and runs it, in this runtime or in the stock ExecuTorch runtime."""

import json
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch

from conftest import ROOT
from quant_models import Call, Model, write_calls

SCHEMES = ["none", "int8-dynamic", "int8", "int4", "int4-weight-only", "int8-weight-only"]


@dataclass
class Outcome:
    """One sequence of calls: outputs by call and index, and the states after each call."""

    outputs: list[list[np.ndarray]]
    states: list[dict[str, np.ndarray]] = field(default_factory=list)


@dataclass
class Cli:
    dovetail: str
    folder: Path
    count: int = 0

    def __call__(self, *arguments, code: int = 0) -> subprocess.CompletedProcess:
        done = subprocess.run([self.dovetail, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == code, done.stderr or done.stdout
        return done

    def new_path(self, name: str) -> Path:
        self.count += 1
        return self.folder / f"{self.count:02}.{name}"

    def source(self, model: Model) -> Path:
        return model.export(self.new_path("model.pt2"))

    def flags(self, model: Model, scheme: str = "none", **options: str) -> list[str]:
        flags = ["--quantize", scheme]
        if scheme == "int8":
            folder = self.new_path("calibration")
            write_calls(model.calibration_calls(), folder)
            flags += ["--calibrate", str(folder)]
        for name, value in options.items():
            flags += [f"--{name.replace('_', '-')}", value]
        return flags

    def compile(self, source: Path, *flags: str) -> tuple[Path, dict]:
        target = self.new_path("program.pte")
        return target, json.loads(self("compile", source, "-o", target, "--json", *flags).stdout)

    def refusal(self, source: Path, *flags: str) -> str:
        """The message of a compilation that is refused, or nothing."""
        target = self.new_path("refused.pte")
        done = subprocess.run([self.dovetail, "compile", source, "-o", target, *flags], cwd=ROOT, capture_output=True, text=True)
        if done.returncode == 0:
            return ""
        assert done.returncode in (1, 2) and done.stderr.startswith("error: ") and not target.exists(), done.stderr
        return done.stderr

    def compile_for(self, runtime: str, source: Path, *flags: str) -> tuple[Path, dict]:
        """Skips the test, with the reason, if the stock runtime has no operators for it; `pytest -rs` lists what was refused."""
        if runtime == "executorch" and (refusal := self.refusal(source, *flags, "--runtime", runtime)):
            assert "executorch" in refusal.lower(), refusal
            pytest.skip(f"refused: {refusal.splitlines()[0]}")
        return self.compile(source, *flags, "--runtime", runtime)

    def run_on(self, runtime: str, program: Path, calls: list[Call]) -> Outcome:
        return (self.run if runtime == "dovetail" else self.run_in_executorch)(program, calls)

    def run(self, program: Path, calls: list[Call]) -> Outcome:
        """On a freshly loaded program."""
        files, folder = write_calls(calls, self.new_path("calls")), self.new_path("outputs")
        self("run", program, *files, "-o", folder, "--dump-states")
        outcome = Outcome([])
        for file in files:
            with np.load(folder / file.name) as arrays:
                outcome.outputs.append([arrays[f"output_{i}"] for i in range(sum(name.startswith("output_") for name in arrays.files))])
                outcome.states.append({name.removeprefix("state."): arrays[name] for name in arrays.files if name.startswith("state.")})
        return outcome

    def run_in_executorch(self, program: Path, calls: list[Call]) -> Outcome:
        from executorch import runtime

        loaded = runtime.Runtime.get().load_program(str(program))
        method = loaded.load_method("forward")
        return Outcome([[t.clone().numpy() for t in method.execute(tuple(torch.clone(t) for t in args))] for args in calls])

    def check(self, model: Model, scheme: str, **options: str) -> tuple[list[list[np.ndarray]], list[list[np.ndarray]], dict]:
        """What the compiled model gives for its calls, what eager PyTorch gives, and the report of the compiler."""
        program, report = self.compile(self.source(model), *self.flags(model, scheme, **options))
        return self.run(program, model.calls).outputs, model.eager(), report


def sqnr(got: np.ndarray, want: np.ndarray) -> float:
    """Signal to quantization noise in dB."""
    noise = float(np.square(got.astype(np.float64) - want).sum())
    return float(10 * np.log10(np.square(want.astype(np.float64)).sum() / max(noise, 1e-30)))


def worst_sqnr(got: list[list[np.ndarray]], want: list[list[np.ndarray]]) -> float:
    """The lowest over all outputs; shapes and types must agree."""
    assert len(got) == len(want)
    values = []
    for ours, theirs in zip(got, want, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            assert a.shape == b.shape and a.dtype == b.dtype and np.isfinite(a).all()
            values.append(sqnr(a, b))
    return min(values)


def steps_off(got: list[list[np.ndarray]], want: list[list[np.ndarray]]) -> float:
    """The largest difference in steps of an 8-bit format over the outputs' whole range, which holds zero."""
    flat = np.concatenate([b.ravel() for outputs in want for b in outputs])
    step = (max(flat.max(), 0.0) - min(flat.min(), 0.0)) / 255
    return max(float(np.abs(a - b).max()) for ours, theirs in zip(got, want, strict=True) for a, b in zip(ours, theirs, strict=True)) / step
