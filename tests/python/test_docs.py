"""The example of the README and of docs/cpp.md: its commands and programs are taken from the pages and run."""

import os
import re
import subprocess
import sys

import pytest

from conftest import ROOT


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def example(dovetail, tmp_path_factory):
    """A folder where the commands of "Your own model" were run; its Python programs, which may go on from each other."""
    folder = tmp_path_factory.mktemp("example")
    section = (ROOT / "README.md").read_text().split("## Your own model")[1]
    export, stock = blocks("README.md", "python")
    subprocess.run([sys.executable, "-c", export], cwd=folder, check=True)
    commands = re.findall(r"^\$ (dovetail [^#\n]*)", section, re.MULTILINE)
    assert len(commands) == 3
    for command in commands:
        subprocess.run(command.split(), executable=dovetail, cwd=folder, check=True)
    return folder, export, stock


def test_the_example_runs_in_both_runtimes(example):
    folder, export, stock = example
    assert (folder / "out" / "call.npz").exists()
    check = "np.testing.assert_allclose(outputs[0].numpy(), np.load('out/call.npz')['output_0'], rtol=0, atol=1e-5)"
    subprocess.run([sys.executable, "-c", "\n".join(("import numpy as np", "import torch", stock, check))], cwd=folder, check=True)


def test_the_program_in_cpp(example):
    folder, _, _ = example
    [source] = blocks("docs/cpp.md", "cpp")
    (folder / "main.cc").write_text(source)
    prefix = ROOT / "build" / "deps" / "xnnpack" / "lib"
    libraries = [ROOT / "build/release/libdovetail_runtime.a", *(prefix / f"lib{name}.a" for name in ("XNNPACK", "microkernels-prod", "pthreadpool", "cpuinfo"))]
    if not all(library.exists() for library in libraries):
        pytest.skip("not built in build/release with the XNNPACK of tools/build_xnnpack.sh")
    command = [os.environ.get("CXX", "c++"), "-std=c++20", "-I", ROOT / "include", "-I", ROOT / "src", "main.cc", "-o", "app", *libraries, "-lpthread", "-ldl"]
    subprocess.run(command, cwd=folder, check=True)
    subprocess.run([folder / "app"], cwd=folder, check=True)
