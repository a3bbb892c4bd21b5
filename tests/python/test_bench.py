"""`dovetail bench`: made-up inputs, when it stops, its JSON, and traces and tables of --profile."""

import json

import numpy as np
import pytest
import torch

from conftest import ROOT

FIXTURES = "tests/fixtures"


@pytest.fixture(scope="module")
def compiled(cli, tmp_path_factory):
    made = {}

    def program(name, *flags):
        if (name, flags) not in made:
            target = tmp_path_factory.mktemp("bench") / f"{name}.pte"
            report = json.loads(cli("compile", f"{FIXTURES}/{name}.pt2", "-o", target, "--json", *flags).stdout)
            made[name, flags] = target, report
        return made[name, flags]

    return program


@pytest.fixture(scope="module")
def llama(compiled):
    return compiled("llama_tiny_index_put")[0]


def bench(cli, *arguments):
    return json.loads(cli("bench", *arguments, "--json", "--threads", 1).stdout)


def symbol(cli, program):
    kind = json.loads(cli("inspect", program, "--json").stdout)["inputs"][0]["type"]  # i64[1,s0]
    return kind[:-1].split(",")[1]


def test_json(cli, llama):
    report = bench(cli, llama, "--iterations", 7)
    assert set(report) >= {"min_ms", "median_ms", "p95_ms", "load_ms", "peak_rss_bytes", "peak_anonymous_bytes", "first_call_ms"}
    assert 0 < report["min_ms"] <= report["median_ms"] <= report["p95_ms"]
    assert report["iterations"] == 7 and report["threads"] == 1 and "profile" not in report
    assert report["peak_rss_bytes"] >= report["peak_anonymous_bytes"] > 0 and report["load_ms"] > 0


def test_text(cli, llama):
    done = cli("bench", llama, "--iterations", 2, "--threads", 2)
    assert "latency  min" in done.stdout and "(2 iterations)" in done.stdout and "2 threads" in done.stdout
    assert done.stderr == ""


def test_when_it_stops(cli, llama):
    assert bench(cli, llama, "--seconds", 0.05)["iterations"] >= 1
    assert bench(cli, llama, "--seconds", 30, "--iterations", 3)["iterations"] == 3
    assert bench(cli, llama, "--seconds", 0.001, "--iterations", 1000000)["iterations"] < 1000000


@pytest.mark.parametrize("name", ["llama_tiny_index_put", "llama_tiny_slice_copy", "llama_tiny_decode_static", "hf_llama_staticcache",
                                  "digits_cnn_trained", "silero_vad_stateful", "sig_pytree_io", "sig_user_input_mutation"])
@pytest.mark.parametrize("runtime", ["dovetail", "executorch"])
def test_inputs_are_made_for_every_model(cli, compiled, name, runtime):
    program, _ = compiled(name, "--runtime", runtime)
    assert bench(cli, program, "--iterations", 2)["iterations"] == 2


def test_sizes_and_positions(cli, llama):
    name = symbol(cli, llama)
    report = bench(cli, llama, "--iterations", 2)
    assert report["sizes"][name] > 1
    assert bench(cli, llama, "--iterations", 2, "--size", f"{name}=1", "--position", 5)["sizes"] == {name: 1}
    text = cli("bench", llama, "--iterations", 1, "--size", f"{name}=3").stdout
    assert "i64[1,3]" in text and "i64[3]" in text
    # Rows of positions past the cache are refused by the program itself: the position does reach it.
    done = cli("bench", llama, "--size", f"{name}=1", "--position", 5000, code=1)
    assert "5000" in done.stderr and str(llama) in done.stderr
    # All of the made-up size comes after --position.
    done = cli("bench", llama, "--position", 5000, code=1)
    assert f"{name}=" in done.stderr and f"A decoding step is --size {name}=1 --position N" in done.stderr


def test_problems_with_the_input(cli, llama, tmp_path):
    name = symbol(cli, llama)
    unknown = cli("bench", llama, "--size", "rows=3", code=1).stderr
    assert "no size named 'rows'" in unknown and name in unknown
    assert "cannot be 100000" in cli("bench", llama, "--size", f"{name}=100000", code=1).stderr
    assert "missing.pte" in cli("bench", tmp_path / "missing.pte", code=1).stderr
    assert "has no method 'nope'" in cli("bench", llama, "--method", "nope", code=1).stderr
    trace = tmp_path / "missing" / "trace.json"
    assert str(trace) in cli("bench", llama, "--profile", trace, code=1).stderr
    before = llama.read_bytes()
    assert "would be overwritten" in cli("bench", llama, "--profile", llama, code=1).stderr
    assert llama.read_bytes() == before
    np.savez(tmp_path / "call.npz", input_0=np.array([[1, 99999]]), input_1=np.array([0, 1]))
    trace = tmp_path / "trace.json"
    done = cli("bench", llama, tmp_path / "call.npz", "--profile", trace, code=1)
    assert "99999" in done.stderr and "call.npz" in done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["call.npz"]


@pytest.mark.parametrize("flags", [(), ("a.pte", "--size", "s0"), ("a.pte", "--size", "s0=x"), ("a.pte", "--size", "=1"),
                                   ("a.pte", "--iterations", "0"), ("a.pte", "--seconds", "0"), ("a.pte", "--position", "-1"), ("a.pte", "a.npz", "--size", "s0=1"),
                                   ("a.pte", "a.npz", "--position", "1"), ("a.pte", "--nonsense")])
def test_wrong_usage(cli, flags):
    done = cli("bench", *flags, code=2)
    assert done.stdout == "" and done.stderr


def test_a_sequence_of_calls(cli, llama, tmp_path):
    files = []
    for i, (tokens, positions) in enumerate([(np.arange(4)[None], np.arange(4)), (np.array([[1]]), np.array([4]))]):
        files.append(tmp_path / f"call{i}.npz")
        np.savez(files[-1], input_0=tokens, input_1=positions)
    report = bench(cli, llama, *files, "--iterations", 4)
    assert [c["name"] for c in report["calls"]] == list(map(str, files))
    assert sum(c["median_ms"] for c in report["calls"]) < 2 * report["median_ms"] and "sizes" not in report


class Counter(torch.nn.Module):
    """Writes row `count` of a cache that has 8: the ninth call in a row fails."""

    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(1, dtype=torch.int64))
        self.register_buffer("cache", torch.zeros(8, 4))

    def forward(self, x):
        self.cache.index_copy_(0, self.count, torch.tanh(x))
        self.count.add_(1)
        return self.cache.sum(0) + x


def test_states_are_reset_where_a_program_comes_to_the_end_of_its_cache(cli, tmp_path):
    torch.export.save(torch.export.export(Counter(), (torch.ones(1, 4),)), tmp_path / "counter.pt2")
    cli("compile", tmp_path / "counter.pt2", "-o", tmp_path / "counter.pte")
    np.savez(tmp_path / "x.npz", input_0=np.ones((1, 4), np.float32))
    assert "from " in cli("run", tmp_path / "counter.pte", tmp_path / "x.npz", "--repeat", 9, "-o", tmp_path / "out", code=1).stderr
    for iterations in (4, 5, 8, 30):
        report = bench(cli, tmp_path / "counter.pte", "--iterations", iterations, "--profile", tmp_path / "t.json")
        assert report["iterations"] == report["profiled_iterations"] == iterations
        calls = [e for e in events_of(tmp_path / "t.json") if e["cat"] == "call"]
        assert len(calls) == min(iterations, 10)
        assert all(r["calls"] == round(r["calls"]) for r in report["profile"])


def events_of(trace):
    events = json.loads(trace.read_text())["traceEvents"]
    return [e for e in events if e["ph"] == "X"]


def inside(inner, outer, slack=2e-3):
    return inner["ts"] >= outer["ts"] - slack and inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"] + slack


@pytest.mark.parametrize("name, flags", [("llama_tiny_index_put", ()), ("llama_tiny_index_put", ("--quantize", "int8-dynamic", "--state", "int8")),
                                         ("llama_tiny_index_put", ("--runtime", "executorch")), ("digits_cnn_trained", ()),
                                         ("silero_vad_stateful", ())])
def test_a_trace_covers_every_instruction(cli, compiled, tmp_path, name, flags):
    program, _ = compiled(name, *flags)
    trace = tmp_path / "trace.json"
    report = bench(cli, program, "--iterations", 3, "--profile", trace)
    assert [p.name for p in tmp_path.iterdir()] == ["trace.json"]
    instructions = json.loads(cli("inspect", program, "--json").stdout)["methods"][0]["instructions"]
    events = events_of(trace)
    assert {e["args"]["iteration"] for e in events} == {0, 1, 2} and report["profiled_iterations"] == 3
    for iteration in range(3):
        mine = [e for e in events if e["args"]["iteration"] == iteration]
        (call,) = [e for e in mine if e["cat"] == "call"]
        assert call["name"] == "forward"
        steps = sorted((e for e in mine if e["cat"] == "instruction"), key=lambda e: e["ts"])
        assert [e["args"]["instruction"] for e in steps] == list(range(instructions))
        assert all(inside(e, call) for e in steps)
        assert all(a["ts"] + a["dur"] <= b["ts"] + 2e-3 for a, b in zip(steps, steps[1:]))
        nodes = [e for e in mine if e["cat"] == "node"]
        assert nodes
        for node in nodes:
            step = steps[node["args"]["instruction"]]
            assert step["name"] == "XnnpackBackend" and inside(node, step)
            assert node["args"]["inputs"] and node["args"]["outputs"] and node["args"]["op"]
        assert all("source" in e["args"] for e in steps if e["name"].startswith("XnnpackBackend"))
        assert any("layer" in e["args"] and "weight" in e["args"]["layer"] for e in nodes) or name == "silero_vad_stateful"


@pytest.mark.parametrize("name, flags", [("llama_tiny_index_put", ()), ("llama_tiny_index_put", ("--quantize", "int8-dynamic")),
                                         ("digits_cnn_trained", ())])
def test_the_table_adds_up(cli, compiled, tmp_path, name, flags):
    program, compiled_report = compiled(name, *flags)
    shape = json.loads(cli("inspect", program, "--json").stdout)["inputs"][0]
    sizes = []
    for dim, most in zip(shape["type"].split("[")[1][:-1].split(","), shape["max_sizes"], strict=True):
        sizes += [] if dim.isdigit() else ["--size", f"{dim}={most}"]
    report = bench(cli, program, "--iterations", 5, "--profile", tmp_path / "trace.json", *sizes)
    rows = report["profile"]
    assert abs(sum(r["share"] for r in rows if r["kind"] in ("operator", "delegate") or r["name"] == "between instructions") - 1) < 0.02
    (delegate,) = [r for r in rows if r["kind"] == "delegate"]
    inner = [r for r in rows if r.get("delegate") == delegate["name"]]
    assert abs(sum(r["ms"] for r in inner) - delegate["ms"]) < 0.02 * delegate["ms"] + 1e-3
    # The compiler counts those of layers, at the upper bounds; means are products with a row of ones.
    assert delegate["macs"] == sum(r.get("macs", 0) for r in inner)
    assert compiled_report["macs_delegated"] <= delegate["macs"] < 1.01 * compiled_report["macs_delegated"]
    linears = [r for r in inner if r["name"].startswith(("FullyConnected", "Conv2d"))]
    assert linears and all(r["bytes"] > 0 and r["macs"] > 0 for r in linears)
    assert report["machine_gb_per_s"] > 0.5
    text = cli("bench", program, "--iterations", 2, "--profile", tmp_path / "trace.json", *sizes).stdout
    assert "  FullyConnected (" in text and "between instructions" in text and "GOP/s" in text


def test_bytes_of_decoding_are_the_weights(cli, compiled, tmp_path):
    """A step of one token reads every linear weight once, and of an embedding and a cache no more than it touches."""
    program, _ = compiled("llama_tiny_index_put")
    one = bench(cli, program, "--iterations", 2, "--size", f"{symbol(cli, program)}=1", "--position", 3, "--profile", tmp_path / "t.json")
    rows = {r["name"]: r for r in one["profile"]}
    weights = {w["dtype"]: w["bytes"] for w in json.loads(cli("inspect", program, "--json").stdout)["weights"]}
    linears = sum(r["bytes"] for n, r in rows.items() if n.startswith("FullyConnected"))
    assert 0.8 * weights["f32"] < linears < 1.2 * weights["f32"]
    assert rows["aten::embedding.out"]["bytes"] < 2000
    near = rows["dovetail::attention.out"]["bytes"]
    far = bench(cli, program, "--iterations", 2, "--size", f"{symbol(cli, program)}=1", "--position", 23, "--profile", tmp_path / "t.json")
    further = {r["name"]: r for r in far["profile"]}["dovetail::attention.out"]
    assert further["bytes"] > 2 * near and further["macs"] == 6 * rows["dovetail::attention.out"]["macs"]
