"""Programs that the .pte writer makes by hand run in the stock ExecuTorch runtime and give the right values.

format_test writes the files (src/format/format_samples.h describes them).
"""

import os
import pathlib
import subprocess

import pytest
import torch
from executorch import runtime


ROOT = pathlib.Path(__file__).resolve().parent.parent


def writer():
    chosen = os.environ.get("FORMAT_TEST") or ROOT / "build/release/bin/format_test"
    assert os.path.exists(chosen), "format_test is not built: run ./test, or set FORMAT_TEST"
    return chosen


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("pte")
    subprocess.run(
        [writer(), "--gtest_filter=PteSamples.Write"],
        check=True,
        cwd=ROOT,
        env={**os.environ, "TEST_TMPDIR": str(path)},
        stdout=subprocess.DEVNULL,
    )
    return path


def load(folder, name):
    program = runtime.Runtime.get().load_program(str(folder / f"dovetail_sample_{name}.pte"))
    return program.load_method("forward"), program


def test_add(folder):
    method, _program = load(folder, "add")
    a, b = torch.arange(6.0).reshape(2, 3), torch.full((2, 3), 0.5)
    assert torch.equal(method.execute((a, b))[0], a + b)


def test_state_starts_with_its_value_and_keeps_it(folder):
    method, _program = load(folder, "state")
    x, c, s = torch.tensor([1.0, 1.0]), torch.tensor([2.0, 3.0]), torch.tensor([10.0, 20.0])
    for _ in range(3):
        s = x * c + s
        assert torch.equal(method.execute((x,))[0], s)


W, B = torch.tensor([[1.0, 2, 3], [4, 5, 6]]), torch.tensor([10.0, 20.0])


@pytest.mark.parametrize("name", ["fc_named", "fc_blob", "fc_tied"])
def test_xnnpack(folder, name):
    method, _program = load(folder, name)
    x = torch.tensor([[1.0, 0, 0], [1, 1, 1]])
    out = method.execute((x,))
    assert torch.equal(out[0], x @ W.T + B)
    if name == "fc_tied":
        assert torch.equal(out[1], x + W)
