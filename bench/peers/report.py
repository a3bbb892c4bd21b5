"""What the scripts of bench/ share: processes and their memory, the machine's description, tables, marked sections of a page."""

import os
import platform
import re
import subprocess
import threading
import time
from pathlib import Path

from .work import BUILD, ROOT

PAGE = ROOT / "docs" / "benchmarks-peers.md"
_PACKAGES = {
    "project": ("torch", "torchao", "executorch"),
    "venv": ("onnxruntime", "openvino", "nncf"),
    "litert": ("ai-edge-litert", "litert-torch", "ai-edge-quantizer"),
}


def python(venv: str) -> Path:
    """The interpreter of `project` (build/venv) or of a folder of build/peers."""
    return (BUILD.parent / "venv" if venv == "project" else BUILD / venv) / "bin" / "python"


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{ROOT / 'bench'}:{ROOT / 'python'}"}


def status(pid: int) -> dict[str, int]:
    """Bytes of each memory field of /proc/PID/status; empty when the process is gone."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return {}
    return {name: int(kilobytes) * 1024 for name, kilobytes in re.findall(r"^(\w+):\s+(\d+) kB$", text, re.MULTILINE)}


class Failed(Exception):
    """A process ended with an error; the message ends with the last of its stderr."""


def process(command: list[str], interval: float = 0.005, timeout: float = 600) -> dict:
    """Runs it; {"stdout", "wall_s", "peak_rss_bytes" (VmHWM), "peak_anonymous_bytes"}. The last `interval` may be missed."""
    start = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment())
    peak = {"VmHWM": 0, "RssAnon": 0}

    def sample() -> None:
        # Until exec has replaced it, the child shows this process's memory.
        own = os.readlink("/proc/self/exe")
        while child.poll() is None:
            try:
                replaced = os.readlink(f"/proc/{child.pid}/exe") != own or os.path.realpath(command[0]) == own
            except OSError:
                break
            now = status(child.pid) if replaced else {}
            for key in peak:
                peak[key] = max(peak[key], now.get(key, 0))
            time.sleep(interval)

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        stdout, stderr = child.communicate(timeout=timeout)
    except subprocess.TimeoutExpired as error:
        child.kill()
        child.communicate()
        raise Failed(f"took over {timeout:.0f} s") from error
    finally:
        sampler.join()
    wall = time.monotonic() - start
    if child.returncode:
        raise Failed(f"exit status {child.returncode}: {' '.join(stderr.split())[-200:]}")
    return {
        "stdout": stdout, "start": start, "wall_s": wall, "peak_rss_bytes": peak["VmHWM"], "peak_anonymous_bytes": peak["RssAnon"],
    }  # fmt: skip


def machine() -> str:
    """The CPU, its count, its vector extensions, and the system."""
    text = Path("/proc/cpuinfo").read_text()
    found = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    flags = set((re.search(r"^flags\s*: (.*)$", text, re.MULTILINE) or [None, ""])[1].split())
    vectors = [name for name in ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "amx_int8") if name in flags]
    release = platform.release().split("-")[0]
    return f"{found[1] if found else platform.machine()} ({', '.join(vectors)}), {os.cpu_count()} CPUs, Linux {release}"


def versions() -> str:
    found = []
    for venv, names in _PACKAGES.items():
        code = f"from importlib.metadata import version\nfor n in {names!r}:\n try: print(n, version(n))\n except Exception: pass"
        if python(venv).exists():
            found += subprocess.run([str(python(venv)), "-c", code], capture_output=True, text=True).stdout.splitlines()
    from . import dovetail, llamacpp

    done = subprocess.run([str(dovetail.binary), "--version"], capture_output=True, text=True)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=dovetail.binary.resolve().parent)
    return ", ".join([f"{done.stdout.strip()} at {commit.stdout.strip()}", *found, llamacpp.REQUIREMENT])


def table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows]) + "\n"


def write_section(name: str, markdown: str) -> None:
    """Puts it between the page's markers of that name, at the end if there are none yet."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    section = f"{begin}\n{markdown.strip()}\n{end}\n"
    page = PAGE.read_text() if PAGE.exists() else "# Dovetail beside its peers\n\nSections between markers are written by the scripts of `bench/`.\n"
    before, found, rest = page.partition(begin)
    if found:
        page = before + section + rest.partition(end)[2].lstrip("\n")
        if rest.partition(end)[2].strip():
            page = before + section + "\n" + rest.partition(end)[2].lstrip("\n")
    else:
        page = page.rstrip("\n") + "\n\n" + section
    PAGE.write_text(page)
