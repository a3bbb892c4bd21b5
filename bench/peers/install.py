"""Installs the peers in build/peers: a venv for those whose packages agree, another for LiteRT's, and llama.cpp."""

import subprocess
import sys

from . import llamacpp
from .work import BUILD

_COMMON = ("transformers==5.24.0", "gguf", "scikit-learn", "pillow==12.0.0")  # what the models need
REQUIREMENTS = {
    "venv": ("torch==2.13.0", "onnxruntime==1.32.0", "onnx==1.23.2", "onnxscript==0.7.2", "openvino==2026.4.1", "nncf==3.4.0", *_COMMON),
    "litert": ("torch==2.13.0", "litert-torch==0.10.0", "ai-edge-litert==2.3.0", *_COMMON),
}


def everything() -> None:
    """Does what isn't done. What can't be installed is told on stderr; its engines then are not measured."""
    BUILD.mkdir(parents=True, exist_ok=True)
    for venv, requirements in REQUIREMENTS.items():
        stamp = BUILD / f"{venv}.installed"
        if stamp.exists() and stamp.read_text() == " ".join(requirements):
            continue
        print(f"installing {' '.join(requirements)}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", str(BUILD / venv)], check=True)
        pip = [str(BUILD / venv / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
        if subprocess.run([*pip, *requirements]).returncode == 0:
            stamp.write_text(" ".join(requirements))
        else:
            print(f"pip could not install {' '.join(requirements)}", file=sys.stderr)
    try:
        llamacpp.install()
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"llama.cpp could not be built: {error}", file=sys.stderr)
