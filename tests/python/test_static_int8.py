"""`compile --quantize int8 --calibrate`, from recorded calls to results."""

import json
import os
import subprocess

import numpy as np
import pytest
from safetensors.numpy import load_file

from conftest import ROOT

FIXTURES = ROOT / "tests" / "fixtures"


@pytest.fixture
def cli(dovetail):
    def call(*arguments, code=0, **options):
        done = subprocess.run([dovetail, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True, **options)
        assert done.returncode == code, done.stderr
        return done

    return call


def sqnr(want, got):
    return 10 * np.log10((want**2).sum() / ((want - got) ** 2).sum())


def recorded(model, folder):
    """The calls of a fixture as files in `folder`, and what they gave."""
    tensors = load_file(FIXTURES / f"{model}.ref.safetensors")
    folder.mkdir()
    calls, results = [], []
    while f"out.{len(calls)}.0" in tensors:
        step = len(calls)
        path = folder / f"{step:03}.npz"
        np.savez(path, **{f"input_{i}": tensors[f"in.{step}.{i}"] for i in range(8) if f"in.{step}.{i}" in tensors})
        calls.append(path)
        results.append(tensors[f"out.{step}.0"])
    return calls, results


def test_needs_calibration(cli, tmp_path):
    done = cli("compile", FIXTURES / "digits_cnn_trained.pt2", "-o", tmp_path / "d.pte", "--quantize", "int8", code=2)
    assert "--calibrate" in done.stderr and "int8-dynamic needs none" in done.stderr
    assert not (tmp_path / "d.pte").exists()


def test_wrong_calls_are_named(cli, tmp_path):
    np.savez(tmp_path / "wrong.npz", input_0=np.zeros((1, 1, 8, 9), np.float32))
    wrong = ("wrong.npz", "input 'input' has size 9 in dimension 3, expected 8")
    for calls, parts in (("wrong.npz", wrong), (".", wrong), ("none.npz", ("none.npz",))):
        done = cli("compile", FIXTURES / "digits_cnn_trained.pt2", "-o", tmp_path / "d.pte", "--quantize", "int8", "--calibrate", tmp_path / calls, code=1)
        for part in parts:
            assert part in done.stderr, done.stderr


def test_digits_on_the_cpu_backend(cli, tmp_path):
    [call], [want] = recorded("digits_cnn_trained", tmp_path / "calls")
    pictures = np.load(call)["input_0"]
    np.savez(tmp_path / "some.npz", input_0=pictures[:64])
    flags = ("compile", FIXTURES / "digits_cnn_trained.pt2", "--quantize", "int8", "--backend", "cpu", "--calibrate", tmp_path / "some.npz", "--json")
    report = json.loads(cli(*flags, "-o", tmp_path / "d.pte").stdout)
    assert [layer["became"] for layer in report["layers"]] == ["i8 per_tensor x i8 per_channel"] * 5
    assert report["left_in_float"] == [] and report["warnings"] == []
    cli("run", tmp_path / "d.pte", call, "-o", tmp_path / "out")
    got = np.load(tmp_path / "out" / "000.npz")["output_0"]
    assert sqnr(want, got) >= 35
    assert (want.argmax(1) == got.argmax(1)).mean() >= 0.99

    # The same bytes on one core.
    core = min(os.sched_getaffinity(0))
    cli(*flags, "-o", tmp_path / "again.pte", preexec_fn=lambda: os.sched_setaffinity(0, {core}))
    assert (tmp_path / "again.pte").read_bytes() == (tmp_path / "d.pte").read_bytes()


@pytest.mark.parametrize("model", ["llama_tiny_index_put", "llama_tiny_slice_copy", "llama_tiny_decode_static"])
def test_a_cache_stays_a_state(cli, tmp_path, model):
    calls, results = recorded(model, tmp_path / "calls")
    cli("compile", FIXTURES / f"{model}.pt2", "-o", tmp_path / "m.pte", "--quantize", "int8", "--backend", "cpu", "--calibrate", tmp_path / "calls")
    states = {s["name"]: s["bytes"] for s in json.loads(cli("inspect", tmp_path / "m.pte", "--json").stdout)["states"]}
    assert states == {s["name"]: s["bytes"] for s in json.loads(cli("inspect", FIXTURES / f"{model}.pt2", "--json").stdout)["states"]} != {}
    cli("run", tmp_path / "m.pte", *calls, "-o", tmp_path / "out")
    for call, want in zip(calls, results, strict=True):
        assert sqnr(want, np.load(tmp_path / "out" / call.name)["output_0"]) >= 30
    # Without the earlier calls the last one gives something else.
    cli("run", tmp_path / "m.pte", calls[-1], "-o", tmp_path / "alone")
    assert sqnr(results[-1], np.load(tmp_path / "alone" / calls[-1].name)["output_0"]) < 15
