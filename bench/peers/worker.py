"""A process of one engine: `python -m peers.worker prepare|run ENGINE VARIANT MODEL SCHEME FOLDER WORK [THREADS OUT]`.

`prepare` prints {"seconds", "cpu_seconds", "peak_rss_bytes"} or {"not_measured": reason}; `run` prints host.measure's times and writes its
outputs to OUT. The result is the last line of stdout: engines print there too.
"""

import importlib
import json
import sys
import traceback
from pathlib import Path

import numpy as np

from . import host
from .work import NotMeasured, Stopwatch, Work


def prepare(engine, variant: str, model: str, scheme: str, folder: Path, work: Work) -> dict:
    try:
        watch = Stopwatch()
        timings = engine.prepare(variant, model, scheme, folder, work) or {}
        return {**watch.read(), "peak_rss_bytes": host.memory()["VmHWM"], **timings}
    except NotMeasured as reason:
        return {"not_measured": str(reason)}
    except Exception as error:  # a converter's failure is a result
        traceback.print_exc()
        text = " ".join(str(error).split())
        return {"not_measured": f"{type(error).__name__}: {text[:300]}"}


def main(arguments: list[str]) -> int:
    verb, engine_name, variant, model, scheme, folder, work_file, *rest = arguments
    engine, work = importlib.import_module(f"peers.{engine_name}"), Work.load(Path(work_file))
    if verb == "prepare":
        result = prepare(engine, variant, model, scheme, Path(folder), work)
    else:
        threads, out = int(rest[0]), rest[1]
        getattr(engine, "import_runtime", lambda: None)()
        result, outputs = host.measure(lambda: engine.session(variant, model, scheme, Path(folder), threads), work)
        np.savez(out, **outputs)
    print(json.dumps(result), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
