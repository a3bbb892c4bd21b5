"""Dovetail itself, by its command line."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from .work import BUILD, LANGUAGES, ROOT, WARM_STEPS, Work, single_inputs

VARIANTS = {
    "dovetail": "Dovetail, state in float",
    "dovetail-state8": "Dovetail, `--state int8`",
}
VENV = "project"
PACKED = "packed"  # the folder of packed weights beside a program
binary = Path(os.environ.get("DOVETAIL_BINARY") or ROOT / "build" / "release" / "bin" / "dovetail")  # run.py --dovetail sets it


def supports(variant: str, model: str) -> bool:
    return variant == "dovetail" or model in LANGUAGES


def compile_command(variant: str, model: str, scheme: str, target: Path) -> list[str]:
    scheme_flags = {"f32": "none", "int8": "int8" if model == "mobilenet" else "int8-dynamic", "int4": "int4"}
    source = BUILD / "models" / f"{model}.pt2"
    command = [str(binary), "compile", str(source), "-o", str(target), "--json", "--quantize", scheme_flags[scheme]]
    if scheme == "int8" and model == "mobilenet":
        command += ["--calibrate", str(BUILD / "models" / "mobilenet.calibrate")]
    return [*command, "--state", "int8"] if variant == "dovetail-state8" else command


def prepare(variant: str, model: str, scheme: str, folder: Path, work: Work) -> dict[str, Any]:
    shutil.rmtree(folder / PACKED, ignore_errors=True)
    command = compile_command(variant, model, scheme, folder / "program.pte")
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    report = json.loads(done.stdout)
    result = {key: report[key] for key in ("seconds", "delegate_calls", "peak_anonymous_bytes") if key in report}
    inspect = [str(binary), "inspect", str(folder / "program.pte"), "--json"]
    operators = json.loads(subprocess.run(inspect, check=True, capture_output=True, text=True).stdout)["operators"]
    result["operator_calls"] = sum(operator["count"] for operator in operators)
    return {**result, "file_bytes": (folder / "program.pte").stat().st_size}


def _calls(folder: Path, work: Work) -> list[str]:
    """Files of the calls; the same work finds them there."""
    folder = folder / f"calls-{work.prompt}-{work.calls}-{work.all_steps}"
    done, paths = folder / "done", []
    folder.mkdir(parents=True, exist_ok=True)
    inputs = work.prompt_arrays() if work.is_language else single_inputs(work.model)
    names_and_arrays = [(f"call{i:03}", inputs) for i in range(work.calls + 1)]
    names_and_arrays += [(f"step{i:04}", work.step_arrays(i)) for i in range(work.all_steps if work.is_language else 0)]
    for name, arrays in names_and_arrays:
        paths.append(str(folder / f"{name}.npz"))
        if not done.exists():
            np.savez(paths[-1], **{f"input_{i}": array for i, array in enumerate(arrays)})
    done.touch()
    return paths


def command(variant: str, model: str, scheme: str, folder: Path, work: Work, threads: int, out: Path) -> list[str]:
    calls = _calls(folder, work)
    cache = ["--weights-cache", str(folder / PACKED)]
    return [str(binary), "run", str(folder / "program.pte"), *calls, "-o", str(out.with_suffix("")), "--threads", str(threads), "--json", *cache]


def with_cache(command: list[str], packed: object, *flags: str) -> list[str]:
    """The command with another folder of packed weights."""
    return [*command[:-1], str(packed), *flags]


def read(work: Work, stdout: str, out: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The result and the outputs of a process that `command` made."""
    report = json.loads(stdout)
    seconds = [call["seconds"] for call in report["calls"]]
    result = {"load_s": report["load_seconds"], "first_s": seconds[0]}

    def output(name: str) -> np.ndarray:
        with np.load(out.with_suffix("") / f"{name}.npz") as file:
            return file["output_0"]

    last_call = output(f"call{work.calls:03}")
    if not work.is_language:
        return {**result, "call_s": seconds[1:]}, {"output": last_call}
    result["prefill_s"] = seconds[1 : work.calls + 1]
    outputs = {"prefill": last_call.reshape(-1)}
    if work.steps:
        result["decode_s"] = seconds[work.calls + 1 + WARM_STEPS :]
        outputs["decode"] = output(f"step{work.all_steps - 1:04}").reshape(-1)
    return result, outputs
