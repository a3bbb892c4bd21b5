"""A quantized decoder keeps its cache a state: in every scheme, way to write it, format, backend and runtime, the answer depends on the prompt.

What other tools get wrong without a word is a cache that becomes a constant, starts at zero, or keeps what calibration left in it. Each
combination is compiled from the command line and fed two prompts, and then the same four tokens, beside eager PyTorch.
"""

import json

import numpy as np
import pytest

import quant_models
from quant_cli import SCHEMES, Cli

CACHES = [f"layers.{layer}.self_attn.{kind}_cache" for layer in range(2) for kind in "kv"]
BACKENDS = {"xnnpack_cpu": "xnnpack,cpu", "cpu": "cpu"}


@pytest.fixture
def cli(dovetail, tmp_path):
    return Cli(dovetail, tmp_path)


@pytest.fixture(scope="module")
def decoders(tmp_path_factory):
    return quant_models.Decoders(tmp_path_factory.mktemp("decoders"), lambda model: [model.calls, *model.more])


def last_logits(sequences):
    """[prompt, call, vocabulary] of the outputs of sequences of calls."""
    return np.stack([[outputs[0][0, -1] for outputs in calls] for calls in sequences])


def initial_caches(model):
    return {name: model.module.get_buffer(name).numpy() for name in CACHES}


def check_states(report, states, model, state):
    """The caches are states of the right type, and rows that no call wrote still hold what the module's buffers held."""
    by_name = {s["name"]: s for s in report["states"]}
    for name, initial in initial_caches(model).items():
        assert name in by_name, f"{name} is no state of the program: {sorted(by_name)}"
        assert by_name[name]["dtype"] == {"float": "f32", "int8": "i8"}[state] and by_name[name]["shape"] == list(initial.shape)
        if states is None:
            continue
        first = quant_models.FIRST_POSITION
        last = first + len(quant_models.PROMPTS[0])
        untouched = np.r_[0:first, last : initial.shape[2]]
        held = states[0][name]
        if state == "int8":
            assert held.dtype == np.int8
            held = held * states[0][f"{name}.scale"]
        got, want = held[:, :, untouched].astype(np.float64), initial[:, :, untouched].astype(np.float64)
        assert np.any(held[:, :, first:last] != held[:, :, :1]), "the prompt's rows were not written"
        if state == "float":
            np.testing.assert_array_equal(got, want)
        else:
            np.testing.assert_allclose(got, want, rtol=0, atol=np.abs(want).max() / 127)


def check_logits(got, eager):
    span = np.ptp(eager)
    assert np.isfinite(got).all()
    error = np.abs(got - eager).max(-1)
    assert (error < 0.1 * span).all(), f"largest errors of each call, as parts of the range: {error / span}"
    top = np.sort(eager, -1)
    clear = top[..., -1] - top[..., -2] > 0.1 * span
    assert clear.any() and (got.argmax(-1) == eager.argmax(-1))[clear].all()
    # The same tokens after two prompts: what differs is what the cache holds.
    ours, theirs = got[0] - got[1], eager[0] - eager[1]
    for a, b in zip(ours, theirs, strict=True):
        assert np.abs(a).max() > 0.5 * np.abs(b).max(), "the answer does not depend on the prompt"
        assert a @ b > 0.9 * np.linalg.norm(a) * np.linalg.norm(b)


@pytest.mark.parametrize("runtime", ["dovetail", "executorch"])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("state", ["float", "int8"])
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("kind", quant_models.DECODERS)
def test_logits_depend_on_the_prompt(cli, decoders, kind, scheme, state, backend, runtime):
    model, source, sequences, eager = decoders(kind)
    program, compiled = cli.compile_for(runtime, source, *cli.flags(model, scheme, state=state, backend=BACKENDS[backend]))
    if scheme != "none":
        assert compiled["linears"]["quantized"] == compiled["linears"]["total"] == 15, compiled["left_in_float"]
    outcomes = [cli.run_on(runtime, program, calls) for calls in sequences]
    check_states(json.loads(cli("inspect", program, "--json").stdout), outcomes[0].states or None, model, state)
    check_logits(last_logits([o.outputs for o in outcomes]), last_logits(eager))


@pytest.mark.parametrize("state", ["float", "int8"])
@pytest.mark.parametrize("kind", quant_models.DECODERS)
def test_calibration_leaves_no_trace_in_the_state(cli, decoders, kind, state):
    """A program calibrated twice as long, in another order, starts from the same state: that of the exported buffers."""
    model, source, sequences, _ = decoders(kind)
    starts = []
    for calibration in (sequences[0] + sequences[1], sequences[1] + sequences[0] * 2):
        folder = cli.new_path("calibration")
        quant_models.write_calls(calibration, folder)
        program, report = cli.compile(source, "--quantize", "int8", "--state", state, "--calibrate", folder)
        outcome = cli.run(program, sequences[0])
        check_states(report, outcome.states, model, state)
        starts.append(outcome.states[0][CACHES[0]][:, :, : quant_models.FIRST_POSITION])
    if state == "float":
        np.testing.assert_array_equal(*starts)


def test_the_models_can_tell_right_from_wrong(decoders):
    """The checks above would see a cache that is constant, or that starts at zero."""
    for kind in quant_models.DECODERS:
        model, _, sequences, eager = decoders(kind)
        eager = last_logits(eager)
        check_logits(eager, eager)
        span = np.ptp(eager)
        assert (np.abs(eager[0] - eager[1]).max(-1) > 0.2 * span).all()
        constant = last_logits([[model.eager([args])[0] for args in calls] for calls in sequences])
        with pytest.raises(AssertionError):
            check_logits(constant, eager)
        if kind == quant_models.STATEFUL_INITIAL:
            zeroed = quant_models.decoder(kind)
            for name in CACHES:
                zeroed.module.get_buffer(name).zero_()
            with pytest.raises(AssertionError):
                check_logits(last_logits([zeroed.eager(calls) for calls in sequences]), eager)
