"""Masks on Qualcomm's tensor processor (on the x86 simulator of its library): what is not masked is right, and what is comes back as it was or is warned of."""

import numpy as np
import pytest
import torch

from quant_cli import Cli
from quant_models import write_calls

ON_NPU = ["--backend", "qnn,cpu", "--soc", "SM8650"]
LOW = -1e9


class Model(torch.nn.Module):
    def __init__(self, form):
        super().__init__()
        self.layer = torch.nn.Linear(16, 8)
        self.form = form

    def forward(self, x, mask):
        return self.form(self.layer(x), x[:, :8], mask)


def fill(y, x, mask):
    return y.masked_fill(mask, LOW)


def fill_infinity(y, x, mask):
    return y.masked_fill(mask, float("-inf"))


def added(y, x, mask):
    return y + torch.where(x > 0, LOW, 0.0)


def beside(y, x, mask):
    return y, torch.where(x > 0, LOW, 0.0)


def softmax(y, x, mask):
    return torch.softmax(y + torch.where(mask, LOW, 0.0), -1)


FORMS = [fill, fill_infinity, added, beside, softmax]


@pytest.fixture
def cli(dovetail, tmp_path):
    return Cli(dovetail, tmp_path)


@pytest.mark.parametrize("scheme", ["none", "qnn-fp16", "qnn-16a8w"])
@pytest.mark.parametrize("form", FORMS, ids=lambda f: f.__name__)
def test_masks(cli, qnn_library, form, scheme):
    torch.manual_seed(1)
    model = Model(form).eval()
    calls = [(torch.randn(4, 16), torch.rand(4, 8) > 0.5) for _ in range(4)]
    source = cli.new_path("model.pt2")
    torch.export.save(torch.export.export(model, calls[0]), source)
    flags = ["--quantize", scheme]
    if scheme == "qnn-16a8w":
        folder = cli.new_path("calibration")
        write_calls(calls, folder)
        flags += ["--calibrate", folder]
    done = cli("compile", source, "-o", cli.folder / "m.pte", *flags, *ON_NPU)
    exact = scheme != "qnn-16a8w" or form in (beside, softmax)
    assert ("is masked: its elements below -5000" in done.stderr) != exact, done.stderr
    check(cli, model, calls, exact)


def check(cli, model, calls, exact):
    got = cli.run(cli.folder / "m.pte", calls)
    for call, outputs in zip(calls, got.outputs):
        want = model(*call)
        for w, g in zip(want if isinstance(want, tuple) else [want], outputs):
            w, masked = w.detach().numpy(), w.detach().numpy() < -5e3
            np.testing.assert_allclose(g[~masked], w[~masked], atol=1e-2)
            if exact:
                np.testing.assert_array_equal(g[masked], w[masked])
            elif masked.any():
                assert g[masked].max() < w[~masked].min() and np.unique(g[masked]).size == 1


def test_keep_float_keeps_masked_elements(cli, qnn_library):
    torch.manual_seed(1)
    model = Model(fill).eval()
    calls = [(torch.randn(4, 16), torch.rand(4, 8) > 0.5) for _ in range(4)]
    source, folder = cli.new_path("model.pt2"), cli.new_path("calibration")
    torch.export.save(torch.export.export(model, calls[0]), source)
    write_calls(calls, folder)
    done = cli("compile", source, "-o", cli.folder / "m.pte", "--quantize", "qnn-16a8w", "--calibrate", folder, "--keep-float", "layer", *ON_NPU)
    assert "is masked" not in done.stderr
    check(cli, model, calls, True)
