"""Dovetail beside its peers on the same weights and tokens: speed, loading, memory, and agreement with float.

    PYTHONPATH=bench build/venv/bin/python bench/run.py [--rounds N] [--threads 1 2] [--models M...] [--variants V...] [--no-prepare]

Every figure is of a fresh process, of which there is one for each variant in each round; the order is shuffled, and variants of one
row run next to each other. Ratios are medians over rounds of the ratio inside a round. Programs are kept in build/peers and made
again when they are missing, Dovetail's also when its binary is newer. Writes build/peers/run.json and a section of
docs/benchmarks-peers.md; `--install` first fills the venvs of build/peers and builds llama.cpp; `--prepare-only` ends after that and
after making the programs, which takes an hour or two for all of them (ExecuTorch's exports take 4 to 12 minutes each).
"""

import argparse
import datetime
import importlib
import json
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from peers import aims, install, making, report  # noqa: E402
from peers.work import BUILD, LANGUAGES, ROOT, SCHEMES, Work, cosine  # noqa: E402

ENGINES = {name: importlib.import_module(f"peers.{name}") for name in ("dovetail", "executorch", "llamacpp", "ort", "openvino", "litert")}
VARIANTS = {variant: name for name, engine in ENGINES.items() for variant in engine.VARIANTS}
TITLES = {
    "llama110m": "Llama 110M",
    "smollm2": "SmolLM2-135M",
    "minilm": "all-MiniLM-L6-v2, 128 tokens",
    "mobilenet": "MobileNetV2, 224x224",
}
HEADINGS = {
    "dovetail": "Dovetail", "dovetail-state8": "Dovetail, int8 state", "executorch": "ExecuTorch, recipe",
    "executorch-tuned": "ExecuTorch, tuned", "llamacpp": "llama.cpp", "llamacpp-q8": "llama.cpp, q8_0 cache",
    "onnxruntime": "ONNX Runtime", "openvino": "OpenVINO", "litert": "LiteRT",
}  # fmt: skip
BASE = "dovetail"


def use_dovetail(binary: Path | None) -> None:
    """Takes this binary, here and in workers, in place of build/release/bin/dovetail."""
    if binary:
        ENGINES["dovetail"].binary = binary.resolve()
        os.environ["DOVETAIL_BINARY"] = str(binary.resolve())


def folder_of(variant: str, model: str, scheme: str) -> Path:
    return BUILD / VARIANTS[variant] / f"{variant}.{model}.{scheme}"


def work_of(model: str) -> Work:
    return Work(model) if model in LANGUAGES else Work(model, calls=20, steps=0)


def worker(variant: str, verb: str, model: str, scheme: str, *rest: str) -> list[str]:
    engine, folder = VARIANTS[variant], folder_of(variant, model, scheme)
    interpreter = str(report.python(ENGINES[engine].VENV))
    return [interpreter, "-m", "peers.worker", verb, engine, variant, model, scheme, str(folder), str(folder / "work.json"), *rest]


def write_models(models: list[str]) -> None:
    """Writes the exported programs and float answers that aren't there."""
    for model in models:
        if not (BUILD / "models" / f"{model}.reference.npz").exists():
            code = f"from peers import models; models.write_common({model!r})"
            subprocess.run([str(report.python("project")), "-c", code], check=True, env=report.environment(), cwd=ROOT)


def stale(variant: str, model: str, scheme: str) -> bool:
    done = folder_of(variant, model, scheme) / "done"
    if VARIANTS[variant] != "dovetail":
        return not done.exists()
    sources = (ENGINES["dovetail"].binary, BUILD / "models" / f"{model}.pt2")
    return not done.exists() or any(done.stat().st_mtime < source.stat().st_mtime for source in sources)


def prepare(variant: str, model: str, scheme: str, allowed: bool, timeout: float) -> dict:
    """What making the program took, or {"not_measured"}."""
    folder = folder_of(variant, model, scheme)
    folder.mkdir(parents=True, exist_ok=True)
    work_of(model).save(folder / "work.json")
    log = folder / "prepare.log"
    if stale(variant, model, scheme):
        if not allowed and VARIANTS[variant] != "dovetail":
            last = last_json(log)
            return {"not_measured": last.get("not_measured", "its program was not made")}
        print(f"preparing {variant} {model} {scheme}", file=sys.stderr)
        if not report.python(ENGINES[VARIANTS[variant]].VENV).exists():
            return {"not_measured": "not installed"}
        (folder / "done").unlink(missing_ok=True)
        with open(log, "w") as file:
            try:
                command = worker(variant, "prepare", model, scheme)
                subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, env=report.environment(), cwd=ROOT, timeout=timeout)
            except subprocess.TimeoutExpired:
                return {"not_measured": f"making its program took over {timeout:.0f} s"}
        result = last_json(log)
        if "seconds" not in result or "not_measured" in result:
            return {"not_measured": result.get("not_measured", "making its program failed")}
        (folder / "done").touch()
    made = last_json(log)
    return made if "seconds" in made else {"not_measured": "no record of making its program"}


def last_json(log: Path) -> dict:
    for line in reversed(log.read_text(errors="replace").splitlines() if log.exists() else []):
        if line.startswith("{"):
            return json.loads(line)
    return {}


def read_files(folder: Path) -> None:
    """Brings an engine's program and packed weights into the page cache, so that loading is not the disk's time: some kernels drop pages after a minute."""
    for path in folder.rglob("*"):
        if path.is_file() and path.suffix not in (".npz", ".log"):
            with open(path, "rb") as file:
                while file.read(1 << 22):
                    pass


def measure(variant: str, model: str, scheme: str, threads: int) -> dict:
    """One fresh process: its times in seconds, memory, and cosines."""
    engine, folder, work = ENGINES[VARIANTS[variant]], folder_of(variant, model, scheme), work_of(model)
    out = folder / "out.npz"
    command = engine.command(variant, model, scheme, folder, work, threads, out)
    read_files(folder)
    done = report.process(command or worker(variant, "run", model, scheme, str(threads), str(out)))
    if command:
        result, outputs = engine.read(work, done["stdout"], out)
        result["peak_rss_bytes"] = done["peak_rss_bytes"]
    else:
        result = json.loads(done["stdout"].strip().splitlines()[-1])
        with np.load(out) as file:
            outputs = dict(file)
        result["peak_rss_bytes"] -= result["host_rss_bytes"]
    result["wall_s"] = done["wall_s"]
    with np.load(BUILD / "models" / f"{model}.reference.npz") as file:
        for name, value in outputs.items():
            expected = file["steps"][work.all_steps - 1] if name == "decode" else file[name]
            result[f"cosine_{name}"] = cosine(value, expected)
    for kind in ("call", "prefill", "decode"):
        if f"{kind}_s" in result:
            result[kind] = statistics.median(result[f"{kind}_s"])
    return result


def values(record: dict, key: str) -> list[float]:
    return [r[key] for r in record["rounds"] if r and key in r]


def median(record: dict, key: str) -> float | None:
    found = values(record, key)
    return statistics.median(found) if found else None


def ratio(record: dict, base: dict, key: str) -> float | None:
    """Median over rounds of this variant's time over the base's in the same round."""
    pairs = [(a[key], b[key]) for a, b in zip(record["rounds"], base["rounds"], strict=False) if a and b and key in a and key in b]
    return statistics.median(a / b for a, b in pairs) if pairs else None


def key_of(variant: str, model: str, scheme: str, threads: int) -> str:
    return f"{variant}/{model}/{scheme}/{threads}"


def speed_rows(data: dict, variants: list[str], models: list[str], per_second: bool) -> list[list[str]]:
    rows = []
    for model in models:
        kinds = ("decode", "prefill") if model in LANGUAGES else ("call",)
        for kind in kinds:
            for scheme in SCHEMES[model]:
                for threads in data["threads"]:
                    records = {v: data["records"].get(key_of(v, model, scheme, threads)) for v in variants}
                    if not any(records.values()):
                        continue
                    label = {"decode": "decode one token", "prefill": "prefill 128"}.get(kind, "one call")
                    row = [f"{TITLES[model]}: {label}, {scheme}", str(threads)]
                    base = records.get(BASE)
                    for variant in variants:
                        record = records[variant]
                        seconds = median(record, kind) if record else None
                        if seconds is None:
                            row.append("not measured" if record and "not_measured" in record else "")
                            continue
                        tokens = 128 if kind == "prefill" else 1
                        text = f"{tokens / seconds:.0f}" if per_second else f"{seconds * 1e3:.2f}"
                        times = ratio(record, base, kind) if base and variant != BASE else None
                        row.append(f"{text} ({times:.2f}x)" if times else text)
                    rows.append(row)
    return rows


def render(data: dict) -> str:
    """The markdown of a result."""
    records = data["records"]
    variants = [v for v in VARIANTS if any(k.startswith(v + "/") and values(r, "load_s") for k, r in records.items())]
    models = [m for m in TITLES if any(k.split("/")[1] == m for k in records)]
    head = ["", "threads", *(HEADINGS[v] for v in variants)]
    parts = [
        "## Speed, loading and memory\n",
        f"`bench/run.py --rounds {data['rounds']}`, {data['date']}, load average {data['load']} at the start. {data['machine']}. {data['versions']}.\n",
        f"Medians of {data['rounds']} rounds, a fresh process for each figure. Each engine gets the same weights and tokens; int8 and int4 are its own schemes of that width "
        "(llama.cpp: q8_0, q4_0; MobileNetV2 int8 is calibrated). "
        "In brackets: time relative to Dovetail in the same round, so above 1 is slower than Dovetail. Decoding is at positions 128 and on.\n",
        "Milliseconds:\n",
        report.table(head, speed_rows(data, variants, [m for m in models if m != "smollm2"], False)),
    ]
    if "smollm2" in models:
        parts += ["Tokens per second (brackets as above: time relative to Dovetail's):\n", report.table(head, speed_rows(data, variants, ["smollm2"], True))]
    rows, missing, few = [], {}, data["threads"][0]
    for model in models:
        for scheme in SCHEMES[model]:
            for variant in VARIANTS:
                record = records.get(key_of(variant, model, scheme, few))
                if not record:
                    continue
                if "not_measured" in record:
                    missing.setdefault((variant, record["not_measured"]), []).append(f"{TITLES[model].split(',')[0]} {scheme}")
                    continue
                made, load, peak = record["prepare"], median(record, "load_s"), median(record, "peak_rss_bytes")
                cosines = [median(record, f"cosine_{name}") for name in ("output", "prefill", "decode")]
                counts = [made.get(name) for name in ("delegate_calls", "operator_calls")]
                rows.append([
                    f"{TITLES[model].split(',')[0]} {scheme}", HEADINGS[variant], making.text(made), f"{made.get('file_bytes', 0) / 1e6:.0f}",
                    f"{load * 1e3:.0f}" if load is not None else "", f"{peak / 1e6:.0f}" if peak else "",
                    " / ".join("" if c is None else str(c) for c in counts) if any(c is not None for c in counts) else "",
                    " / ".join(f"{c:.5f}" for c in cosines if c is not None),
                ])  # fmt: skip
    parts += [
        "Compiling goes from the PyTorch model, or from the .pt2 that Dovetail reads, to the engine's file; in brackets is the processor time, which other "
        "work on the machine hardly changes. "
        f"With {few} thread{'s' if few > 1 else ''}. Loading is what the engine takes until it can be called, files being in the page cache and Dovetail's folder of packed weights filled. Memory is the peak RSS "
        "of the process; of engines hosted in Python, what it grew by since before loading. Cosines are of logits to eager float's: of the prefill's last token / of the last single step.\n",
        report.table(["model", "engine", "compile s (CPU s)", "file MB", "load ms", "peak RSS MB", "delegate / other calls", "cosine"], rows),
    ]
    parts += ["### Aims\n", "\"Load\" is with Dovetail's folder of packed weights filled.\n", aims.render(records, TITLES, HEADINGS)]
    if missing:
        parts += ["Not measured:\n"]
        parts += [f"- {HEADINGS[variant]}: {', '.join(where)}: {reason[:200]}" for (variant, reason), where in missing.items()]
    return "\n".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description="Dovetail beside its peers")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--models", nargs="+", choices=TITLES, default=list(TITLES))
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--dovetail", type=Path, help="the binary (build/release/bin/dovetail)")
    parser.add_argument("--no-prepare", action="store_true", help="measure only the peers whose programs are there; some take minutes to make")
    parser.add_argument("--prepare-timeout", type=float, default=1500, help="seconds that making one program may take")
    parser.add_argument("--prepare-only", action="store_true", help="measure nothing")
    parser.add_argument("--again", nargs="+", choices=VARIANTS, default=[], help="make these variants' programs anew, to time that on a quiet machine")
    parser.add_argument("--no-warm-up", action="store_true", help="leave out the round that isn't kept; an earlier run has filled caches")
    parser.add_argument("--install", action="store_true", help="first fill the peers' venvs from PyPI and build llama.cpp, in build/peers")
    parser.add_argument("--output", type=Path, default=BUILD / "run.json")
    parser.add_argument("--no-page", action="store_true", help="leave docs/ alone")
    parser.add_argument("--render", type=Path, help="only write the page, from this JSON")
    options = parser.parse_args()
    if options.render:
        report.write_section("run.py", render(json.loads(options.render.read_text())))
        return 0
    use_dovetail(options.dovetail)
    if options.install:
        install.everything()
    write_models(options.models)
    data = {
        "date": f"{datetime.date.today()}", "rounds": options.rounds, "threads": options.threads, "load": f"{os.getloadavg()[0]:.1f}",
        "machine": report.machine(), "versions": report.versions(), "records": {},
    }  # fmt: skip
    groups: dict[tuple[str, str, int], list[str]] = {}
    for model in options.models:
        for scheme in SCHEMES[model]:
            for variant in (v for v in options.variants if ENGINES[VARIANTS[v]].supports(v, model)):
                if variant in options.again:
                    (folder_of(variant, model, scheme) / "done").unlink(missing_ok=True)
                made = prepare(variant, model, scheme, variant in options.again or not options.no_prepare, options.prepare_timeout)
                for threads in options.threads:
                    data["records"][key_of(variant, model, scheme, threads)] = {"prepare": made, "rounds": [], **{k: made[k] for k in ("not_measured",) if k in made}}
                    if "not_measured" not in made:
                        groups.setdefault((model, scheme, threads), []).append(variant)
    if options.prepare_only:
        few = options.threads[0]
        markdown = "\n".join([
            "## Making the programs\n",
            f"`bench/run.py --prepare-only`. {data['machine']}. {data['versions']}.\n",
            "From the PyTorch model, or from the .pt2 that Dovetail reads, to the engine's file: seconds, and in brackets processor seconds, which other work on the machine hardly changes. Memory is "
            "the peak RSS of the process (of Dovetail's, see Memory), with PyTorch in it for the peers.\n",
            making.render({key: record for key, record in data["records"].items() if key.endswith(f"/{few}")}, TITLES, HEADINGS),
        ])  # fmt: skip
        print(markdown)
        if not options.no_page:
            report.write_section("run.py --prepare-only", markdown)
        return 0
    random.seed(0)
    begin = time.monotonic()
    for index in range(0 if options.no_warm_up else -1, options.rounds):  # the first fills page caches and Dovetail's folder, and isn't kept
        for (model, scheme, threads), members in random.sample(list(groups.items()), len(groups)):
            if index < 0 and threads != options.threads[0]:
                continue
            for variant in random.sample(members, len(members)):
                record = data["records"][key_of(variant, model, scheme, threads)]
                if "not_measured" in record:
                    continue
                try:
                    result = measure(variant, model, scheme, threads)
                except (report.Failed, OSError, ValueError, KeyError, IndexError) as error:
                    print(f"{variant} {model} {scheme} {threads}: {error}", file=sys.stderr)
                    if index < 0:
                        for each in options.threads:
                            data["records"][key_of(variant, model, scheme, each)]["not_measured"] = str(error)
                    result = None
                if index >= 0:
                    record["rounds"].append(result)
        print(f"round {index + 1} of {options.rounds}: {time.monotonic() - begin:.0f} s so far", file=sys.stderr)
        options.output.write_text(json.dumps(data))
    markdown = render(data)
    print(markdown)
    if not options.no_page:
        report.write_section("run.py", markdown)
    return 0


if __name__ == "__main__":
    sys.exit(main())
