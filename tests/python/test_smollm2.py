"""SmolLM2-135M-Instruct, compiled and run by Dovetail, against what eager PyTorch answered (tests/models/smollm2_greedy.json)."""

import json
import subprocess

import numpy as np
import pytest

from conftest import ROOT

FORMS = ["smollm2", "smollm2_all_logits", "smollm2_hf"]
TOLERANCE = 2e-4  # of the logits' range


@pytest.fixture(scope="module")
def compiled(dovetail, zoo, tmp_path_factory):
    folder = tmp_path_factory.mktemp("smollm2")

    def compile_once(form):
        target = folder / f"{form}.pte"
        if not target.exists():
            subprocess.run([dovetail, "compile", zoo / f"{form}.pt2", "-o", target, "--json"], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
        return target

    return compile_once


def run_calls(dovetail, program, calls, folder):
    """The logits of the last position after each call; a call is a list of tokens, positions go on from one to the next."""
    inputs, outputs, position, files = folder / "in", folder / "out", 0, []
    inputs.mkdir(parents=True)
    for index, tokens in enumerate(calls):
        files.append(inputs / f"{index:03}.npz")
        np.savez(files[-1], input_0=np.array([tokens], np.int64), input_1=np.arange(position, position + len(tokens), dtype=np.int64))
        position += len(tokens)
    subprocess.run([dovetail, "run", program, *files, "-o", outputs, "--json"], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    return [np.load(outputs / f.name)["output_0"][0, -1] for f in files]


@pytest.mark.parametrize("form, case", [("smollm2", 0), ("smollm2", 1), ("smollm2", 2), ("smollm2_all_logits", 1), ("smollm2_hf", 2)])
def test_greedy_tokens_and_logits(dovetail, compiled, greedy, tmp_path, form, case):
    case = greedy[case]
    # Each token that PyTorch chose is fed, so that one wrong choice does not hide later ones.
    logits = run_calls(dovetail, compiled(form), [case["prompt_ids"], *([t] for t in case["tokens"][:-1])], tmp_path)
    assert [int(row.argmax()) for row in logits] == case["tokens"]
    for recorded in case["logits"]:
        row, span = logits[recorded["step"]], recorded["max"] - recorded["min"]
        assert abs(row.min() - recorded["min"]) <= TOLERANCE * span
        assert abs(row.max() - recorded["max"]) <= TOLERANCE * span
        np.testing.assert_allclose(row[::4096], recorded["values"], rtol=0, atol=TOLERANCE * span)


@pytest.mark.parametrize("form", FORMS)
def test_prefill_equals_single_steps(dovetail, compiled, greedy, tmp_path, form):
    prompt = greedy[0]["prompt_ids"]
    at_once = run_calls(dovetail, compiled(form), [prompt], tmp_path / "prefill")[-1]
    one_by_one = run_calls(dovetail, compiled(form), [[t] for t in prompt], tmp_path / "steps")[-1]
    assert int(at_once.argmax()) == int(one_by_one.argmax())
    np.testing.assert_allclose(one_by_one, at_once, rtol=0, atol=TOLERANCE * float(np.ptp(at_once)))


def generate(dovetail, program, zoo, *flags, **options):
    command = [dovetail, "generate", program, "--tokenizer", zoo / "smollm2.tokenizer.json", *flags]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, **options)


def test_chat(dovetail, compiled, zoo, greedy):
    for case in greedy:
        done = generate(dovetail, compiled("smollm2"), zoo, "--chat", "--prompt", case["prompt"], "--max-tokens", "64", "--temperature", "0", "--json")
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)
        assert answer["prompt_tokens"] == len(case["prompt_ids"])
        assert answer["tokens"] and answer["tokens"] == case["tokens"][: len(answer["tokens"])]
    assert generate(dovetail, compiled("smollm2"), zoo, "--chat", "--prompt", greedy[0]["prompt"], "--temperature", "0").stdout == "The capital of France is Paris.\n"


def test_a_folder_and_figures_on_a_line_of_their_own(dovetail, compiled, zoo, tmp_path):
    program = tmp_path / "smollm2.pte"
    program.symlink_to(compiled("smollm2"))
    command = [dovetail, "generate", program, "--tokenizer", zoo, "--chat", "--prompt", "What is the capital of France?", "--temperature", "0"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    answer, figures = done.stdout.splitlines()
    assert answer == "The capital of France is Paris." and figures.startswith("prefill ")


def test_two_turns_on_stdin(dovetail, compiled, zoo):
    done = generate(dovetail, compiled("smollm2"), zoo, "--chat", "--temperature", "0", "--max-tokens", "24",
                    input="What is the capital of France?\nAnd of Italy?\n")
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.strip().split("\n", 1)
    assert first == "The capital of France is Paris."
    assert "Rome" in second


def test_a_prompt_longer_than_the_cache_is_an_error(dovetail, compiled, zoo):
    done = generate(dovetail, compiled("smollm2"), zoo, "--prompt", "word " * 400)
    assert done.returncode == 1 and done.stdout == ""
    assert "the prompt has 401 tokens" in done.stderr and "256" in done.stderr


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("runtime", ["dovetail", "executorch"])
def test_explain(dovetail, zoo, form, runtime):
    """At most layers + 2 delegate calls, all linears inside, and a reason for each operator that is not."""
    done = subprocess.run([dovetail, "explain", zoo / f"{form}.pt2", "--runtime", runtime, "--json"], check=True, cwd=ROOT, capture_output=True, text=True)
    report = json.loads(done.stdout)
    assert report["delegate_calls"] <= 30 + 2
    assert report["macs_delegated"] >= 0.99 * report["macs_total"] > 0
    linears = [n for n in report["nodes"] if n["op"] == "linear"]
    assert len(linears) == 7 * 30 + 1 and all(n["backend"] == "xnnpack" for n in linears)
    assert all(n["reason"] for n in report["nodes"] if n["backend"] != "xnnpack")


def test_compiling_takes_little_memory(dovetail, zoo, tmp_path):
    done = subprocess.run([dovetail, "compile", zoo / "smollm2.pt2", "-o", tmp_path / "a.pte", "--json"], check=True, cwd=ROOT, capture_output=True, text=True)
    report = json.loads(done.stdout)
    assert 0 < report["peak_anonymous_bytes"] < 150e6
    assert report["planned_bytes"] <= 1.05 * report["planned_lower_bound_bytes"]
    subprocess.run([dovetail, "compile", zoo / "smollm2.pt2", "-o", tmp_path / "b.pte", "--json"], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    assert (tmp_path / "a.pte").read_bytes() == (tmp_path / "b.pte").read_bytes()
