"""int4 with calibration data, and `compare`, on a small model whose layers see correlated inputs."""

import hashlib
import json
import subprocess

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim

from quant_cli import Cli, worst_sqnr
from quant_models import Model, write_calls


def inputs(seed, rows=96):
    """Rows of 64 numbers that 10 hidden ones explain, but for a little noise."""
    mix = torch.randn(10, 64, generator=torch.Generator().manual_seed(3))
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 10, generator=generator) @ mix + 0.1 * torch.randn(rows, 64, generator=generator)


@pytest.fixture
def cli(dovetail, tmp_path):
    return Cli(dovetail, tmp_path)


@pytest.fixture
def model():
    torch.manual_seed(5)
    module = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32)).eval()
    return Model(module, [(inputs(100),)])


def calibration(cli):
    folder = cli.new_path("calibration")
    write_calls([(inputs(seed),) for seed in range(4)], folder)
    return folder


@pytest.mark.parametrize("scheme", ["int4", "int4-weight-only"])
def test_rounding_compensates_on_calls_it_has_not_seen(cli, model, scheme):
    source, folder = cli.source(model), calibration(cli)
    plain, _ = cli.compile(source, "--quantize", scheme)
    rounded, report = cli.compile(source, "--quantize", scheme, "--calibrate", folder)
    assert report["linears"]["quantized"] == 2 and not report["warnings"]
    assert plain.stat().st_size == rounded.stat().st_size
    want = model.eager()
    before, after = (worst_sqnr(cli.run(program, model.calls).outputs, want) for program in (plain, rounded))
    assert after > before + 2, (before, after)


@pytest.mark.parametrize("rows", [4, 16, 32, 64, 128])
@pytest.mark.parametrize("hidden", [10, None])
def test_few_rows_do_no_harm(cli, rows, hidden):
    """Fewer rows than columns, of inputs that depend on each other and of such that do not."""
    def make(seed, rows):
        if hidden:
            return inputs(seed, rows)
        return torch.randn(rows, 64, generator=torch.Generator().manual_seed(seed))

    torch.manual_seed(5)
    module = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32)).eval()
    model = Model(module, [(make(100, 512),)], dynamic_shapes=({0: Dim("rows", max=512)},))
    source, folder = cli.source(model), cli.new_path("calibration")
    write_calls([(make(0, rows),)], folder)
    want = model.eager()
    before, after = (worst_sqnr(cli.run(cli.compile(source, "--quantize", "int4", *flags)[0], model.calls).outputs, want)
                     for flags in ([], ["--calibrate", folder]))
    assert after > before - 0.3, (before, after)


def test_the_same_bytes_on_one_core(cli, model):
    source, folder = cli.source(model), calibration(cli)
    program, _ = cli.compile(source, "--quantize", "int4", "--calibrate", folder)
    other = cli.new_path("program.pte")
    subprocess.run(["taskset", "-c", "0", cli.dovetail, "compile", source, "-o", other, "--quantize", "int4", "--calibrate", folder], check=True, capture_output=True)
    assert hashlib.sha256(program.read_bytes()).digest() == hashlib.sha256(other.read_bytes()).digest()


def test_schemes_without_a_use_for_calibration_say_so(cli, model):
    _, report = cli.compile(cli.source(model), "--quantize", "int8-dynamic", "--calibrate", calibration(cli))
    assert "needs no calibration" in report["warnings"][0]


@pytest.mark.parametrize("scheme", ["int8-dynamic", "int8", "int4"])
def test_compare(cli, model, scheme):
    source, folder = cli.source(model), calibration(cli)
    flags = ["--calibrate", folder] if scheme == "int8" else []
    program, _ = cli.compile(source, "--quantize", scheme, *flags)
    [call] = write_calls(model.calls, cli.new_path("calls"))
    # The scheme is in the program; the calls it was calibrated with are not.
    report = json.loads(cli("compare", source, program, call, "--json", *flags).stdout)
    [output] = report["outputs"]
    assert output["sqnr_db"] == pytest.approx(worst_sqnr(cli.run(program, model.calls).outputs, model.eager()), abs=0.2)
    assert 0.9 < output["cosine"] <= 1 and output["max_abs_error"] > 0
    values = [entry["sqnr_db"] for entry in report["layers"]]
    assert len(values) == 2 and values == sorted(values) and all(10 < v < 70 for v in values)
    assert {entry["path"] for entry in report["layers"]} == {"0", "2"} and all(entry["became"] != "f32" for entry in report["layers"])
    text = cli("compare", source, program, call, *flags).stdout
    assert "worst first" in text and "SQNR" in text


def test_compare_refuses_what_does_not_belong_together(cli, model):
    source = cli.source(model)
    other = cli.source(Model(nn.Linear(64, 3).eval(), model.calls))
    program, _ = cli.compile(other)
    [call] = write_calls(model.calls, cli.new_path("calls"))
    refused = cli("compare", source, program, call, code=1).stderr
    assert "another model" in refused and str(program) in refused
    np.savez(cli.folder / "empty.npz", nothing=np.zeros(3, np.float32))
    assert "input_0" in cli("compare", source, program, cli.folder / "empty.npz", code=1).stderr
