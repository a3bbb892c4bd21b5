#!/usr/bin/env python3
"""Checks that #include edges between the modules of src/ go only down the table of docs/ARCHITECTURE.md.

    tools/check_includes.py [ROOT]

Prints each wrong edge as file:line and exits with 1 if there is any. Test, fuzz and benchmark files are held to the same
table as their module: what crosses modules belongs in tests/.
"""

import re
import sys
from pathlib import Path

# A module and the modules right below it. What is below those may be included too.
TABLE: dict[str, list[str]] = {
    "base": [],
    "core": ["base"],
    "ops": ["core"],
    "kernels": ["ops"],
    "format": ["core"],
    "runtime": ["kernels", "format"],
    "llm": ["runtime"],
    "ir": ["ops"],
    "import": ["ir"],
    "passes": ["ir"],
    "quant": ["passes", "kernels", "format"],
    "backends": ["ir", "format"],  # the interface of all backends' compile halves
    "api": ["base"],  # a vendor's interface, for both halves of its backend
    "lower": ["backends", "api"],
    "delegate": ["runtime", "api"],
    "compile": ["import", "passes", "quant", "lower"],
    "cli": ["compile", "llm", "delegate"],
}

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')


def module_of(path: str) -> str | None:
    """The module of a path relative to src/; None outside the table. backends/<b>/ is `lower`, its delegate/ `delegate`, its api/ `api`."""
    parts = path.split("/")
    if parts[0] != "backends":
        return parts[0] if parts[0] in TABLE and len(parts) > 1 else None
    if len(parts) == 2:
        return "backends"
    if parts[2] == "api":
        return "api"
    return "delegate" if "delegate" in (parts[2], parts[2].split(".")[0]) else "lower"


def reachable(module: str) -> set[str]:
    below = {module}
    for next_module in TABLE[module]:
        below |= reachable(next_module)
    return below


def backend_of(path: str) -> str | None:
    parts = path.split("/")
    return parts[1] if parts[0] == "backends" and len(parts) > 2 else None


def check(root: Path) -> list[str]:
    source, public = root / "src", root / "include"
    errors = []
    for file in sorted(path for path in source.rglob("*") if path.suffix in (".h", ".cc", ".inc", ".def")):
        name = file.relative_to(source).as_posix()
        module = module_of(name)
        if module is None:
            errors.append(f"src/{name}: its folder is not a module of the table in tools/check_includes.py")
            continue
        allowed = reachable(module)
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            match = INCLUDE.match(line)
            if match is None:
                continue
            target = match.group(1)
            where = f"src/{name}:{number}: "
            if target.startswith("dovetail/"):
                if not (public / target).exists():
                    errors.append(f"{where}no file include/{target}")
                continue
            to = module_of(target)
            if to is None:
                errors.append(f'{where}"{target}" is not relative to src/')
            elif to not in allowed:
                errors.append(f"{where}{module} must not include {to} ({target})")
            elif backend_of(target) not in (None, backend_of(name)) and module in ("lower", "delegate"):
                errors.append(f"{where}one backend must not include another ({target})")
    return errors


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    errors = check(root)
    print("\n".join(errors) if errors else "every #include goes down the table")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
