"""The model zoo: what it exports behaves like the eager model, and is exported once."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

from dovetail_zoo.llama import CACHE_WRITERS
from dovetail_zoo.registry import MODELS

from conftest import ROOT


def zoo(*arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    command = [sys.executable, "-m", "dovetail_zoo", *arguments]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=300).stdout


def test_exports_once(tmp_path: Path) -> None:
    assert "exporting" in zoo("digits_cnn", "-o", str(tmp_path))
    with zipfile.ZipFile(tmp_path / "digits_cnn.pt2") as archive:
        assert {name.split("/")[0] for name in archive.namelist()} == {"digits_cnn"}
    assert zoo("digits_cnn", "-o", str(tmp_path)) == ""


@pytest.mark.parametrize("style", sorted(CACHE_WRITERS))
def test_cache_styles_agree(style: str) -> None:
    """All ways of writing the cache give the same logits, for a prompt and then a step."""
    reference = MODELS["llama_tiny_index_put"](Path()).module
    model = MODELS[f"llama_tiny_{style}"](Path()).module
    for tokens, positions in (([[5, 7, 11]], [0, 1, 2]), ([[13]], [3])):
        inputs = torch.tensor(tokens), torch.tensor(positions)
        torch.testing.assert_close(model(*inputs), reference(*inputs), rtol=1e-5, atol=1e-5)


def test_prefill_equals_steps() -> None:
    prompt = [3, 1, 4, 1, 5]
    build = MODELS["llama_tiny_grouped"]
    prefill = build(Path()).module(torch.tensor([prompt]), torch.arange(len(prompt)))
    model = build(Path()).module
    steps = [model(torch.tensor([[token]]), torch.tensor([index])) for index, token in enumerate(prompt)]
    torch.testing.assert_close(prefill, torch.cat(steps, 1), rtol=1e-4, atol=1e-4)
