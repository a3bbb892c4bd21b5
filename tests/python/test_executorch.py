"""Programs compiled with --runtime executorch run in the stock ExecuTorch runtime and give what eager PyTorch gave."""

import pathlib
import subprocess

import numpy as np
import pytest
import torch
from executorch import runtime
from safetensors.torch import load_file

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FIXTURES = ROOT / "tests" / "fixtures"
NAMES = [
    "digits_cnn_trained",
    "digits_cnn_trained.core",
    "hf_llama_staticcache",
    "llama_tiny_aten_copy",
    "llama_tiny_decode_static",
    "llama_tiny_index_copy",
    "llama_tiny_index_put",
    "llama_tiny_index_put.core",
    "llama_tiny_slice_copy",
    "sig_buffer_mutation",
    "silero_vad_stateful",
    "import/state_cross_copy",
    "import/state_init",
    "import/state_read_after_value",
]


def compile_for_executorch(dovetail, source, target, *flags):
    subprocess.run([dovetail, "compile", source, "-o", target, "--runtime", "executorch", *flags], check=True, cwd=ROOT, stderr=subprocess.DEVNULL)


def steps(reference):
    step = 0
    while any(k.startswith(f"in.{step}.") for k in reference):
        yield step
        step += 1


def leaves(reference, kind, step):
    names = [k for k in reference if k.startswith(f"{kind}.{step}.")]
    return [reference[k] for k in sorted(names, key=lambda k: int(k.rsplit(".", 1)[1]))]


@pytest.mark.parametrize("name", NAMES)
def test_fixture(dovetail, tmp_path, name):
    target = tmp_path / "model.pte"
    compile_for_executorch(dovetail, FIXTURES / f"{name}.pt2", target)
    program = runtime.Runtime.get().load_program(str(target))
    method = program.load_method("forward")
    reference = load_file(FIXTURES / f"{name.removesuffix('.core')}.ref.safetensors")
    span = [0.0] * 64
    for step in steps(reference):
        for leaf, want in enumerate(leaves(reference, "out", step)):
            span[leaf] = max(span[leaf], float(want.double().max() - want.double().min()), 1e-2 * float(want.double().abs().max()))
    compared = 0
    for step in steps(reference):
        got = method.execute(tuple(t.contiguous() for t in leaves(reference, "in", step)))
        for leaf, want in enumerate(leaves(reference, "out", step)):
            assert got[leaf].shape == want.shape and got[leaf].dtype == want.dtype
            if want.dtype.is_floating_point:
                assert float((got[leaf] - want).abs().max()) <= 1e-4 * span[leaf], f"output {leaf} of step {step}"
            else:
                assert torch.equal(got[leaf], want)
            compared += 1
    assert compared > 0


@pytest.mark.parametrize("name", ["hf_llama_staticcache", "llama_tiny_index_put", "llama_tiny_slice_copy", "llama_tiny_decode_static"])
def test_int8_states(dovetail, tmp_path, name):
    target = tmp_path / "model.pte"
    compile_for_executorch(dovetail, FIXTURES / f"{name}.pt2", target, "--state", "int8")
    method = runtime.Runtime.get().load_program(str(target)).load_method("forward")
    reference = load_file(FIXTURES / f"{name}.ref.safetensors")
    worst = 0.0
    for step in steps(reference):
        got = method.execute(tuple(t.contiguous() for t in leaves(reference, "in", step)))
        for result, want in zip(got, leaves(reference, "out", step), strict=True):
            worst = max(worst, float((result - want).abs().max() / (want.max() - want.min())))
    assert 0 < worst < 1e-2


def test_smollm2_answers_as_in_eager_pytorch(dovetail, zoo, greedy, tmp_path):
    """Prefill and decode on one method: the cache that ExecuTorch keeps is the one that the program updates."""
    target = tmp_path / "smollm2.pte"
    compile_for_executorch(dovetail, zoo / "smollm2.pt2", target)
    program = runtime.Runtime.get().load_program(str(target))
    for case in greedy[:2]:
        method = program.load_method("forward")
        tokens, position, answer = case["prompt_ids"], 0, []
        while len(answer) < 16:
            feed = torch.tensor([tokens])
            logits = method.execute((feed, torch.arange(position, position + len(tokens))))[0]
            position += len(tokens)
            tokens = [int(logits[0, -1].argmax())]
            answer += tokens
        assert answer == case["tokens"][:16]
        del method


# Weights are the same everywhere. Rows that are rounded to i8 at run time amplify what differs in the last place, and the two programs put
# borders of XNNPACK regions at different places.
@pytest.mark.parametrize(
    "name,scheme,tolerance",
    [
        ("llama_tiny_index_put", "int8-weight-only", 1e-4),
        ("llama_tiny_index_put", "int4-weight-only", 1e-4),
        ("llama_tiny_index_put", "int8-dynamic", 3e-2),
        ("llama_tiny_index_put", "int4", 3e-2),
        ("digits_cnn_trained", "int8-dynamic", 3e-2),
    ],
)
def test_quantized_as_in_our_runtime(dovetail, tmp_path, name, scheme, tolerance):
    stock, own, results = tmp_path / "stock.pte", tmp_path / "own.pte", tmp_path / "results"
    source = FIXTURES / f"{name}.pt2"
    for target, extra in ((stock, ["--runtime", "executorch"]), (own, [])):
        subprocess.run([dovetail, "compile", source, "-o", target, "--quantize", scheme, *extra], check=True, stderr=subprocess.DEVNULL)
    reference = load_file(FIXTURES / f"{name}.ref.safetensors")
    calls = []
    for step in steps(reference):
        calls.append(tmp_path / f"call{step}.npz")
        np.savez(calls[-1], **{f"input_{i}": t.numpy() for i, t in enumerate(leaves(reference, "in", step))})
    subprocess.run([dovetail, "run", own, *calls, "-o", results], check=True, stderr=subprocess.DEVNULL)
    program = runtime.Runtime.get().load_program(str(stock))
    method = program.load_method("forward")
    for step, call in zip(steps(reference), calls):
        got = method.execute(tuple(t.contiguous() for t in leaves(reference, "in", step)))
        with np.load(results / call.name) as arrays:
            for leaf, key in enumerate(arrays.files):
                want = torch.from_numpy(arrays[key])
                span = float(want.max() - want.min())
                assert span > 0 and float((got[leaf] - want).abs().max()) <= tolerance * span, f"output {key} of step {step}"
