"""One file for both runtimes: our programs for Qualcomm's processor in ExecuTorch's QnnBackend, and ExecuTorch's in ours, on the x86 simulator.

ExecuTorch runs in a process of its own with tests/qnn/interposer.cc between it and the library, which is newer than the one it was built for.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import quant_models
from conftest import ROOT
from quant_cli import Cli, worst_sqnr
from test_qnn import ONE_TOKEN, SOC, decoders, scheme_flags  # noqa: F401

SCRIPT = ROOT / "tests/qnn/executorch_qnn.py"
INTERPOSER = Path(os.environ.get("DOVETAIL_QNN_INTERPOSER") or ROOT / "build/release/qnn_interposer/libQnnHtp.so")


@pytest.fixture
def cli(dovetail, tmp_path):
    return Cli(dovetail, tmp_path)


@pytest.fixture
def executorch(qnn_library, tmp_path):
    """Runs executorch_qnn.py."""
    folder = Path(qnn_library) if (Path(qnn_library) / "libQnnHtp.so").exists() else Path(qnn_library) / "onnxruntime_qnn"
    if not (folder / "libQnnHtp.so").exists():
        pytest.skip(f"no QNN library: {qnn_library} is no folder with libQnnHtp.so")
    assert INTERPOSER.exists(), f"{INTERPOSER} is not built: run ./test"
    sdk = tmp_path / "sdk" / "lib" / "x86_64-linux-clang"  # as ExecuTorch's exporter wants it
    sdk.mkdir(parents=True)
    (sdk / "libQnnHtp.so").symlink_to(INTERPOSER)
    for name in ("libQnnSystem.so", "libHtpPrepare.so"):
        (sdk / name).symlink_to(folder / name)
    environment = {
        **os.environ,
        "QNN_SDK_ROOT": str(tmp_path / "sdk"),
        "DOVETAIL_QNN_REAL": str(folder / "libQnnHtp.so"),
        "LD_LIBRARY_PATH": f"{INTERPOSER.parent}:{folder}:{folder}.libs",
    }

    def call(*arguments):
        done = subprocess.run([sys.executable, SCRIPT, *map(str, arguments)], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]

    return call


def outputs_of(folder, prefix, count):
    result = []
    for call in range(count):
        with np.load(folder / f"{prefix}_{call}.npz") as arrays:
            result.append([arrays[f"output_{i}"] for i in range(len(arrays.files))])
    return result


@pytest.mark.parametrize("scheme", ["qnn-fp16", "qnn-8a8w", "qnn-16a8w", "qnn-16a4w"])
def test_ours_in_theirs(cli, executorch, qnn_library, decoders, tmp_path, scheme):  # noqa: F811
    model, source, sequences, _ = decoders("index_put")
    flags = [*scheme_flags(cli, scheme, sequences[0] + sequences[1]), *ONE_TOKEN, "--backend", "qnn,cpu", "--soc", SOC, "--qnn-lib", qnn_library]
    program, report = cli.compile(source, *flags, "--runtime", "executorch")
    assert report["delegate_calls"] == 1
    for index, calls in enumerate(sequences):
        files = quant_models.write_calls(calls, tmp_path / f"calls_{index}")
        executorch("run", program, tmp_path / f"theirs_{index}", *files)
        theirs = outputs_of(tmp_path, f"theirs_{index}", len(calls))
        ours = cli.run(program, calls).outputs
        assert worst_sqnr(theirs, ours) > 90, "the two runtimes give different outputs for one file"
    assert not np.allclose(outputs_of(tmp_path, "theirs_0", 10)[-1][0], outputs_of(tmp_path, "theirs_1", 10)[-1][0]), "the answer does not depend on the prompt"


@pytest.mark.parametrize("scheme", ["8a8w", "16a8w"])
def test_theirs_in_ours(cli, executorch, tmp_path, scheme):
    """ExecuTorch 1.5.1 keeps such a cache inside the delegate and does not set it at first, so what no call has written is not compared."""
    executorch("export", scheme, tmp_path / "theirs.pte", tmp_path / "call")
    files = sorted(tmp_path.glob("call_*.npz"))
    assert len(files) == 4
    executorch("run", tmp_path / "theirs.pte", tmp_path / "got", *files)
    cli("run", tmp_path / "theirs.pte", *files, "-o", tmp_path / "ours")
    written = []
    for call, theirs in enumerate(outputs_of(tmp_path, "got", 4)):
        with np.load(tmp_path / f"call_{call}.npz") as arrays:
            written.append(int(arrays["input_0"][0]))
        with np.load(tmp_path / "ours" / f"call_{call}.npz") as arrays:
            scores, keys = arrays["output_0"], arrays["output_1"]
        np.testing.assert_array_equal(scores[..., written], theirs[0][..., written])
        np.testing.assert_array_equal(keys[:, :, written], theirs[1][:, :, written])
        others = [row for row in range(8) if row not in written]
        assert np.abs(keys[:, :, others]).max() == 0, "rows that no call has written start as zeros"
        assert np.abs(keys[:, :, written]).max() > 0.1
