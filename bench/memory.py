"""Memory of Dovetail, and of llama.cpp beside it: compiling, loading with the folder of packed weights empty and filled, two processes.

    PYTHONPATH=bench build/venv/bin/python bench/memory.py [--rounds N] [--models M...] [--dovetail BIN]

Dovetail's programs are made where they are missing; llama.cpp's are those that run.py keeps in build/peers. Peaks are VmHWM and RssAnon
of the process, sampled every 5 ms; what the second of two processes has is its /proc/PID/smaps_rollup while both compute. Writes a
section of docs/benchmarks-peers.md.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import run  # noqa: E402
from peers import report  # noqa: E402
from peers.work import ROOT, SCHEMES, Work  # noqa: E402


def rollup(pid: int) -> dict[str, int]:
    """Bytes of Pss, Private and Rss of a process; empty when it is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        return {}
    found = {name: int(rest.split()[0]) * 1024 for name, rest in (line.split(":", 1) for line in lines)}
    if "Rss" not in found:
        return {}
    return {"Pss": found["Pss"], "Private": found["Private_Clean"] + found["Private_Dirty"], "Rss": found["Rss"]}


def together(command: list[str]) -> dict[str, int]:
    """Starts it twice; the most that the second one has while the first still runs."""
    first = subprocess.Popen(command[0], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)
    time.sleep(0.5)
    second = subprocess.Popen(command[1], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)
    peak: dict[str, int] = {}
    try:
        while first.poll() is None and second.poll() is None:
            now = rollup(second.pid)
            # Until exec has replaced it, the child maps this process.
            if now and os.readlink(f"/proc/{second.pid}/exe") == os.path.realpath(command[1][0]):
                peak = {key: max(peak.get(key, 0), value) for key, value in now.items()}
            time.sleep(0.02)
    except OSError:
        pass  # it ended between two lines
    finally:
        first.wait()
        second.wait()
    if not peak or first.returncode or second.returncode:
        raise report.Failed(f"two processes: exit statuses {first.returncode}, {second.returncode}")
    return peak


def dovetail_round(model: str, scheme: str, variant: str) -> list[tuple[str, dict]]:
    engine, kept, results = run.ENGINES["dovetail"], run.folder_of(variant, model, scheme), []
    work = Work(model, calls=1, steps=4)
    with tempfile.TemporaryDirectory() as name:
        folder, cache = Path(name), Path(name) / "cache"
        done = report.process(engine.compile_command(variant, model, scheme, folder / "program.pte"))
        results.append(("compile", {"peak_rss_bytes": done["peak_rss_bytes"], "peak_anonymous_bytes": done["peak_anonymous_bytes"]}))
        calls = engine.command(variant, model, scheme, kept, work, 1, folder / "out.npz")
        for state in ("first load", "second load"):
            command = engine.with_cache(calls, cache)
            done = report.process(command)
            results.append((state, {**done, "load_s": json.loads(done["stdout"])["load_seconds"]}))
        repeated = engine.with_cache(calls, cache, "--repeat", "12")
        again = engine.command(variant, model, scheme, kept, work, 1, folder / "out2.npz")
        results.append(("second of two", together([repeated, engine.with_cache(again, cache, "--repeat", "6")])))
    return results


def llamacpp_round(model: str, scheme: str, variant: str) -> list[tuple[str, dict]]:
    engine, kept = run.ENGINES["llamacpp"], run.folder_of(variant, model, scheme)
    with tempfile.TemporaryDirectory() as name:
        def command(out: str, calls: int) -> list[str]:
            return engine.command(variant, model, scheme, kept, Work(model, calls=calls, steps=4), 1, Path(name) / out)

        done = report.process(command("out.npz", 1))
        load = json.loads(done["stdout"].strip().splitlines()[-1])["load_s"]
        return [("load", {**done, "load_s": load}), ("second of two", together([command("out.npz", 12), command("out2.npz", 6)]))]


ENGINES = {"dovetail": dovetail_round, "dovetail-state8": dovetail_round, "llamacpp": llamacpp_round}


def render(results: dict, missing: dict, rounds: int, times: bool) -> str:
    rows = []
    for (model, scheme, variant, what), found in results.items():
        def megabytes(key: str, found: list[dict] = found) -> str:
            values = [each[key] for each in found if key in each]
            return f"{statistics.median(values) / 1e6:.0f}" if values else ""

        loads = [each["load_s"] for each in found if "load_s" in each]
        row = [f"{run.TITLES[model]} {scheme}", run.HEADINGS[variant], what, f"{statistics.median(loads) * 1e3:.0f}" if loads and times else ""]
        rows.append([*row, *(megabytes(key) for key in ("peak_rss_bytes", "peak_anonymous_bytes", "Pss", "Private"))])
    head = ["model", "engine", "", "load ms", "peak RSS MB", "peak anonymous MB", "Pss MB", "private MB"]
    return "\n".join([
        "## Memory\n",
        f"`bench/memory.py --rounds {rounds}{'' if times else ' --no-times'}`. {report.machine()}. {report.versions()}.\n",
        "Loading is followed by two prefills of 128 tokens and 8 steps. \"First load\" is with an empty folder of packed weights, \"second load\" with what the first left there. RSS counts pages of "
        "mapped files, which processes share; Pss divides those by the number of processes, private are those that no other process has.\n",
        report.table(head, rows),
        *(f"Not measured: {run.HEADINGS[variant]}, {run.TITLES[model]} {scheme}: {reason}." for (variant, model, scheme), reason in missing.items()),
    ])  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description="memory of Dovetail and llama.cpp")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--models", nargs="+", choices=("llama110m", "smollm2"), default=["llama110m", "smollm2"])
    parser.add_argument("--dovetail", type=Path, help="the binary (build/release/bin/dovetail)")
    parser.add_argument("--no-times", action="store_true", help="leave out how long loading took, for a machine with other work")
    parser.add_argument("--no-page", action="store_true", help="leave docs/ alone")
    options = parser.parse_args()
    run.use_dovetail(options.dovetail)
    run.write_models(options.models)
    results: dict[tuple[str, str, str, str], list[dict]] = {}
    missing: dict[tuple[str, str, str], str] = {}
    cases = [(variant, model, scheme) for model in options.models for scheme in SCHEMES[model] for variant in ENGINES]
    for variant, model, scheme in cases:
        made = run.prepare(variant, model, scheme, False, 600)
        if "not_measured" in made:
            missing[variant, model, scheme] = made["not_measured"]
    for _ in range(options.rounds):
        for variant, model, scheme in (case for case in cases if case not in missing):
            try:
                for what, measured in ENGINES[variant](model, scheme, variant):
                    results.setdefault((model, scheme, variant, what), []).append(measured)
            except report.Failed as error:
                missing[variant, model, scheme] = str(error)
    markdown = render(results, missing, options.rounds, not options.no_times)
    print(markdown)
    if not options.no_page:
        report.write_section("memory.py", markdown)
    return 0


if __name__ == "__main__":
    sys.exit(main())
