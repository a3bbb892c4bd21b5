"""The command line: exit codes, JSON keys, messages, and that a failed command leaves nothing behind."""

import json
import os
import pickle
import re
import shutil
import zipfile

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from conftest import ROOT

FIXTURES = ROOT / "tests" / "fixtures"


def refused(cli, tmp_path, source, *parts, flags=()):
    """Compiling fails with a message that has all parts, prints nothing on stdout and leaves no file."""
    target = tmp_path / "out" / "model.pte"
    target.parent.mkdir(exist_ok=True)
    done = cli("compile", source, "-o", target, *flags, code=1)
    assert done.stdout == "" and done.stderr.startswith("error: ")
    for part in (str(source), *parts):
        assert part in done.stderr, done.stderr
    assert list(target.parent.iterdir()) == []
    return done.stderr


def test_not_a_pt2(cli, tmp_path):
    text = tmp_path / "text.pt2"
    text.write_text("hello")
    refused(cli, tmp_path, text, "torch.export.save")
    empty = tmp_path / "empty.pt2"
    empty.write_bytes(b"")
    refused(cli, tmp_path, empty)
    refused(cli, tmp_path, tmp_path / "missing.pt2", "No such file")
    refused(cli, tmp_path, tmp_path)


def test_truncated_pt2(cli, tmp_path):
    whole = (FIXTURES / "digits_cnn_trained.pt2").read_bytes()
    for share in (0.1, 0.5, 0.9, 0.999):
        cut = tmp_path / "cut.pt2"
        cut.write_bytes(whole[: int(len(whole) * share)])
        refused(cli, tmp_path, cut, "truncated")


def test_pickled_weights_only(cli, tmp_path):
    weights = tmp_path / "weights.pt2"
    torch.save({"w": torch.ones(2)}, weights)
    refused(cli, tmp_path, weights, "torch.export")
    raw = tmp_path / "raw.pt2"
    raw.write_bytes(pickle.dumps({"w": 1}))
    refused(cli, tmp_path, raw, "torch.export")


def test_another_zip(cli, tmp_path):
    other = tmp_path / "other.pt2"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("readme.txt", "hello")
    refused(cli, tmp_path, other)


def test_unsupported_operators_are_listed_at_once(cli, tmp_path):
    error = refused(cli, tmp_path, "tests/fixtures/import/refused_operators.pt2", "from tests/import/cases.py:")
    for operator in ("aten.linalg_svdvals.default", "aten.fft_rfft.default", "aten.cholesky.default"):
        assert operator in error
    assert error.count("is not supported") == 4


@pytest.mark.parametrize("name, part", [("refused_training", "eval()"), ("refused_size", "cases.py"), ("refused_overlap", "cases.py")])
def test_refused_exports(cli, tmp_path, name, part):
    refused(cli, tmp_path, f"tests/fixtures/import/{name}.pt2", part)


def test_flags_that_this_version_lacks(cli, tmp_path):
    model = "tests/fixtures/sig_constants.pt2"
    done = cli("compile", model, "-o", tmp_path / "a.pte", "--external-weights", "w.ptd", code=2)
    assert "--external-weights" in done.stderr and not (tmp_path / "a.pte").exists()
    refused = cli("compile", model, "-o", tmp_path / "a.pte", "--quantize", "int3", code=2).stderr
    assert "int3" in refused and "int8-dynamic" in refused and "int4-weight-only" in refused
    refused = cli("compile", model, "-o", tmp_path / "a.pte", "--quantize", "int8", code=2).stderr
    assert "--calibrate" in refused and "int8-dynamic" in refused


@pytest.mark.parametrize("flags, part", [
    (["--backend", "gpu"], "unknown backend 'gpu'; there are xnnpack, qnn and cpu"),
    (["--backend", ""], "names no backend"),
    (["--backend", "cpu,"], "unknown backend ''"),
    (["--backend", "cpu,cpu"], "names 'cpu' twice"),
    (["--backend", "qnn,cpu"], "needs --soc"),
    (["--backend", "qnn,cpu", "--soc", "SM1"], "unknown SoC 'SM1'"),
    (["--soc", "SM8650"], "--backend qnn,cpu"),
    (["--input-shape", "x=a"], "--input-shape x=a: expected INPUT=SIZE"),
    (["--calibrate", "calls"], "add --quantize"),
])
def test_wrong_flags_of_compile(cli, tmp_path, flags, part):
    """Whatever the model."""
    for verb, output in (("compile", ["-o", tmp_path / "a.pte"]), ("explain", [])):
        done = cli(verb, "tests/fixtures/sig_constants.pt2", *output, *flags, code=2)
        assert done.stdout == "" and part in done.stderr, done.stderr
    assert not (tmp_path / "a.pte").exists()


def test_calibration_that_a_scheme_has_no_use_for_is_a_warning(cli, tmp_path):
    done = cli("compile", "tests/fixtures/sig_constants.pt2", "-o", tmp_path / "a.pte", "--quantize", "none", "--calibrate", "calls")
    assert "warning: --quantize none needs no calibration" in done.stderr


def test_a_single_array_in_a_calibration_folder_is_no_call(cli, tmp_path):
    folder = tmp_path / "calls"
    folder.mkdir()
    np.savez(folder / "0.npz", input_0=np.zeros((1, 1, 28, 28), np.float32))
    np.save(folder / "1.npy", np.zeros((1, 1, 28, 28), np.float32))
    refused(cli, tmp_path, "tests/fixtures/digits_cnn_trained.pt2", str(folder / "1.npy"), ".npz or .safetensors", flags=["--quantize", "int8", "--calibrate", folder])


def test_wrong_usage(cli):
    assert "the verbs are compile, run" in cli("comple", code=2).stderr
    for arguments in ((), ("compile",), ("compile", "a.pt2"), ("compile", "a.pt2", "-o", "b", "--nonsense"), ("run", "a.pte"), ("generate",),
                      ("compile", "a.pt2", "-o", "b", "--runtime", "other"), ("compile", "a.pt2", "-o", "b", "--method", "c.pt2"), ("compile", "a.pt2", "-o", "b", "--method", "=c.pt2"), ("compile", "a.pt2", "-o", "b", "--method", "c="), ("generate", "a.pte", "--tokenizer", "b"), ("generate", "a.pte", "--tokenizer", "b", "--max-tokens", "many"),
                      ("compile", "a.pt2", "-o", "b", "--keep-float", "head")):
        done = cli(*arguments, code=2)
        assert done.stdout == "" and done.stderr
    for verb in ("compile", "run", "generate", "compare", "bench", "inspect", "explain", "ops", "opt"):
        assert "--json" in cli(verb, "--help").stdout


def test_a_list_that_takes_the_model(cli):
    done = cli("compile", "--quantize", "int8", "--calibrate", "calls", "a.pt2", "-o", "b.pte", code=2)
    other = cli("compile", "a.pt2", "--quantize", "int8", "--calibrate", "calls", code=2)
    assert "--output is required" in other.stderr and "goes before" not in other.stderr
    assert "MODEL is required" in done.stderr and "the file to work on goes before such options" in done.stderr


def test_files_of_the_wrong_kind_say_what_to_do(cli, tmp_path):
    empty = tmp_path / "empty.pte"
    empty.touch()
    assert "is empty; compile the model again" in cli("run", empty, "a.npz", "-o", tmp_path / "out", code=1).stderr
    assert "if it is an exported .pt2, `dovetail compile" in cli("run", "tests/fixtures/sig_constants.pt2", "a.npz", "-o", tmp_path / "out", code=1).stderr
    (tmp_path / "text.pte").write_text("def forward(x): return x\n")
    assert "is not a .pte program" in cli("run", tmp_path / "text.pte", "a.npz", "-o", tmp_path / "out", code=1).stderr


def test_products_outside_delegates_have_a_reason(cli, tmp_path):
    done = cli("compile", "tests/fixtures/llama_tiny_index_put.pt2", "-o", tmp_path / "a.pte", "--quantize", "int4-weight-only")
    assert "2 of 15 linears" in done.stderr and "  on the cpu: 13 x quantized_linear - xnnpack: " in done.stderr


def test_compile_json(cli, tmp_path):
    report = json.loads(cli("compile", "tests/fixtures/llama_tiny_index_put.pt2", "-o", tmp_path / "a.pte", "--json").stdout)
    assert report["linears"] == {"total": 15, "delegated": 15, "quantized": 0}
    assert report["delegate_calls"] <= 4 and report["macs_delegated"] == report["macs_total"] > 0
    assert len(report["states"]) == 4 and set(report["states"][0]) == {"name", "dtype", "shape", "bytes"}
    for key in ("seconds", "peak_anonymous_bytes", "output_bytes", "planned_bytes", "left_in_float"):
        assert key in report
    assert report["output_bytes"] == (tmp_path / "a.pte").stat().st_size


def test_small_sizes_are_told(cli, tmp_path):
    text = cli("compile", "tests/fixtures/sig_constants.pt2", "-o", tmp_path / "a.pte").stderr
    assert re.search(r"a\.pte: [1-9][0-9.]* (bytes|KB) in [0-9.]+ (ms|s) ", text) and "0 states; activations" in text and "0.0" not in text.splitlines()[-1], text


def test_an_output_that_exists_is_replaced_or_kept_whole(cli, tmp_path):
    target = tmp_path / "a.pte"
    target.write_text("before")
    cli("compile", "tests/fixtures/import/refused_operators.pt2", "-o", target, code=1)
    assert target.read_text() == "before"
    cli("compile", "tests/fixtures/sig_constants.pt2", "-o", target)
    assert target.read_bytes()[4:8] == b"ET12"
    assert [p.name for p in tmp_path.iterdir()] == ["a.pte"]


@pytest.fixture
def llama(cli, tmp_path):
    cli("compile", "tests/fixtures/llama_tiny_index_put.pt2", "-o", tmp_path / "llama.pte")
    return tmp_path / "llama.pte"


def calls_of(name, folder, form):
    reference = load_file(FIXTURES / f"{name}.ref.safetensors")
    files = []
    for step in range(3):
        arrays = {f"input_{leaf}": reference[f"in.{step}.{leaf}"] for leaf in range(2)}
        files.append(folder / f"call{step}.{form}")
        np.savez(files[-1], **arrays) if form == "npz" else save_file(arrays, files[-1])
    return reference, files


def test_a_failed_run_leaves_no_folder(cli, llama, tmp_path):
    np.savez(tmp_path / "wrong.npz", input_0=np.zeros((1, 3), np.float32), input_1=np.zeros(3, np.int64))
    cli("run", llama, tmp_path / "wrong.npz", "-o", tmp_path / "out", code=1)
    assert not (tmp_path / "out").exists()
    (tmp_path / "mine").mkdir()
    cli("run", llama, tmp_path / "wrong.npz", "-o", tmp_path / "mine", code=1)
    assert (tmp_path / "mine").exists()


@pytest.mark.parametrize("form", ["npz", "safetensors"])
def test_run_carries_states_over_and_dumps_them(cli, llama, tmp_path, form):
    reference, files = calls_of("llama_tiny_index_put", tmp_path, form)
    report = json.loads(cli("run", llama, *files, "-o", tmp_path / "out", "--dump-states", "--json").stdout)
    assert len(report["calls"]) == 3 and report["calls"][0]["seconds"] > 0 and report["load_seconds"] > 0
    for step, file in enumerate(files):
        got = np.load((tmp_path / "out" / file.name).with_suffix(".npz"))
        want = reference[f"out.{step}.0"]
        np.testing.assert_allclose(got["output_0"], want, rtol=0, atol=1e-4 * np.ptp(want))
        states = [k for k in got.files if k.startswith("state.")]
        assert len(states) == 4 and all(np.any(got[k]) for k in states)


def test_int8_states_are_two_each(cli, tmp_path):
    reference, files = calls_of("llama_tiny_index_put", tmp_path, "npz")
    program = tmp_path / "int8.pte"
    report = json.loads(cli("compile", "tests/fixtures/llama_tiny_index_put.pt2", "-o", program, "--state", "int8", "--json").stdout)
    assert [s["dtype"] for s in report["states"]] == ["i8", "f32"] * 4
    for rows, scale in zip(report["states"][::2], report["states"][1::2], strict=True):
        assert scale["name"] == rows["name"] + ".scale" and scale["shape"] == [*rows["shape"][:-1], 1]
    cli("run", program, *files, "-o", tmp_path / "out", "--dump-states")
    for step, file in enumerate(files):
        got = np.load((tmp_path / "out" / file.name).with_suffix(".npz"))
        want = reference[f"out.{step}.0"]
        np.testing.assert_allclose(got["output_0"], want, rtol=0, atol=1e-2 * np.ptp(want))
        for s in report["states"]:
            assert got["state." + s["name"]].dtype == {"i8": np.int8, "f32": np.float32}[s["dtype"]] and np.any(got["state." + s["name"]])


def test_no_call_is_lost_under_an_output(cli, llama, tmp_path):
    np.savez(tmp_path / "call.npz", input_0=np.array([[1, 2]]), input_1=np.array([0, 1]))
    before = (tmp_path / "call.npz").read_bytes()
    assert "would be overwritten" in cli("run", llama, tmp_path / "call.npz", "-o", tmp_path, code=1).stderr
    assert (tmp_path / "call.npz").read_bytes() == before
    (tmp_path / "b").mkdir()
    shutil.copy(tmp_path / "call.npz", tmp_path / "b" / "call.npz")
    assert "two calls" in cli("run", llama, tmp_path / "call.npz", tmp_path / "b" / "call.npz", "-o", tmp_path / "out", code=1).stderr


def test_what_is_no_file_is_not_replaced(cli, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in cli("compile", "tests/fixtures/sig_constants.pt2", "-o", tmp_path / "pipe", code=1).stderr
    assert (tmp_path / "pipe").is_fifo()


def test_run_takes_inputs_by_name(cli, llama, tmp_path):
    inputs = json.loads(cli("inspect", llama, "--json").stdout)["inputs"]
    arrays = {inputs[0]["name"]: np.array([[1, 2]]), inputs[1]["name"]: np.array([0, 1])}
    np.savez(tmp_path / "named.npz", **arrays)
    cli("run", llama, tmp_path / "named.npz", "-o", tmp_path / "out")


@pytest.mark.parametrize("arrays, parts", [
    ({"input_0": np.array([[1, 2]])}, ["has no array", "input_1"]),
    ({"input_0": np.array([[1, 2]]), "input_1": np.array([0, 1]), "mask": np.zeros(2)}, ["array 'mask'", "the inputs are: tokens, input_pos"]),
    ({"input_0": np.array([1, 2]), "input_1": np.array([0, 1])}, ["has rank 1, not 2"]),
    ({"input_0": np.array([[1, 2]], np.int32), "input_1": np.array([0, 1])}, ["is i32, not i64"]),
    ({"input_0": np.array([[1, 2]]), "input_1": np.array([0, 1, 2])}, ["has size 3", "which is 2"]),
    ({"input_0": np.zeros((1, 500), np.int64), "input_1": np.arange(500)}, ["has size 500"]),
    ({"input_0": np.array([[1, 2]]), "input_1": np.array([0, 5000])}, ["aten::index", "5000", "from "]),
    ({"input_0": np.array([[1, 99999]]), "input_1": np.array([0, 1])}, ["embedding", "99999"]),
])
def test_wrong_inputs_are_named(cli, llama, tmp_path, arrays, parts):
    np.savez(tmp_path / "call.npz", **arrays)
    done = cli("run", llama, tmp_path / "call.npz", "-o", tmp_path / "out", code=1)
    for part in parts:
        assert part in done.stderr, done.stderr
    assert not (tmp_path / "out" / "call.npz").exists()


def test_damaged_programs_are_refused(cli, llama, tmp_path):
    whole = llama.read_bytes()
    np.savez(tmp_path / "call.npz", input_0=np.array([[1]]), input_1=np.array([0]))
    for damaged in (b"", whole[:100], whole[: len(whole) // 2], b"\0" * 64 + whole[64:]):
        (tmp_path / "bad.pte").write_bytes(damaged)
        assert "bad.pte" in cli("run", tmp_path / "bad.pte", tmp_path / "call.npz", "-o", tmp_path / "out", code=1).stderr
        assert "bad.pte" in cli("inspect", tmp_path / "bad.pte", code=1).stderr


def test_inspect(cli, llama):
    for file in (llama, "tests/fixtures/llama_tiny_index_put.pt2"):
        report = json.loads(cli("inspect", file, "--json").stdout)
        assert set(report) >= {"inputs", "outputs", "states", "methods", "operators", "delegates", "weights"}
        assert [len(report["inputs"]), len(report["outputs"]), len(report["states"])] == [2, 1, 4]
        assert sum(w["bytes"] for w in report["weights"]) > 100_000
    text = cli("inspect", "tests/fixtures/llama_tiny_index_put.pt2", "--graph").stdout
    assert text.startswith("module {") and "state.read @" in text and "state.write @" in text


def test_inspect_prints_inputs_first(cli, llama):
    for file in (llama, "tests/fixtures/llama_tiny_index_put.pt2"):
        assert cli("inspect", file).stdout.startswith("inputs (2)\n")


def test_what_is_no_tokenizer_is_said(cli, llama, tmp_path):
    def error(tokenizer):
        return cli("generate", llama, "--tokenizer", tokenizer, "--prompt", "a", code=1).stderr

    config = tmp_path / "tokenizer_config.json"
    config.write_text('{"tokenizer_class": "GPT2Tokenizer"}')
    assert "is a tokenizer_config.json" in error(config) and "give the tokenizer.json" in error(config)
    assert "has no tokenizer.json" in error(tmp_path)
    several = error("tests/llm")
    assert "has several tokenizers" in several and "gpt2.tokenizer.json" in several
    # Of several the one with the program's name.
    for name in ("llama", "other"):
        shutil.copy(ROOT / "tests" / "llm" / "gpt2.tokenizer.json", tmp_path / f"{name}.tokenizer.json")
    cli("generate", llama, "--tokenizer", tmp_path, "--prompt", "a", "--max-tokens", 2)


def test_explain(cli):
    report = json.loads(cli("explain", "tests/fixtures/llama_tiny_index_put.pt2", "--json").stdout)
    assert set(report) >= {"delegate_calls", "graph_breaks", "nodes"}
    assert set(report["nodes"][0]) >= {"op", "backend", "reason", "location"}
    assert all(n["reason"] for n in report["nodes"] if n["backend"] == "cpu")


def test_several_methods_share_states_and_weights(cli, tmp_path):
    target = tmp_path / "both.pte"
    single = json.loads(cli("compile", "tests/fixtures/llama_tiny_index_put.pt2", "-o", target, "--json").stdout)["output_bytes"]
    both = json.loads(cli("compile", "tests/fixtures/llama_tiny_index_put.pt2", "-o", target, "--method", "decode=tests/fixtures/llama_tiny_decode_static.pt2", "--json").stdout)
    assert both["output_bytes"] < 1.3 * single and len(both["states"]) == 4
    report = json.loads(cli("inspect", target, "--json").stdout)
    assert [m["name"] for m in report["methods"]] == ["forward", "decode"]
    clash = cli("compile", "tests/fixtures/llama_tiny_index_put.pt2", "-o", target, "--method", "forward=tests/fixtures/llama_tiny_decode_static.pt2", code=1)
    assert "two methods are named 'forward'" in clash.stderr
    unrelated = cli("compile", "tests/fixtures/llama_tiny_index_put.pt2", "-o", target, "--method", "other=tests/fixtures/hf_llama_staticcache.pt2", "--json")
    assert len(json.loads(unrelated.stdout)["states"]) == 10


def test_goldens_run_from_the_command_line(cli, tmp_path):
    for file in sorted((ROOT / "tests" / "passes").glob("*.ir")):
        cli("opt", "--test", file)
    broken = tmp_path / "broken.ir"
    shutil.copy(ROOT / "tests" / "passes" / "fuse_silu.ir", broken)
    broken.write_text(broken.read_text().replace("silu", "gelu", 1) + "\nnonsense")
    assert "broken.ir" in cli("opt", "--test", broken, code=1).stderr
