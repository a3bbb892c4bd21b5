"""ExecuTorch's side of tests/python/test_qnn_executorch.py, a program of its own since it must find the interposing libQnnHtp.so when it starts.

    executorch_qnn.py export SCHEME OUT.pte CALLS   writes a model with a k_cache and its calls (CALLS_0.npz...), lowered by ExecuTorch's own QNN flow
    executorch_qnn.py run MODEL.pte OUT CALL...     runs calls in order on one method of ExecuTorch's runtime, and writes OUT_0.npz... (output_0...)
"""

import sys

import numpy as np
import torch

METHOD = "forward"
POSITIONS = [0, 3, 1, 6]


class Cached(torch.nn.Module):
    """Scores of a query against the keys so far, whose cache [1, 2, 8, 4] gets one row in each call."""

    def __init__(self):
        super().__init__()
        self.register_buffer("k_cache", torch.zeros(1, 2, 8, 4))
        self.project = torch.nn.Linear(4, 4)

    def forward(self, position, q, k):
        keys = torch.ops.aten.index_put_(self.k_cache, [None, None, position], self.project(k))
        return q @ keys.transpose(2, 3), keys + 0


def calls():
    generator = torch.Generator().manual_seed(5)
    rand = lambda *shape: torch.rand(*shape, generator=generator) * 2 - 1  # noqa: E731
    return [(torch.tensor([p]), rand(1, 2, 1, 4), rand(1, 2, 1, 4)) for p in POSITIONS]


def export(scheme, pte, prefix):
    from executorch.backends.qualcomm.quantizer.quantizer import QnnQuantizer, QuantDtype
    from executorch.backends.qualcomm.serialization.qc_schema import QcomChipset
    from executorch.backends.qualcomm.utils.utils import (
        generate_htp_compiler_spec,
        generate_qnn_executorch_compiler_spec,
        to_edge_transform_and_lower_to_qnn,
    )
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    torch.manual_seed(3)
    model, inputs = Cached().eval().requires_grad_(False), calls()
    for i, call in enumerate(inputs):
        np.savez(f"{prefix}_{i}.npz", **{f"input_{k}": t.numpy() for k, t in enumerate(call)})
    if scheme != "fp16":
        quantizer = QnnQuantizer(soc_model=QcomChipset.SM8650)
        quantizer.set_default_quant_config(getattr(QuantDtype, f"use_{scheme}"))
        prepared = prepare_pt2e(torch.export.export(model, inputs[0], strict=True).module(), quantizer)
        for call in inputs:
            prepared(*call)
        model = convert_pt2e(prepared)
        model.k_cache.zero_()
    specs = generate_qnn_executorch_compiler_spec(soc_model=QcomChipset.SM8650, backend_options=generate_htp_compiler_spec(use_fp16=scheme == "fp16"))
    program = to_edge_transform_and_lower_to_qnn(model, inputs[0], specs).to_executorch()
    with open(pte, "wb") as file:
        file.write(program.buffer)


def run(pte, prefix, files):
    from executorch.runtime import Runtime

    method = Runtime.get().load_program(pte).load_method(METHOD)
    for i, file in enumerate(files):
        arrays = np.load(file)
        outputs = method.execute([torch.from_numpy(arrays[name]) for name in arrays.files])
        np.savez(f"{prefix}_{i}.npz", **{f"output_{k}": t.numpy() for k, t in enumerate(outputs)})


if __name__ == "__main__":
    if sys.argv[1] == "export":
        export(*sys.argv[2:5])
    else:
        run(sys.argv[2], sys.argv[3], sys.argv[4:])
