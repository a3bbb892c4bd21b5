"""Time from the start of a process to its first token: SmolLM2-135M, prompt of 128 tokens, Dovetail with its folder of packed weights empty and filled.

    PYTHONPATH=bench build/venv/bin/python bench/first_token.py [--rounds N] [--threads N] [--dovetail BIN]

Wall time of the whole process, from its start to its end, for engines with a process of their own; for those that Python hosts, of loading
and the first call (Python and its imports left out). Files are in the page cache. Writes a section of docs/benchmarks-peers.md.
"""

import argparse
import json
import random
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import run  # noqa: E402
from peers import report  # noqa: E402
from peers.work import SCHEMES, Work  # noqa: E402

MODEL = "smollm2"
CASES = {
    "Dovetail, empty folder": "dovetail", "Dovetail, filled folder": "dovetail", "Dovetail, int8 state, empty folder": "dovetail-state8",
    "Dovetail, int8 state, filled folder": "dovetail-state8", "llama.cpp": "llamacpp", "ExecuTorch, recipe": "executorch",
    "ExecuTorch, tuned": "executorch-tuned", "ONNX Runtime": "onnxruntime", "OpenVINO": "openvino", "LiteRT": "litert",
}  # fmt: skip


def measure(case: str, scheme: str, threads: int, cache: Path) -> float:
    """Seconds to the first token."""
    variant, work = CASES[case], Work(MODEL, calls=0, steps=0)
    engine, folder = run.ENGINES[run.VARIANTS[variant]], run.folder_of(variant, MODEL, scheme)
    work.save(folder / "work.json")
    out = folder / "out.npz"
    command = engine.command(variant, MODEL, scheme, folder, work, threads, out)
    if not command:
        done = report.process(run.worker(variant, "run", MODEL, scheme, str(threads), str(out)))
        result = json.loads(done["stdout"].strip().splitlines()[-1])
        return result["load_s"] + result["first_s"]
    if variant.startswith("dovetail"):
        if case.endswith("filled folder"):
            return report.process(engine.with_cache(command, cache))["wall_s"]
        with tempfile.TemporaryDirectory() as empty:
            return report.process(engine.with_cache(command, empty))["wall_s"]
    return report.process(command)["wall_s"]


def main() -> int:
    parser = argparse.ArgumentParser(description="time to the first token")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dovetail", type=Path, help="the binary (build/release/bin/dovetail)")
    parser.add_argument("--no-page", action="store_true", help="leave docs/ alone")
    options = parser.parse_args()
    run.use_dovetail(options.dovetail)
    run.write_models([MODEL])
    times: dict[tuple[str, str], list[float]] = {}
    missing: dict[tuple[str, str], str] = {}
    with tempfile.TemporaryDirectory() as name:
        for scheme in SCHEMES[MODEL]:
            for case, variant in CASES.items():
                made = run.prepare(variant, MODEL, scheme, False, 600)
                if "not_measured" in made:
                    missing[case, scheme] = made["not_measured"]
                else:
                    times[case, scheme] = []
        for index in range(-1, options.rounds):  # the first fills page caches and Dovetail's folder, and isn't kept
            for case, scheme in random.Random(index).sample(list(times), len(times)):
                try:
                    seconds = measure(case, scheme, options.threads, Path(name))
                except report.Failed as error:
                    missing[case, scheme] = str(error)
                    times.pop((case, scheme))
                    continue
                if index >= 0:
                    times[case, scheme].append(seconds)

    def cell(case: str, scheme: str) -> str:
        found = times.get((case, scheme))
        return f"{statistics.median(found) * 1e3:.0f}" if found else f"not measured: {missing[case, scheme]}"

    rows = [[case, *(cell(case, scheme) for scheme in SCHEMES[MODEL])] for case in CASES]
    markdown = "\n".join([
        "## Time to the first token\n",
        f"`bench/first_token.py --rounds {options.rounds} --threads {options.threads}`. {report.machine()}. {report.versions()}.\n",
        "SmolLM2-135M, prompt of 128 tokens, milliseconds, medians: wall time of a process that loads, answers and ends; for engines that Python hosts (all but Dovetail and llama.cpp), loading and the first call alone. "
        "\"Folder\" is the one where Dovetail keeps packed weights.\n",
        report.table(["", *SCHEMES[MODEL]], rows),
    ])  # fmt: skip
    print(markdown)
    if not options.no_page:
        report.write_section("first_token.py", markdown)
    return 0


if __name__ == "__main__":
    sys.exit(main())
