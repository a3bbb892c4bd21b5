"""SmolLM2-135M-Instruct: Dovetail beside ExecuTorch on this machine, in alternating rounds.

    PYTHONPATH=python build/venv/bin/python bench/smollm2.py [--rounds N] [--threads N] [--flags "--quantize int8-dynamic --state int8"]

Compares compiling (wall time, peak anonymous memory) and running (prefill of a 37-token prompt, then 32 greedy steps) for
  dovetail    dovetail compile, run by the dovetail runtime
  portable    dovetail compile --runtime executorch, run by the ExecuTorch runtime of the Python package
  executorch  ExecuTorch's own to_edge_transform_and_lower with its XnnpackPartitioner, run by the same runtime
Ratios are of medians over the rounds. Needs build/release/bin/dovetail and build/zoo/smollm2.pt2 (./quickstart makes both).
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOVETAIL, ZOO, OUT = ROOT / "build/release/bin/dovetail", ROOT / "build/zoo", ROOT / "build/bench"
STEPS = 32


def prompt() -> list[int]:
    return json.loads((ROOT / "tests/models/smollm2_greedy.json").read_text())["cases"][0]["prompt_ids"]


def compile_with_executorch(source: Path, target: Path) -> None:
    """Runs in a process of its own, since its memory is measured."""
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    program = to_edge_transform_and_lower(torch.export.load(source), partitioner=[XnnpackPartitioner()]).to_executorch()
    with open(target, "wb") as file:
        program.write_to_file(file)


def anonymous_bytes(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def measure_process(command: list[str]) -> dict[str, float]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT / "python")})
    peak, start = 0, time.perf_counter()

    def sample() -> None:
        nonlocal peak
        while process.poll() is None:
            peak = max(peak, anonymous_bytes(process.pid))
            time.sleep(0.005)

    sampler = threading.Thread(target=sample)
    sampler.start()
    if process.wait() != 0:
        sys.exit(f"failed: {command}")
    seconds = time.perf_counter() - start
    sampler.join()
    return {"seconds": seconds, "peak_anonymous_mb": peak / 1e6}


def run_executorch(path: Path) -> dict[str, float]:
    """One process for each run, as for dovetail: load, prefill, decode."""
    import torch
    from executorch.runtime import Runtime

    start = time.perf_counter()
    program = Runtime.get().load_program(str(path))
    method = program.load_method("forward")
    load = time.perf_counter() - start
    tokens, position, times = prompt(), 0, []
    for _ in range(STEPS + 1):
        start = time.perf_counter()
        logits = method.execute((torch.tensor([tokens]), torch.arange(position, position + len(tokens))))[0]
        times.append(time.perf_counter() - start)
        position += len(tokens)
        tokens = [int(logits[0, -1].argmax())]
    return {"load_s": load, "prefill_tokens_per_s": len(prompt()) / times[0], "decode_tokens_per_s": 1 / statistics.median(times[1:])}


def run_dovetail(path: Path, threads: int) -> dict[str, float]:
    import numpy as np

    calls = OUT / "calls"
    calls.mkdir(parents=True, exist_ok=True)
    tokens, position, files = prompt(), 0, []
    answer = json.loads((ROOT / "tests/models/smollm2_greedy.json").read_text())["cases"][0]["tokens"]
    for step in range(STEPS + 1):
        files.append(str(calls / f"{step:02}.npz"))
        np.savez(files[-1], input_0=np.array([tokens]), input_1=np.arange(position, position + len(tokens)))
        position += len(tokens)
        tokens = [answer[step]]
    command = [str(DOVETAIL), "run", str(path), *files, "-o", str(OUT / "outputs"), "--threads", str(threads), "--json"]
    report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    times = [call["seconds"] for call in report["calls"]]
    return {"load_s": report["load_seconds"], "prefill_tokens_per_s": len(prompt()) / times[0], "decode_tokens_per_s": 1 / statistics.median(times[1:])}


def main() -> int:
    parser = argparse.ArgumentParser(description="SmolLM2 beside ExecuTorch")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=0, help="of dovetail; ExecuTorch's package chooses its own")
    parser.add_argument("--no-export", action="store_true", help="leave out ExecuTorch's own export, which takes minutes")
    parser.add_argument("--flags", default="", help="further flags of dovetail compile, for both of its programs; needs --no-export")
    parser.add_argument("--run-executorch", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--compile-executorch", type=Path, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run_executorch:
        print(json.dumps(run_executorch(options.run_executorch)))
        return 0
    if options.compile_executorch:
        compile_with_executorch(*options.compile_executorch)
        return 0
    OUT.mkdir(parents=True, exist_ok=True)
    source, report = ZOO / "smollm2.pt2", {"machine": platform.processor() or platform.machine(), "cpus": os.cpu_count()}
    names = ("dovetail", "portable") if options.no_export else ("dovetail", "portable", "executorch")
    flags = options.flags.split()
    if flags and not options.no_export:
        parser.error("--flags needs --no-export: ExecuTorch's own export is of the float model")
    compiled = {name: OUT / f"smollm2.{name}.pte" for name in names}
    report["compile"] = {
        "dovetail": measure_process([str(DOVETAIL), "compile", str(source), "-o", str(compiled["dovetail"]), *flags]),
        "portable": measure_process([str(DOVETAIL), "compile", str(source), "-o", str(compiled["portable"]), "--runtime", "executorch", *flags]),
    }
    if "executorch" in names and not compiled["executorch"].exists():
        report["compile"]["executorch"] = measure_process([sys.executable, __file__, "--compile-executorch", str(source), str(compiled["executorch"])])
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in compiled}
    for _ in range(options.rounds):
        for name, path in compiled.items():
            if name == "dovetail":
                rounds[name].append(run_dovetail(path, options.threads))
            else:
                done = subprocess.run([sys.executable, __file__, "--run-executorch", str(path)], check=True, capture_output=True, text=True, cwd=ROOT)
                rounds[name].append(json.loads(done.stdout.strip().splitlines()[-1]))
    median = {name: {key: statistics.median(r[key] for r in results) for key in results[0]} for name, results in rounds.items()}
    report["run"] = median
    report["file_mb"] = {name: path.stat().st_size / 1e6 for name, path in compiled.items()}
    for name in names[1:]:
        report[f"dovetail_over_{name}"] = {key: median["dovetail"][key] / median[name][key] for key in ("prefill_tokens_per_s", "decode_tokens_per_s")}
    print(json.dumps(report, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
