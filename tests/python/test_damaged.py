"""A program with a flipped byte is refused by name, or computes what it did: what is read is checked when it is first used."""

import random
import re
import subprocess
import time

import numpy as np
import pytest

from conftest import ROOT


def execute(*arguments):
    return subprocess.run([str(a) for a in arguments], cwd=ROOT, capture_output=True, text=True)


@pytest.fixture(scope="module")
def whole(dovetail, tmp_path_factory):
    folder = tmp_path_factory.mktemp("damaged")
    made = execute(dovetail, "compile", "tests/fixtures/llama_tiny_index_put.pt2", "-o", folder / "m.pte", "--quantize", "int8-dynamic")
    assert made.returncode == 0, made.stderr
    np.savez(folder / "a.npz", input_0=np.arange(6)[None], input_1=np.arange(6))
    return folder


def run(dovetail, whole, program, out, cache):
    done = execute(dovetail, "run", program, whole / "a.npz", "-o", out, "--weights-cache", cache)
    if done.returncode:
        return done, None
    with np.load(out / "a.npz") as arrays:
        return done, {name: arrays[name].tobytes() for name in arrays.files}


def flipped(whole, folder, at):
    data = bytearray((whole / "m.pte").read_bytes())
    data[at] ^= 16
    program = folder / f"flipped_{at}.pte"
    program.write_bytes(data)
    return program


def test_a_flipped_byte_never_changes_results(dovetail, whole, tmp_path):
    _, expected = run(dovetail, whole, whole / "m.pte", tmp_path / "out", tmp_path / "cache")
    size = (whole / "m.pte").stat().st_size
    refused = 0
    for at in random.Random(1).sample(range(size), 60):
        program = flipped(whole, tmp_path, at)
        done, got = run(dovetail, whole, program, tmp_path / "out", tmp_path / "cache")
        if got is not None:
            assert got == expected, f"byte {at} of {size}"
            continue
        refused += 1
        assert done.returncode == 1 and program.name in done.stderr, done.stderr
        assert execute(dovetail, "inspect", program, "--verify").returncode == 1
    assert refused > 40


def test_damaged_weights_are_not_kept(dovetail, whole, tmp_path):
    # The largest segments are weights.
    data = (whole / "m.pte").read_bytes()
    program = flipped(whole, tmp_path, len(data) * 3 // 4)
    time.sleep(0.1)
    for _ in range(2):
        done, got = run(dovetail, whole, program, tmp_path / "out", tmp_path / "cache")
        assert got is None and re.search(r"flipped_\d+\.pte': segment \d+ \(.*\) is damaged", done.stderr), done.stderr


def test_verify(dovetail, whole):
    assert execute(dovetail, "inspect", whole / "m.pte", "--verify").returncode == 0
    refused = execute(dovetail, "inspect", "tests/fixtures/llama_tiny_index_put.pt2", "--verify")
    assert refused.returncode == 1 and "--verify checks a compiled program" in refused.stderr


def test_a_damaged_context_binary_is_refused(dovetail, qnn_library, whole, tmp_path):
    made = execute(dovetail, "compile", "tests/fixtures/digits_cnn_trained.pt2", "-o", tmp_path / "m.pte", "--backend", "qnn,cpu",
                   "--soc", "SM8650", "--quantize", "qnn-fp16", "--input-shape", "input=1,1,8,8")
    assert made.returncode == 0, made.stderr
    size = (tmp_path / "m.pte").stat().st_size
    for at in random.Random(2).sample(range(size // 4, size * 3 // 4), 4):
        program = flipped(tmp_path, tmp_path, at)
        done, got = run(dovetail, whole, program, tmp_path / "out", tmp_path / "cache")
        assert got is None and re.search(r"flipped_\d+\.pte': segment \d+ \(data of delegate QnnBackend in method 'forward', .*\) is damaged", done.stderr)
