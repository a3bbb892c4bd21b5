"""Time to compile a graph of many nodes.

    PYTHONPATH=bench build/venv/bin/python bench/large_graph.py [--layers 500]

Each layer is a linear of 16 channels, six times sin(y) * 0.5 + x, and a relu: 20 nodes. Median of 5 processes. Writes a section of docs/benchmarks-peers.md.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))

from peers import report  # noqa: E402
from peers.dovetail import binary  # noqa: E402

FLAGS = {"float": [], "int8-dynamic": ["--quantize", "int8-dynamic"], "float, without XNNPACK": ["--backend", "cpu"]}


class Deep(torch.nn.Module):
    def __init__(self, layers: int):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(16, 16) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            y = layer(x)
            for _ in range(6):
                y = torch.sin(y) * 0.5 + x
            x = torch.relu(y)
        return x


def main() -> int:
    parser = argparse.ArgumentParser(description="Time to compile a graph of many nodes")
    parser.add_argument("--layers", type=int, default=500)
    parser.add_argument("--no-page", action="store_true", help="leave docs/ alone")
    options = parser.parse_args()
    torch.manual_seed(0)
    program = torch.export.export(Deep(options.layers).eval(), (torch.randn(4, 16),))
    nodes = sum(node.op == "call_function" for node in program.graph.nodes)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "deep.pt2"
        torch.export.save(program, source)
        for name, flags in FLAGS.items():
            command = [str(binary), "compile", str(source), "-o", str(Path(folder) / "deep.pte"), "--json", *flags]
            results = [json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout) for _ in range(5)]
            seconds = statistics.median(result["seconds"] for result in results)
            rows.append([name, f"{seconds:.2f}", f"{results[0]['peak_anonymous_bytes'] / 1e6:.0f}", f"{results[0]['delegate_calls']}"])
    markdown = "\n".join([
        "## A large graph\n",
        f"`bench/large_graph.py`. {report.machine()}. {report.versions()}.\n",
        f"{nodes} nodes: {options.layers} linears of 16 channels with 19 elementwise operators behind each.\n",
        report.table(["compiled as", "s", "peak anonymous MB", "delegate calls"], rows),
    ])  # fmt: skip
    print(markdown)
    if not options.no_page:
        report.write_section("large_graph.py", markdown)
    return 0


if __name__ == "__main__":
    sys.exit(main())
