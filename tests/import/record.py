"""Exports the small models of cases.py for src/import, with what PyTorch gives for them.

    python tests/import/record.py [NAME ...]

For every case: tests/fixtures/import/NAME.pt2, NAME.core.pt2 (after run_decompositions, where that changes the kind of graph) and
NAME.ref.safetensors (in.STEP.LEAF, out.STEP.LEAF, mut.STEP.LEAF). Cases that are refused have a .pt2 only. What the importer never
reads is taken out of the archives, and paths in stack traces are made relative, so that files are small and the same on every machine.
"""
import copy
import io
import json
import pathlib
import re
import sys
import zipfile

import torch
from safetensors.torch import save_file
from torch.utils import _pytree as pytree

import cases

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "tests/fixtures/import"


def slim(data):
    """The archive without sample inputs and with only the metadata that is read."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as new:
        for name in old.namelist():
            content = old.read(name)
            if "/sample_inputs/" in name or "/.data/" in name:
                continue
            if "/models/" in name and name.endswith(".json"):
                model = json.loads(content)
                graph = model["graph_module"]["graph"]
                model["graph_module"].pop("module_call_graph")
                for meta in graph["tensor_values"].values():
                    meta.pop("requires_grad")
                    meta.pop("device")
                for node in graph["nodes"]:
                    node.pop("is_hop_single_tensor_return", None)
                    keep = {k: v for k, v in node["metadata"].items() if k in ("stack_trace", "nn_module_stack")}
                    if not keep.get("nn_module_stack", ";").count(";"):
                        del keep["nn_module_stack"]
                    if "stack_trace" in keep:
                        trace = keep["stack_trace"].replace(str(ROOT) + "/", "")
                        keep["stack_trace"] = re.sub(r'File "[^"]*/site-packages/', 'File "site-packages/', trace)
                    node["metadata"] = keep
                content = json.dumps(model, separators=(",", ":")).encode()
            new.writestr(zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0)), content)
    return out.getvalue()


def save(program, name):
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    (OUT / f"{name}.pt2").write_bytes(slim(buffer.getvalue()))


def tensors(kind, step, tree):
    leaves = pytree.tree_leaves(tree)
    return {f"{kind}.{step}.{i}": t.detach().clone().contiguous() for i, t in enumerate(leaves) if isinstance(t, torch.Tensor)}


def record(case):
    torch.manual_seed(0)
    model = case.model()
    if not case.training:
        model.eval()
    steps = case.steps()
    program = torch.export.export(copy.deepcopy(model), copy.deepcopy(steps[0]), dynamic_shapes=case.dynamic)
    save(program, case.name)
    if case.refused:
        return
    if case.core:
        save(program.run_decompositions(), case.name + ".core")
    reference = {}
    with torch.no_grad():
        for i, args in enumerate(steps):
            reference |= tensors("in", i, args)
            before = copy.deepcopy(args)
            reference |= tensors("out", i, model(*args))
            for key, t in tensors("mut", i, args).items():
                if not torch.allclose(t, pytree.tree_leaves(before)[int(key.split(".")[2])], rtol=0, atol=0, equal_nan=True):
                    reference[key] = t
    save_file(reference, OUT / f"{case.name}.ref.safetensors")


if __name__ == "__main__":
    OUT.mkdir(parents=True, exist_ok=True)
    for case in cases.CASES:
        if len(sys.argv) < 2 or case.name in sys.argv[1:]:
            record(case)
            print(case.name)
