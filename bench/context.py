"""Time of one decoded token against the length of the context, and of the prefill against that of the prompt.

    PYTHONPATH=bench build/venv/bin/python bench/context.py [--rounds N] [--lengths 64 ... 4096] [--variants V...] [--scheme int8]

On llama110m with a cache of 4096 rows (`dovetail_zoo.llama110m.model(4096)`): the prompt is 28 tokens shorter than the length, and the last
24 of it are timed, one at a time. Fresh processes, shuffled order, medians. Writes build/peers/context.json, a section of
docs/benchmarks-peers.md and docs/benchmarks-context.svg.
"""

import argparse
import json
import math
import random
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import run  # noqa: E402
from peers import report  # noqa: E402
from peers.work import BUILD, ROOT, WARM_STEPS, Work  # noqa: E402

MODEL, STEPS = "llama110m_4096", 24
COLORS = {"dovetail": "#0b62a4", "dovetail-state8": "#5aa9e6", "llamacpp": "#c0392b", "executorch-tuned": "#2e8b57", "onnxruntime": "#8e44ad", "openvino": "#d68910"}


def measure(variant: str, scheme: str, length: int, threads: int) -> dict[str, float]:
    """Seconds of {"prefill", "decode"} at a length."""
    engine, folder = run.ENGINES[run.VARIANTS[variant]], run.folder_of(variant, MODEL, scheme)
    work = Work(MODEL, calls=1, prompt=length - WARM_STEPS - STEPS, steps=STEPS)
    work.save(folder / "work.json")
    out = folder / "out.npz"
    command = engine.command(variant, MODEL, scheme, folder, work, threads, out)
    done = report.process(command or run.worker(variant, "run", MODEL, scheme, str(threads), str(out)))
    result = engine.read(work, done["stdout"], out)[0] if command else json.loads(done["stdout"].strip().splitlines()[-1])
    return {"prefill": result["prefill_s"][0], "decode": statistics.median(result["decode_s"])}


def plot(series: dict[str, dict[int, float]], title: str, left: int) -> str:
    """SVG of curves length -> milliseconds on logarithmic axes; a group 420 wide and 320 high."""
    lengths = sorted({length for curve in series.values() for length in curve})
    values = [value for curve in series.values() for value in curve.values()]
    low, high = 10 ** math.floor(math.log10(min(values))), 10 ** math.ceil(math.log10(max(values)))
    x0, y0, width, height = left + 55, 270, 340, 230

    def x(length: float) -> float:
        return x0 + width * math.log(length / lengths[0]) / max(math.log(lengths[-1] / lengths[0]), 1e-9)

    def y(value: float) -> float:
        return y0 - height * math.log(value / low) / math.log(high / low)

    parts = [f'<text x="{left + 225}" y="22" text-anchor="middle" font-size="13">{title}</text>']
    for length in lengths:
        parts.append(f'<text x="{x(length):.1f}" y="{y0 + 16}" text-anchor="middle">{length}</text>')
    decade = low
    while decade <= high * 1.001:
        for step in (1, 2, 5):
            if decade * step <= high * 1.001:
                parts.append(f'<path d="M{x0} {y(decade * step):.1f}h{width}" stroke="#ddd"/><text x="{x0 - 6}" y="{y(decade * step) + 4:.1f}" text-anchor="end">{decade * step:g}</text>')
        decade *= 10
    for index, (variant, curve) in enumerate(series.items()):
        points = " ".join(f"{x(length):.1f},{y(value):.1f}" for length, value in sorted(curve.items()))
        color = COLORS.get(variant, "#555")
        parts.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts.append(f'<text x="{x0 + 8}" y="{y0 - height + 14 + 14 * index}" fill="{color}">{run.HEADINGS[variant]}</text>')
    parts.append(f'<text x="{left + 225}" y="{y0 + 36}" text-anchor="middle">tokens</text>')
    return "".join(parts)


def render(data: dict) -> tuple[str, str]:
    """Markdown and SVG."""
    curves: dict[str, dict[str, dict[int, float]]] = {"decode": {}, "prefill": {}}
    for variant, lengths in data["records"].items():
        for length, found in lengths.items():
            for kind in curves:
                if found:
                    curves[kind].setdefault(variant, {})[int(length)] = statistics.median(each[kind] for each in found) * 1e3
    parts = [
        "## Length of the context\n",
        f"`bench/context.py --rounds {data['rounds']} --scheme {data['scheme']}`, {data['threads']} thread. {data['machine']}. {data['versions']}.\n",
        "Llama 110M with a cache of 4096 rows (the zoo's model with `context=4096`; weights are the same). Milliseconds, medians: one decoded token at that many tokens of context, and a prefill of "
        f"{WARM_STEPS + STEPS} tokens less than that.\n",
    ]
    for kind, series in curves.items():
        lengths = sorted({length for curve in series.values() for length in curve})
        rows = [[run.HEADINGS[v], *(f"{curve[n]:.2f}" if n in curve and kind == "decode" else f"{curve[n]:.0f}" if n in curve else "" for n in lengths)] for v, curve in series.items()]
        parts.append(report.table([kind, *map(str, lengths)], rows))
    parts.append("![Time against length](benchmarks-context.svg)")
    body = plot(curves["decode"], "decode one token, ms", 0) + plot(curves["prefill"], "prefill, ms", 430)
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 860 320" font-family="sans-serif" font-size="10"><rect width="860" height="320" fill="#fff"/>{body}</svg>\n'
    return "\n".join(parts), svg


def main() -> int:
    parser = argparse.ArgumentParser(description="time against the length of the context")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--lengths", type=int, nargs="+", default=[64, 128, 256, 512, 1024, 2048, 4096])
    parser.add_argument("--variants", nargs="+", choices=run.VARIANTS, default=["dovetail", "dovetail-state8", "llamacpp"])
    parser.add_argument("--scheme", choices=("int8", "int4"), default="int8")
    parser.add_argument("--dovetail", type=Path, help="the binary (build/release/bin/dovetail)")
    parser.add_argument("--no-page", action="store_true", help="leave docs/ alone")
    parser.add_argument("--render", type=Path, help="only write the page and the plot, from this JSON")
    options = parser.parse_args()
    if not options.render:
        run.use_dovetail(options.dovetail)
        if not (BUILD / "models" / f"{MODEL}.pt2").exists():
            code = f"from peers import models; models.write_program({MODEL!r})"
            subprocess.run([str(report.python("project")), "-c", code], check=True, env=report.environment(), cwd=ROOT)
        data = {"rounds": options.rounds, "threads": options.threads, "scheme": options.scheme, "machine": report.machine(), "versions": report.versions(), "records": {}}
        for variant in options.variants:
            made = run.prepare(variant, MODEL, options.scheme, True, 1500)
            if "not_measured" in made:
                print(f"{variant}: {made['not_measured']}", file=sys.stderr)
            else:
                data["records"][variant] = {length: [] for length in options.lengths}
        random.seed(0)
        for index in range(options.rounds):
            for length in random.sample(options.lengths, len(options.lengths)):
                for variant in random.sample(list(data["records"]), len(data["records"])):
                    data["records"][variant][length].append(measure(variant, options.scheme, length, options.threads))
            print(f"round {index + 1} of {options.rounds}", file=sys.stderr)
        (BUILD / "context.json").write_text(json.dumps(data))
    else:
        data = json.loads(options.render.read_text())
    markdown, svg = render(data)
    print(markdown)
    if not options.no_page:
        report.write_section("context.py", markdown)
        (ROOT / "docs" / "benchmarks-context.svg").write_text(svg)
    return 0


if __name__ == "__main__":
    sys.exit(main())
