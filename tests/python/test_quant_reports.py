"""What the compiler says of layers and states that it quantizes, or cannot, and of calibration calls for several methods."""

import numpy as np
import pytest
import torch
from torch import nn

from quant_cli import Cli, worst_sqnr
from quant_models import Model, write_calls
from test_quant_cases import FIXTURES, left_in_float


@pytest.fixture
def cli(dovetail, tmp_path):
    return Cli(dovetail, tmp_path)


class Held(nn.Module):
    """A layer whose last result is kept in a state."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.layer = nn.Linear(16, 16)
        self.register_buffer("held", torch.zeros(2, 16))

    def forward(self, x):
        self.held.copy_(self.layer(x))
        return self.held + 0


class Get(nn.Module):
    def __init__(self, held):
        super().__init__()
        self.register_buffer("held", held.held)

    def forward(self):
        return self.held * 2


class Set(nn.Module):
    def __init__(self, held):
        super().__init__()
        self.register_buffer("held", held.held)

    def forward(self, value):
        self.held.copy_(value)
        return value.sum()


def test_calls_are_of_the_method_whose_inputs_they_name(cli):
    held = Held().eval()
    x, value = torch.randn(2, 16, generator=torch.Generator().manual_seed(1)), torch.ones(2, 16)
    source = cli.source(Model(held, [(x,)]))
    methods = []
    for name, module, args in (("get", Get(held), ()), ("set", Set(held), (value,))):
        path = cli.new_path(f"{name}.pt2")
        torch.export.save(torch.export.export(module, args), path)
        methods += ["--method", f"{name}={path}"]
    folder = cli.new_path("calibration")
    folder.mkdir()
    np.savez(folder / "0.npz", value=value.numpy())
    np.savez(folder / "1.npz", x=x.numpy())
    program, report = cli.compile(source, *methods, "--quantize", "int8", "--calibrate", folder)
    assert report["linears"]["quantized"] == 1 and not report["left_in_float"]
    assert worst_sqnr(cli.run(program, [(x,)]).outputs, [[held(x).detach().numpy()]]) > 30


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        self.matrix = nn.Parameter(torch.randn(8, 16))
        self.rnn = nn.GRU(16, 16)
        self.out = nn.Linear(16, 4)

    def forward(self, x):
        y, _ = self.rnn(x)
        return self.out(y), self.matrix @ y[:, 0].T


@pytest.mark.parametrize("scheme", ["int8-dynamic", "int8", "int4"])
def test_every_layer_is_in_the_report(cli, scheme):
    torch.manual_seed(1)
    model = Model(Mixed().eval(), [(torch.randn(5, 1, 16),)])
    got, want, report = cli.check(model, scheme)
    left = left_in_float(report)
    assert "RNN" in left["rnn"]
    if scheme != "int8":
        assert any("left" in reason for path, reason in left.items() if path != "rnn")
    assert report["linears"]["quantized"] == 2  # the gates' input part, and the head
    assert worst_sqnr(got, want) > (12 if scheme == "int4" else 28)


def test_a_glob_that_matches_nothing_is_said(cli):
    _, report = cli.compile(cli.source(Model(Mixed().eval(), [(torch.randn(5, 1, 16),)])), "--quantize", "int8-dynamic", "--keep-float", "typo*")
    assert any("typo*" in w and "matches no layer" in w for w in report["warnings"])


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(1, 4))

    def forward(self, x):
        self.total.add_(x)
        return self.total + 0


def test_an_accumulator_in_int8_is_warned_of_and_can_be_kept(cli):
    model = Model(Counter().eval(), [(torch.tensor([[1000.0, 1, 0, 0]]),)] + [(torch.ones(1, 4),)] * 20)
    source = cli.source(model)
    _, report = cli.compile(source, "--state", "int8")
    assert any("'total'" in w and "--keep-float 'total'" in w for w in report["warnings"])
    program, report = cli.compile(source, "--state", "int8", "--keep-float", "total")
    assert [s["dtype"] for s in report["states"]] == ["f32"]
    assert worst_sqnr(cli.run(program, model.calls).outputs, model.eager()) > 100


def test_a_static_model_takes_no_second_static_scheme(cli):
    source = FIXTURES / "pt2e_static_per_channel.pt2"
    folder = cli.new_path("calibration")
    folder.mkdir()
    np.savez(folder / "0.npz", input_0=np.zeros((1, 3, 16, 16), np.float32))
    plain, before = cli.compile(source)
    again, after = cli.compile(source, "--quantize", "int8", "--calibrate", folder)
    assert any("came with static int8" in w for w in after["warnings"])
    assert before["linears"] == after["linears"]


def test_a_vector_runs_in_executorch(cli):
    torch.manual_seed(3)
    model = Model(nn.Linear(32, 8).eval(), [(torch.randn(32),)])
    for scheme in ("int8-dynamic", "int4", "int8-weight-only"):
        program, _ = cli.compile(cli.source(model), "--quantize", scheme, "--runtime", "executorch")
        assert worst_sqnr(cli.run_in_executorch(program, model.calls).outputs, model.eager()) > (10 if scheme == "int4" else 30)
