"""A cache stays a cache on Qualcomm's tensor processor: in every scheme and way to write it, on the x86 simulator of Qualcomm's own library.

Needs the library (./test installs the Python package onnxruntime-qnn for it); nothing here says anything about a phone.
"""

import json
import os

import numpy as np
import pytest
import torch

import quant_models
from quant_cli import Cli, worst_sqnr
from quant_models import FIRST_POSITION, PROMPTS, STEPS, Model, write_calls

SCHEMES = ["qnn-fp16", "qnn-8a8w", "qnn-16a8w", "qnn-16a4w"]
CACHES = [f"layers.{layer}.self_attn.{kind}_cache" for layer in range(2) for kind in "kv"]
SOC = "SM8650"
# SQNR of the simulator beside the same fixed-point program in our own kernels, and of that program's outputs beside eager PyTorch, in dB. The hardware's
# softmax, sigmoid and norms round otherwise than a float computation that is rounded once.
LIKE_OURS = {"qnn-fp16": 45, "qnn-8a8w": 14, "qnn-16a8w": 40, "qnn-16a4w": 40}
LIKE_EAGER = {"qnn-fp16": 45, "qnn-8a8w": 8, "qnn-16a8w": 25, "qnn-16a4w": 8}


@pytest.fixture
def cli(dovetail, tmp_path):
    return Cli(dovetail, tmp_path)


def single_token_calls(prompt):
    return [(torch.tensor([[token]]), torch.tensor([FIRST_POSITION + i])) for i, token in enumerate([*prompt, *STEPS])]


@pytest.fixture(scope="module")
def decoders(tmp_path_factory):
    return quant_models.Decoders(tmp_path_factory.mktemp("decoders"), lambda _: [single_token_calls(prompt) for prompt in PROMPTS])


def scheme_flags(cli, scheme, calls):
    if scheme == "qnn-fp16":
        return ["--quantize", scheme]
    folder = cli.new_path("calibration")
    write_calls(calls, folder)
    return ["--quantize", scheme, "--calibrate", folder]


ONE_TOKEN = ["--input-shape", "tokens=1,1", "--input-shape", "input_pos=1"]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("kind", quant_models.DECODERS)
def test_the_cache_stays_a_cache(cli, qnn_library, decoders, kind, scheme):
    model, source, sequences, eager = decoders(kind)
    common = [*scheme_flags(cli, scheme, sequences[0] + sequences[1]), *ONE_TOKEN]
    program, report = cli.compile(source, *common, "--backend", "qnn,cpu", "--soc", SOC)
    plain, _ = cli.compile(source, *common, "--backend", "cpu")
    assert report["linears"]["delegated"] == report["linears"]["total"] == 15
    outcomes = [cli.run(program, calls) for calls in sequences]
    expected = [cli.run(plain, calls) for calls in sequences]
    for got, ours, theirs in zip(outcomes, expected, eager, strict=True):
        assert worst_sqnr(got.outputs, ours.outputs) > LIKE_OURS[scheme]
        assert worst_sqnr(got.outputs, theirs) > LIKE_EAGER[scheme]
    by_name = {s["name"]: s for s in report["states"]}
    for name in CACHES:
        initial = model.module.get_buffer(name).numpy()
        assert by_name[name]["shape"] == list(initial.shape)
        before = expected[0].states[0][name].copy()
        for call, states in enumerate(outcomes[0].states):
            row = FIRST_POSITION + call
            untouched = np.r_[0:row, row + 1 : initial.shape[2]]
            if call > 0:
                start = outcomes[0].states[call - 1][name]
                np.testing.assert_array_equal(states[name][:, :, untouched], start[:, :, untouched])
            else:
                # Our own kernels leave the rows that they do not write as the file has them. In fp16 all of a cache passes through 16 bits.
                start = expected[0].states[0][name]
                tolerance = 2**-10 if scheme == "qnn-fp16" else 0
                np.testing.assert_allclose(states[name][:, :, untouched].astype(np.float64), start[:, :, untouched], rtol=tolerance, atol=0)
            assert np.any(states[name][:, :, row] != start[:, :, row]) or call == 0
    # Two prompts, then the same tokens.
    last = [np.stack([o[0] for o in outcome.outputs[-len(STEPS) :]]) for outcome in outcomes]
    want = [np.stack([o[0] for o in outputs[-len(STEPS) :]]) for outputs in eager]
    assert np.abs(last[0] - last[1]).max() > 0.5 * np.abs(want[0] - want[1]).max()


def test_prefill_and_decode_share_state_and_context(cli, qnn_library, decoders):
    model, source, sequences, _ = decoders("index_put")
    prompt = (torch.tensor([PROMPTS[0]]), torch.arange(FIRST_POSITION, FIRST_POSITION + len(PROMPTS[0])))
    shapes = [*ONE_TOKEN, "--input-shape", "prefill:tokens=1,6", "--input-shape", "prefill:input_pos=6"]
    program, _ = cli.compile(source, "--method", f"prefill={source}", *shapes, "--quantize", "qnn-fp16", "--backend", "qnn,cpu", "--soc", SOC, "--qnn-lib", qnn_library)
    info = json.loads(cli("inspect", program, "--qnn-lib", qnn_library, "--json").stdout)
    sizes = [d["bytes"] for d in info["delegates"] if d["id"] == "QnnBackend"]
    assert len(sizes) >= 2 and os.path.getsize(program) < 1.5 * max(sizes) + 65536, "the two methods do not share their context binary"
    # The simulator has no shared weights; tests/qnn/methods_test.cc runs both methods without.
    files, folder = write_calls([prompt], cli.new_path("calls")), cli.new_path("outputs")
    assert "compile it with --qnn-separate-weights" in cli("run", program, *files, "--method", "prefill", "-o", folder, code=1).stderr
    separate, _ = cli.compile(source, "--method", f"prefill={source}", *shapes, "--quantize", "qnn-fp16", "--backend", "qnn,cpu", "--soc", SOC, "--qnn-separate-weights")
    cli("run", separate, *files, "--method", "prefill", "-o", folder)
    with np.load(folder / files[0].name) as arrays:
        assert worst_sqnr([[arrays["output_0"]]], model.eager([prompt])) > 45


@pytest.mark.parametrize("arguments, code, message", [
    (["--backend", "qnn,cpu"], 2, "needs --soc"),
    (["--backend", "qnn,cpu", "--soc", "SM1"], 2, "unknown SoC 'SM1'"),
    (["--backend", "qnn,cpu", "--soc", SOC, "--qnn-lib", "/nonexistent"], 1, "no QNN library"),
    (["--backend", "npu"], 2, "unknown backend 'npu'"),
    (["--soc", SOC], 2, "--backend qnn,cpu"),
])
def test_wrong_flags(cli, decoders, arguments, code, message):
    _, source, _, _ = decoders("index_put")
    assert message in cli.refusal(source, *arguments)


@pytest.mark.parametrize("shape, message", [
    ("tokens=1", "1 sizes for a tensor of shape"),
    ("tokens=1,32", "from 1 to 31, not 32"),
    ("tokens=2,1", "dim 0 was exported as 1, not 2"),
    ("token=1,1", "no such input; it has tokens, input_pos"),
    ("tokens=1,x", "expected INPUT=SIZE"),
    ("tokens=1,1,", "expected INPUT=SIZE"),
    ("forward:tokens=2,1", "dim 0 was exported as 1, not 2"),
    ("decode:tokens=1,1", "there is no --method decode"),
])
def test_wrong_input_shapes(cli, decoders, shape, message):
    _, source, _, _ = decoders("index_put")
    assert message in cli.refusal(source, "--input-shape", shape)


def test_fixed_shapes_change_no_result(cli, decoders):
    _, source, sequences, eager = decoders("index_put")
    program, _ = cli.compile(source, *ONE_TOKEN)
    assert worst_sqnr(cli.run(program, sequences[0]).outputs, eager[0]) > 80


def test_dynamic_shapes_say_what_to_do(cli, qnn_library, decoders):
    _, source, _, _ = decoders("index_put")
    nodes = json.loads(cli("explain", source, "--backend", "qnn,cpu", "--soc", SOC, "--qnn-lib", qnn_library, "--json").stdout)["nodes"]
    assert any(n["op"] == "embedding" and n["backend"] == "cpu" and "--input-shape" in n["reason"] for n in nodes)


@pytest.mark.parametrize("arguments, message", [
    (["--quantize", "qnn-fp16"], "the scheme qnn-fp16 is made for the backend qnn: add --backend qnn,cpu and --soc"),
    (["--quantize", "int8-dynamic", "--backend", "qnn,cpu", "--soc", SOC], "the scheme int8-dynamic is not made for the backend qnn, which takes"),
])
def test_schemes_of_other_backends_are_warnings(cli, qnn_library, decoders, arguments, message):
    _, source, _, _ = decoders("index_put")
    _, report = cli.compile(source, *ONE_TOKEN, *arguments)
    assert any(message in w for w in report["warnings"]), report["warnings"]


def test_a_program_that_cannot_run_says_what_to_do(cli, qnn_library, decoders, monkeypatch):
    _, source, sequences, _ = decoders("index_put")
    program, _ = cli.compile(source, *ONE_TOKEN, "--quantize", "qnn-fp16", "--backend", "qnn,cpu", "--soc", SOC)
    files = write_calls(sequences[0][:1], cli.new_path("calls"))
    run = ["run", program, *files, "-o", cli.new_path("outputs")]
    assert "was compiled for SM8650 (HTP v75), not for SM8550 (HTP v73); compile it again with --soc SM8550" in cli(*run, "--soc", "SM8550", code=1).stderr
    monkeypatch.delenv("DOVETAIL_QNN_LIB")
    message = cli(*run, code=1).stderr
    assert "no QNN library: libQnnHtp.so" in message and "--qnn-lib or DOVETAIL_QNN_LIB names the installed one" in message
    assert "in method 'forward'" in message and ".py:" in message


def test_a_program_without_the_npu_is_a_warning(cli, qnn_library, tmp_path):
    class Powers(torch.nn.Module):
        def forward(self, x):
            return x**3

    source = Model(Powers(), [(torch.ones(2, 3),)]).export(tmp_path / "powers.pt2")
    _, report = cli.compile(source, "--backend", "qnn,cpu", "--soc", SOC, "--qnn-lib", qnn_library)
    assert report["delegate_calls"] == 0
    assert any("no operator runs on the backend qnn; of pow: " in w for w in report["warnings"]), report["warnings"]


@pytest.mark.parametrize("shape", [(2, 1, 40), (3, 5, 40), (14, 40)], ids=str)
def test_4_bits_per_channel_before_a_relu(cli, qnn_library, shape):
    """40 columns are no multiple of a block, so the weight has a scale per channel."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(40, 32), torch.nn.ReLU()).eval()
    calls = [(torch.randn(shape),) for _ in range(8)]
    source = cli.new_path("model.pt2")
    torch.export.save(torch.export.export(model, calls[0]), source)
    program, _ = cli.compile(source, "--backend", "qnn,cpu", "--soc", SOC, *scheme_flags(cli, "qnn-16a4w", calls))
    assert worst_sqnr(cli.run(program, calls[:1]).outputs, [[model(*calls[0]).detach().numpy()]]) > 18


@pytest.fixture
def linear(cli):
    """A model of one layer, and a folder of its calls."""
    torch.manual_seed(0)
    source, folder = cli.new_path("model.pt2"), cli.new_path("calibration")
    calls = [(torch.randn(4, 16),) for _ in range(3)]
    torch.export.save(torch.export.export(torch.nn.Sequential(torch.nn.Linear(16, 8)).eval(), calls[0]), source)
    return source, folder, write_calls(calls, folder)


def test_compare_without_calibration_compares_outputs(cli, qnn_library, linear):
    source, folder, files = linear
    program, _ = cli.compile(source, "--quantize", "qnn-16a8w", "--calibrate", folder, "--backend", "qnn,cpu", "--soc", SOC)
    compared = json.loads(cli("compare", source, program, files[0], "--json").stdout)
    assert compared["outputs"][0]["sqnr_db"] > 40 and compared["layers"] == [] and "--calibrate" in compared["note"]
    with_calls = json.loads(cli("compare", source, program, files[0], "--json", "--calibrate", folder).stdout)
    assert len(with_calls["layers"]) == 1 and "note" not in with_calls
