"""Times a session inside the process that hosts an engine."""

import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from .work import WARM_STEPS, Work, single_inputs


class Session(Protocol):
    """A loaded program. `prepare` turns arrays into what `call` takes, outside of the timed part."""

    def rewind(self) -> None:
        """Forgets the cache, where the engine needs telling."""

    def prepare(self, *arrays: np.ndarray) -> Any: ...

    def call(self, prepared: Any) -> np.ndarray: ...


def memory() -> dict[str, int]:
    """Bytes of this process: VmRSS, VmHWM, RssAnon."""
    with open("/proc/self/status") as file:
        lines = dict(line.split(":", 1) for line in file)
    return {key: int(lines[key].split()[0]) * 1024 for key in ("VmRSS", "VmHWM", "RssAnon")}


def measure(load: Callable[[], Session], work: Work) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Seconds of loading and of each call, and the last outputs."""
    before = memory()
    start = time.perf_counter()
    session = load()
    result: dict[str, Any] = {"load_s": time.perf_counter() - start, "host_rss_bytes": before["VmRSS"]}
    outputs: dict[str, np.ndarray] = {}

    def timed(prepared: Any) -> tuple[float, np.ndarray]:
        start = time.perf_counter()
        output = session.call(prepared)
        return time.perf_counter() - start, output

    inputs = session.prepare(*(work.prompt_arrays() if work.is_language else single_inputs(work.model)))
    result["first_s"], output = timed(inputs)
    result["first_at"] = time.monotonic()
    times = []
    for _ in range(work.calls):
        session.rewind()
        seconds, output = timed(inputs)
        times.append(seconds)
    if not work.is_language:
        result["call_s"], outputs["output"] = times, output.copy()
    else:
        result["prefill_s"], outputs["prefill"] = times, output.reshape(-1)[-output.shape[-1] :].copy()  # may be the engine's memory
        prepared = [session.prepare(*work.step_arrays(step)) for step in range(work.all_steps)]
        times = []
        for inputs in prepared:
            seconds, output = timed(inputs)
            times.append(seconds)
        if prepared:
            result["decode_s"], outputs["decode"] = times[WARM_STEPS:], output.reshape(-1).copy()
    result["peak_rss_bytes"] = memory()["VmHWM"]
    return result, outputs
