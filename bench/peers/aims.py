"""What Dovetail is meant to reach on two cores with AVX512-VNNI, beside what a result of run.py says."""

import statistics

from .report import table

# model, scheme, threads, key of a result, unit for people, at most
AIMS = [
    ("llama110m", "int8", 2, "decode", "ms", 3.3),
    ("llama110m", "int8", 1, "decode", "ms", 4.1),
    ("llama110m", "int4", 2, "decode", "ms", 1.9),
    ("llama110m", "int4", 1, "decode", "ms", 2.5),
    ("llama110m", "int8", 1, "prefill", "ms", 58),
    ("llama110m", "int4", 1, "prefill", "ms", 66),
    ("minilm", "int8", 1, "call", "ms", 8),
    ("minilm", "f32", 1, "call", "ms", 27),
    ("mobilenet", "int8", 1, "call", "ms", 3.0),
    ("mobilenet", "f32", 1, "call", "ms", 6.6),
    ("llama110m", "int8", 1, "load_s", "ms", 15),
    ("llama110m", "int8", 1, "peak_rss_bytes", "MB", 150),
    ("llama110m", "int4", 1, "peak_rss_bytes", "MB", 95),
    ("llama110m", "int8", 1, "seconds", "s", 3),
    ("llama110m", "int4", 1, "seconds", "s", 3),
    ("llama110m", "int8", 1, "delegate_calls", "calls", 14),
]
_WORDS = {
    "decode": "decode one token", "prefill": "prefill 128", "call": "one call", "load_s": "load, second time",
    "peak_rss_bytes": "peak RSS", "seconds": "compile", "delegate_calls": "delegate calls",
}  # fmt: skip
_SCALE = {"ms": 1e3, "MB": 1e-6, "s": 1.0, "calls": 1.0}
_OWN = ("dovetail", "dovetail-state8")


def _value(record: dict | None, key: str) -> float | None:
    if not record or "not_measured" in record:
        return None
    if key in record["prepare"] and key in ("seconds", "delegate_calls"):
        return record["prepare"][key]
    found = [each[key] for each in record["rounds"] if each and key in each]
    return statistics.median(found) if found else None


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}" if value < 20 and value != int(value) else f"{value:.0f}"


def render(records: dict, titles: dict[str, str], headings: dict[str, str]) -> str:
    """A table of each aim: Dovetail's values, whether the better one meets it, and the best peer's."""
    rows = []
    for model, scheme, threads, key, unit, limit in AIMS:
        found = {}
        for name, record in records.items():
            variant, *rest = name.split("/")
            value = _value(record, key) if rest == [model, scheme, str(threads)] else None
            if value is not None:
                found[variant] = value * _SCALE[unit]
        own = [found.get(variant) for variant in _OWN]
        best = min((value for value in own if value is not None), default=None)
        verdict = "not measured" if best is None else "met" if best <= limit else f"missed by {(best / limit - 1) * 100:.0f}%"
        peers = {variant: value for variant, value in found.items() if variant not in _OWN}
        peer = min(peers, key=peers.get) if peers else None
        rows.append([
            f"{titles[model].split(',')[0]} {scheme}: {_WORDS[key]}, {unit}", str(threads), *map(_shown, own), f"<= {limit:g}", verdict,
            f"{_shown(peers[peer])} ({headings[peer]})" if peer else "",
        ])  # fmt: skip
    return table(["", "threads", *(headings[variant] for variant in _OWN), "aim", "the better of both", "best peer"], rows)
