"""A table of what making the programs took, from the records of run.py."""

from .report import table


def text(made: dict) -> str:
    """Wall seconds, and processor seconds in brackets."""
    cpu = made.get("cpu_seconds")
    return f"{made['seconds']:.1f}" + (f" ({cpu:.1f})" if cpu is not None else "")


def render(records: dict, titles: dict[str, str], headings: dict[str, str]) -> str:
    rows, missing = [], []
    for name, record in records.items():
        variant, model, scheme, _ = name.split("/")
        made, title = record["prepare"], f"{titles[model].split(',')[0]} {scheme}"
        if "not_measured" in made:
            missing.append(f"- {headings[variant]}, {title}: {made['not_measured'][:200]}")
            continue
        counts = [made.get(key) for key in ("delegate_calls", "operator_calls")]
        rows.append([
            title, headings[variant], text(made), "" if variant.startswith("dovetail") else f"{made['peak_rss_bytes'] / 1e6:.0f}", f"{made['file_bytes'] / 1e6:.0f}",
            " / ".join(map(str, counts)) if None not in counts else "",
        ])  # fmt: skip
    body = table(["model", "engine", "s (CPU s)", "peak RSS MB", "file MB", "delegate / other calls"], rows)
    return "\n".join([body, *(["Not made:\n", *missing] if missing else [])])
