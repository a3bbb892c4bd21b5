"""Small models that other quantizers get wrong, each with its right result. quant_models.py has the models."""

import json

import numpy as np
import pytest
import torch
from torch import nn

import quant_models
from conftest import ROOT
from quant_cli import SCHEMES, Cli, sqnr, steps_off, worst_sqnr
from quant_models import CASES, Model
from test_executorch import leaves, load_file, steps

FIXTURES = ROOT / "tests" / "fixtures" / "quantized"
WEIGHT_SCHEMES = [scheme for scheme in SCHEMES if scheme not in ("none", "int8")]


@pytest.fixture
def cli(dovetail, tmp_path):
    return Cli(dovetail, tmp_path)


def left_in_float(report):
    return {entry["path"]: entry["reason"] for entry in report["left_in_float"]}


def expect_quantized(report, count):
    assert report["linears"]["quantized"] == report["linears"]["total"] == count, report["left_in_float"]


# States.

@pytest.mark.parametrize("scheme", ["none", "int8"])
@pytest.mark.parametrize("state", ["float", "int8"])
def test_case01_index_put(cli, scheme, state):
    model = CASES["case01_index_put"]()
    got, want, report = cli.check(model, scheme, state=state)
    assert [s["name"] for s in report["states"] if s["name"] == "state"] == ["state"]
    assert steps_off(got, want) <= (0 if scheme == "none" and state == "float" else 1.01)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("state", ["float", "int8"])
def test_case02_decoder(cli, scheme, state):
    model = CASES["case02_decoder"]()
    program, report = cli.compile(cli.source(model), *cli.flags(model, scheme, state=state))
    assert {s["name"] for s in report["states"]} >= {"k_cache", "v_cache"}
    sequences = [model.calls, *model.more]
    outcomes = [cli.run(program, calls) for calls in sequences]
    got = np.stack([[o[0][0, -1] for o in outcome.outputs] for outcome in outcomes])
    want = np.stack([[o[0][0, -1] for o in model.eager(calls)] for calls in sequences])
    span = np.ptp(want)
    assert np.abs(want[0, -1] - want[1, -1]).max() > 0.1 * span
    assert np.abs(got - want).max() < 0.1 * span
    for call, states in enumerate(outcomes[0].states):
        for name in ("k_cache", "v_cache"):
            written = (states[name] != states[name][:, :, -1:]).any(axis=(0, 1, 3))  # no call writes the last row
            assert written.tolist() == [row <= call for row in range(16)]


@pytest.mark.parametrize("scheme", ["none", "int8", "int8-dynamic"])
@pytest.mark.parametrize("state", ["float", "int8"])
@pytest.mark.parametrize("runtime", ["dovetail", "executorch"])
def test_case03_initial_state(cli, scheme, state, runtime):
    model = CASES["case03_initial_state"]()
    want = [[[1, 1], [5, 6], [1, 1], [1, 1]], [[1, 1], [5, 6], [1, 1], [7, 8]]]
    program, _ = cli.compile_for(runtime, cli.source(model), *cli.flags(model, scheme, state=state))
    exact = scheme != "int8" and state == "float"
    for got, values in zip(cli.run_on(runtime, program, model.calls).outputs, want, strict=True):
        np.testing.assert_allclose(got[0], values, rtol=0, atol=0 if exact else 8 / 127)


@pytest.mark.parametrize("calibrated", [False, True])
def test_case12_a_state_stored_in_8_bits(cli, calibrated):
    model = CASES["case12_stored_state"]()
    got, want, report = cli.check(model, "int8" if calibrated else "none", state="int8")
    np.testing.assert_array_equal(np.ravel([o[0] for o in want])[::4], [0, 3, 4.5])
    assert [(s["name"], s["dtype"]) for s in report["states"] if s["name"] == "s"] == [("s", "i8")]
    assert steps_off(got, want) <= 2.01


def test_case12_an_aliased_state(cli):
    """One state under two names: stored once and right, or refused with its name."""
    model = CASES["case12_aliased_state"]()
    source = cli.source(model)
    if refusal := cli.refusal(source, "--state", "int8"):
        assert "'s'" in refusal or "'alias'" in refusal
        return
    program, report = cli.compile(source, "--state", "int8")
    assert [s["dtype"] for s in report["states"] if s["name"] in ("s", "alias")] == ["i8"]
    assert steps_off(cli.run(program, model.calls).outputs, model.eager()) <= 2.01


# Convolutions and pools.

@pytest.mark.parametrize("kernel", [2, 4])
def test_case15_same_padding_with_an_even_kernel(cli, kernel):
    got, want, _ = cli.check(CASES[f"case15_same_padding_{kernel}"](), "int8")
    assert worst_sqnr(got, want) >= 30
    for edge in (np.s_[..., :2], np.s_[..., -2:]):  # the right side has the extra zero
        assert steps_off([[o[0][edge]] for o in got], [[o[0][edge]] for o in want]) <= 6
        assert min(sqnr(a[0][edge], b[0][edge]) for a, b in zip(got, want, strict=True)) >= 25


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("scheme", ["int8", "int8-weight-only", "int8-dynamic"])
def test_case17_transposed_convolution(cli, groups, scheme):
    """Scales by output channel, so that a channel a hundredth of another is as exact; the output has one scale in int8."""
    got, want, report = cli.check(CASES[f"case17_transposed_{groups}"](), scheme)
    for ours, theirs in zip(got, want, strict=True):
        largest = np.ptp(theirs[0])
        for channel in range(6):
            a, b = ours[0][:, channel], theirs[0][:, channel]
            noise_of_one_scale = (largest / 255) / 12**0.5 if scheme == "int8" and not report["left_in_float"] else 0.0
            floor = 10 * np.log10(np.square(b).mean() / max(noise_of_one_scale**2, 1e-30))
            assert sqnr(a, b) >= min(35, floor - 4), f"channel {channel}"


@pytest.mark.parametrize("kind", quant_models.POOLS)
@pytest.mark.parametrize("scheme", ["none", "int8"])
def test_case22_pool_of_negative_values(cli, kind, scheme):
    model = CASES[f"case22_{kind}"]()
    got, want, _ = cli.check(model, scheme)
    if scheme == "none":
        assert steps_off(got, want) < 1e-3
    else:
        assert steps_off(got, want) <= 2.5
        if kind.startswith("max"):
            assert all((outputs[0] < -0.9).all() for outputs in got)  # padding is no zero


@pytest.mark.parametrize("scheme, least", [("none", 100), ("int8", 30), ("int8-dynamic", 35), ("int8-weight-only", 35)])
def test_case24_one_convolution_before_two_batch_norms(cli, scheme, least):
    got, want, _ = cli.check(CASES["case24_shared_convolution"](), scheme)
    assert worst_sqnr(got, want) >= least


@pytest.mark.parametrize("name, least", [("case28_slice", 34), ("case28_stem", 34)])
@pytest.mark.parametrize("runtime", ["dovetail", "executorch"])
def test_case28_operators_that_keep_values(cli, name, least, runtime):
    model = CASES[name]()
    program, _ = cli.compile_for(runtime, cli.source(model), *cli.flags(model, "int8"))
    assert worst_sqnr(cli.run_on(runtime, program, model.calls).outputs, model.eager()) >= least


@pytest.mark.parametrize("runtime", ["dovetail", "executorch"])
def test_case29_one_convolution_twice_with_a_residual(cli, runtime):
    model = CASES["case29_shared_residual"]()
    program, _ = cli.compile_for(runtime, cli.source(model), *cli.flags(model, "int8"))
    got, want = cli.run_on(runtime, program, model.calls).outputs, model.eager()
    assert worst_sqnr(got, want) >= 30 and steps_off(got, want) <= 6


# Linears.

@pytest.mark.parametrize("name, least, linears", [("case30_shared_input", 40, 3), ("case30_feed_forward", 30, 3)])
def test_case30_several_linears_on_one_input(cli, name, least, linears):
    got, want, report = cli.check(CASES[name](), "int8-dynamic")
    expect_quantized(report, linears)
    assert worst_sqnr([o[:3] for o in got], [o[:3] for o in want]) >= least
    for ours, theirs in zip(got, want, strict=True):
        if len(ours) == 4:
            np.testing.assert_allclose(ours[3], theirs[3], rtol=1e-5, atol=1e-5)  # the sum is taken of what was not quantized


def test_case30_one_input_is_quantized_once(cli):
    """Three linears of one input lie in one delegate call."""
    _, report = cli.compile(cli.source(CASES["case30_shared_input"]()), "--quantize", "int8-dynamic")
    assert report["delegate_calls"] == 1


@pytest.mark.parametrize("runtime", ["dovetail", "executorch"])
def test_case32_dynamic_convolution_without_bias(cli, runtime):
    model = CASES["case32_convolution_without_bias"]()
    program, _ = cli.compile_for(runtime, cli.source(model), *cli.flags(model, "int8-dynamic"))
    assert worst_sqnr(cli.run_on(runtime, program, model.calls).outputs, model.eager()) >= 38


@pytest.mark.parametrize("scheme", ["int8-dynamic", "int8-weight-only", "int4-weight-only", "int4"])
def test_case33_degenerate_activations(cli, scheme):
    model = CASES["case33_degenerate"]()
    (zero,), (constant,), (mixed,), (huge,), (empty,) = cli.check(model, scheme)[0]
    (want_zero,), (want_constant,), (want_mixed,), (want_huge,), _ = model.eager()
    np.testing.assert_array_equal(zero, want_zero)  # the bias
    weights_in_8_bits = scheme.startswith("int8")
    share = 0.01 if weights_in_8_bits else 0.15
    np.testing.assert_allclose(constant, want_constant, rtol=0, atol=share * np.abs(want_constant).max())
    np.testing.assert_array_equal(mixed[0], want_mixed[0])
    np.testing.assert_allclose(mixed[1], want_mixed[1], rtol=0, atol=share * np.abs(want_mixed[1]).max())
    assert np.isfinite(huge).all()
    np.testing.assert_allclose(huge, want_huge, rtol=0, atol=(0.02 if weights_in_8_bits else 0.15) * np.abs(want_huge).max())
    assert empty.shape == (0, 4) and empty.dtype == np.float32


@pytest.mark.parametrize("kind", ["nan", "minus_infinity"])
def test_case35_calibration_with_what_is_no_number(cli, kind):
    """Left out, or refused with the tensor and the call named."""
    model = CASES[f"case35_{kind}"]()
    source, flags = cli.source(model), cli.flags(model, "int8")
    if refusal := cli.refusal(source, *flags):
        assert "001.npz" in refusal and ("'input'" in refusal or "linear" in refusal)
        return
    program, _ = cli.compile(source, *flags)
    assert worst_sqnr(cli.run(program, model.calls).outputs, model.eager()) >= 30


@pytest.mark.parametrize("kind", ["zeros", "three", "minus_three"])
def test_case35_calibration_with_one_value(cli, kind):
    got, want, _ = cli.check(CASES[f"case35_{kind}"](), "int8")
    np.testing.assert_allclose(got[0][0], want[0][0], rtol=0, atol=0.012 * np.abs(want[0][0]).max())


def test_case35_without_calibration(cli):
    """The static scheme needs calls: a refusal that says so, or a warning that lists what has no range."""
    source = cli.source(CASES["case35_three"]())
    done_refusal = cli.refusal(source, "--quantize", "int8")
    if done_refusal:
        assert "--calibrate" in done_refusal
    else:
        done = cli("compile", source, "-o", cli.new_path("a.pte"), "--quantize", "int8")
        assert "warning" in done.stderr and "--calibrate" in done.stderr


@pytest.mark.parametrize("scheme", WEIGHT_SCHEMES)
@pytest.mark.parametrize("name", ["case37_tied", "case37_tied_product"])
def test_case37_tied_weights_are_stored_once(cli, scheme, name):
    tied, untied = CASES[name](), CASES["case37_untied"]()
    program, report = cli.compile(cli.source(tied), *cli.flags(tied, scheme))
    other, _ = cli.compile(cli.source(untied), *cli.flags(untied, scheme))
    expect_quantized(report, 1)
    if scheme != "int4-weight-only":  # XNNPACK has no such operator
        assert report["linears"]["delegated"] == 1
    got, reference = cli.run(program, tied.calls).outputs, cli.run(other, untied.calls).outputs
    # An untied embedding may stay in float, a tied one shares what the head has: neither may be far from the float model.
    want = tied.eager()
    least = 30 if scheme.startswith("int8") else 12
    assert worst_sqnr(got, want) >= least and worst_sqnr(reference, want) >= least
    weights = {path: sum(w["bytes"] for w in json.loads(cli("inspect", path, "--json").stdout)["weights"]) for path in (program, other)}
    one_copy = 96 * 64 * (1 if scheme.startswith("int8") else 0.5)
    assert weights[program] < weights[other]
    assert weights[program] <= one_copy + 96 * 2 * 4 * 2 + 512, "the matrix is stored twice, or in float"


@pytest.mark.parametrize("scheme", ["int4", "int4-weight-only"])
@pytest.mark.parametrize("shape", ["288x288", "36x8", "64x7"])
def test_case38_groups_that_do_not_divide(cli, scheme, shape):
    """A last group that is filled up, or a layer left in float with its reason: never without a word, never wrong."""
    got, want, report = cli.check(CASES[f"case38_{shape}"](), scheme)
    assert report["linears"]["total"] == 1
    if report["linears"]["quantized"] == 0:
        assert any(left_in_float(report).values())
        assert worst_sqnr(got, want) >= 100
    else:
        assert worst_sqnr(got, want) >= 14
    if shape == "288x288":
        expect_quantized(report, 1)


@pytest.mark.parametrize("kind", ["gru", "lstm"])
@pytest.mark.parametrize("scheme", ["int8", "int8-dynamic"])
def test_case40_recurrent_layers(cli, kind, scheme):
    got, want, report = cli.check(CASES[f"case40_{kind}"](), scheme)
    assert worst_sqnr(got, want) >= ((30 if scheme == "int8" else 35) if report["linears"]["quantized"] else 100)
    if report["linears"]["quantized"] < report["linears"]["total"]:
        assert left_in_float(report)


# Flags.

def test_keep_float_leaves_modules_as_they_are(cli):
    model = CASES["case30_feed_forward"]()
    program, report = cli.compile(cli.source(model), "--quantize", "int8-dynamic", "--keep-float", "d*")
    assert report["linears"]["quantized"] == 2 and list(left_in_float(report)) == ["down"]
    assert "keep-float" in left_in_float(report)["down"]
    program, report = cli.compile(cli.source(model), "--quantize", "int8-dynamic", "--keep-float", "*")
    assert report["linears"]["quantized"] == 0
    assert worst_sqnr(cli.run(program, model.calls).outputs, model.eager()) > 100


class Normalized(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.second = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 4, 3)

    def forward(self, x):
        return self.second(torch.relu(self.norm(self.first(x))))


@pytest.mark.parametrize("scheme", ["int8-dynamic", "int8"])
@pytest.mark.parametrize("name", ["first", "norm", "fir*", "n?rm"])
def test_keep_float_knows_a_convolution_and_its_batch_norm(cli, scheme, name):
    torch.manual_seed(4)
    model = Model(Normalized().eval(), [(torch.randn(1, 3, 8, 8),)])
    flags = cli.flags(model, scheme)
    _, report = cli.compile(cli.source(model), *flags, "--keep-float", name)
    assert left_in_float(report) == {"first": "--keep-float asks for it"} and report["warnings"] == []
    assert [entry["path"] for entry in report["layers"] if entry["became"] != "f32"] == ["second"]


def test_wrong_schemes_are_named(cli):
    source = cli.source(CASES["case30_feed_forward"]())
    for flags, code in ((("--quantize", "int5"), 2), (("--state", "int5"), 2)):
        done = cli("compile", source, "-o", cli.new_path("a.pte"), *flags, code=code)
        assert "int5" in done.stderr and ("int8-dynamic" if flags[0] == "--quantize" else "int8") in done.stderr


def test_quantized_programs_are_the_same_every_time(cli):
    model = CASES["case30_feed_forward"]()
    source = cli.source(model)
    for scheme in SCHEMES:
        flags = cli.flags(model, scheme)
        assert cli.compile(source, *flags)[0].read_bytes() == cli.compile(source, *flags)[0].read_bytes()


def test_compare_tells_which_layer_is_off(cli, tmp_path):
    model = CASES["case30_feed_forward"]()
    source = cli.source(model)
    program, _ = cli.compile(source, *cli.flags(model, "int4"))
    calls = quant_models.write_calls(model.calls, tmp_path / "calls")
    report = json.loads(cli("compare", source, program, *calls, "--json").stdout)
    got, want = cli.run(program, model.calls).outputs, model.eager()
    noise_db = sqnr(np.stack([o[0] for o in got]), np.stack([o[0] for o in want]))
    assert len(report["outputs"]) == 1 and set(report["outputs"][0]) >= {"sqnr_db", "max_abs_error", "cosine"}
    assert abs(report["outputs"][0]["sqnr_db"] - noise_db) < 3
    assert report["layers"]


class MaskedLogits(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(64, 16)

    def forward(self, x, hidden):
        return self.head(x).masked_fill(hidden, -1e9)


def test_compare_tells_how_close_the_elements_are_that_no_mask_hides(cli, tmp_path):
    torch.manual_seed(0)
    model = Model(MaskedLogits().eval(), [(torch.randn(8, 64), torch.rand(8, 16) > 0.5)])
    source = cli.source(model)
    program, _ = cli.compile(source, "--quantize", "int8-dynamic")
    [call] = quant_models.write_calls(model.calls, tmp_path / "calls")
    [output] = json.loads(cli("compare", source, program, call, "--json").stdout)["outputs"]
    hidden = model.calls[0][1].numpy()
    [[got]], [[want]] = cli.run(program, model.calls).outputs, model.eager()
    assert output["sqnr_db"] > 150
    assert output["unmasked"]["sqnr_db"] == pytest.approx(sqnr(got[~hidden], want[~hidden]), abs=0.2) and output["unmasked"]["sqnr_db"] < 70
    assert f"but for {hidden.sum()} below -5000" in cli("compare", source, program, call).stdout


# Models that were quantized in PyTorch.

NAMES = sorted(path.name.removesuffix(".pt2") for path in FIXTURES.glob("*.pt2") if "subclass" not in path.name and ".core." not in path.name)


@pytest.mark.parametrize("runtime", ["dovetail", "executorch"])
@pytest.mark.parametrize("name", NAMES)
def test_models_that_were_quantized_in_pytorch(cli, name, runtime):
    """Within an 8-bit step of what PyTorch gives for the quantized program, not for the float one."""
    source = FIXTURES / f"{name}.pt2"
    program, report = cli.compile_for(runtime, source)
    reference = load_file(FIXTURES / f"{name}.ref.safetensors")
    calls = [tuple(leaves(reference, "in", step)) for step in steps(reference)]
    want = [[t.numpy() for t in leaves(reference, "out", step)] for step in steps(reference)]
    got = cli.run_on(runtime, program, calls).outputs
    # A dynamic scale is of the whole tensor in PyTorch and of a row in kernels: rows are more exact than the reference.
    if "dynamic" in name or "8da" in name:
        assert worst_sqnr(got[:2], want[:2]) >= 28
    elif name.startswith("ao_"):
        # The scales of 4-bit blocks are bf16 here: 9 bits of them are kept.
        assert worst_sqnr(got, want) >= (45 if "intx4" in name else 60)
    else:
        assert steps_off(got, want) <= 2.6
    if name.startswith("pt2e_static_cache"):
        assert {s["name"] for s in report["states"]} == {"k_cache", "v_cache"}


def test_a_quantized_model_is_not_quantized_again(cli):
    """Weights of a model that came quantized are kept in that form: the program is no larger than they are."""
    program, report = cli.compile(FIXTURES / "ao_8da4w.pt2")
    assert report["linears"] == {"total": 2, "delegated": 2, "quantized": 2}
    weights = json.loads(cli("inspect", program, "--json").stdout)["weights"]
    assert sum(w["bytes"] for w in weights) <= 2 * 64 * 96 // 2 + 4096


def test_tensor_subclasses_are_refused_with_the_way_out(cli):
    refusal = cli.refusal(FIXTURES / "ao_8da4w_subclass.pt2")
    assert "up.weight" in refusal and "unwrap_tensor_subclass" in refusal


def test_the_models_run_in_float(cli):
    """Without a scheme every model gives what eager PyTorch gives: what fails above is quantization."""
    for name, make in CASES.items():
        model: Model = make()
        if name.startswith("case33"):
            continue  # 1e30 has no common scale with the rest; its test compares row by row
        got, want, report = cli.check(model, "none")
        span = max(float(np.ptp(b)) if b.size else 0.0 for outputs in want for b in outputs) or 1.0
        for ours, theirs in zip(got, want, strict=True):
            for a, b in zip(ours, theirs, strict=True):
                np.testing.assert_allclose(a, b, rtol=0, atol=2e-6 * span, err_msg=name)
        assert report["linears"]["quantized"] == 0
