"""Paths that the Python tests share."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "python"))

import json  # noqa: E402
import os  # noqa: E402
import subprocess  # noqa: E402
import tempfile  # noqa: E402

import pytest  # noqa: E402

# The tests' cache files of packed weights go with the tests, not into the user's own cache folder.
_cache = tempfile.TemporaryDirectory(prefix="dovetail_cache_")
os.environ["XDG_CACHE_HOME"] = _cache.name


@pytest.fixture(scope="session")
def dovetail():
    """The command-line program of the release build, or DOVETAIL; a missing one fails the test."""
    path = os.environ.get("DOVETAIL") or str(ROOT / "build/release/bin/dovetail")
    assert os.path.exists(path), "dovetail is not built: run ./test, or set DOVETAIL"
    return path


@pytest.fixture(scope="session")
def cli(dovetail):
    """Runs the program on arguments and gives what it printed; any exit code but `code` fails the test."""
    def call(*arguments, code=0):
        done = subprocess.run([dovetail, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == code, done.stderr
        return done

    return call


@pytest.fixture(scope="session")
def zoo():
    """The folder of exported models; ./test exports SmolLM2 into it first."""
    folder = ROOT / "build" / "zoo"
    assert (folder / "smollm2.pt2").exists(), "smollm2.pt2 is missing: run ./test, or python -m dovetail_zoo smollm2"
    return folder


@pytest.fixture(scope="session")
def greedy():
    """Recorded greedy answers of eager PyTorch (python/dovetail_zoo/record.py)."""
    return json.loads((ROOT / "tests" / "models" / "smollm2_greedy.json").read_text())["cases"]


@pytest.fixture(scope="module")
def qnn_library():
    """Where Qualcomm's library is; so says the environment too while the module's tests run."""
    before = os.environ.get("DOVETAIL_QNN_LIB")
    path = before or str(ROOT / "build/qnn/onnxruntime_qnn")
    if not Path(path).exists():
        pytest.skip("no QNN library: set DOVETAIL_QNN_LIB, or run ./test, which installs onnxruntime-qnn")
    os.environ["DOVETAIL_QNN_LIB"] = path
    yield path
    if before is None:
        del os.environ["DOVETAIL_QNN_LIB"]
