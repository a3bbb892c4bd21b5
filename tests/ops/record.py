"""Records samples of operators from PyTorch for src/ops/op_samples.h, which describes the files.

    python tests/ops/record.py [elementwise|algebra ...]

Each cases_NAME.py here has a function record(r) that calls r.sample(...); the result is samples_NAME.txt.
"""
import importlib
import math
import pathlib
import sys

import torch

DTYPES = {
    torch.bool: "bool", torch.uint8: "u8", torch.int8: "i8", torch.int16: "i16", torch.int32: "i32", torch.int64: "i64",
    torch.uint16: "u16", torch.uint32: "u32", torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32", torch.float64: "f64",
}


def tensor_text(t):
    if t is None:
        return "none"
    t = t.detach().contiguous()
    data = bytes(t.reshape(-1).view(torch.uint8).tolist()).hex() if t.numel() else "-"
    return f"{DTYPES[t.dtype]}[{','.join(map(str, t.shape))}] {data}"


def attr_text(v):
    if v is None:
        return "none"
    if isinstance(v, bool):
        return "true" if v else "false"
    if isinstance(v, float):
        return "nan" if math.isnan(v) else repr(v)
    if isinstance(v, str):
        return f'"{v}"'
    if isinstance(v, torch.dtype):
        return DTYPES[v]
    if isinstance(v, (list, tuple)):
        return "[" + ",".join(attr_text(e) for e in v) + "]"
    return str(v)


class Recorder:
    def __init__(self):
        self.lines = []

    def sample(self, op, inputs, outputs=None, *, tolerance=None, error=None, **attrs):
        """inputs: tensors or None in schema order, lists of tensors spread out; outputs: a tensor or a tuple; attrs: arguments by
        their names in the schema; error: the name of a code ("out of range") instead of outputs. Tensors are recorded as they are
        when this is called."""
        self.lines.append(f"op {op}")
        self.lines += [f"i {tensor_text(t)}" for t in inputs]
        self.lines += [f"a {k} {attr_text(v)}" for k, v in attrs.items()]
        if tolerance is not None:
            self.lines.append(f"t {tolerance}")
        if error is not None:
            self.lines.append(f"x {error}")
        else:
            outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
            self.lines += [f"o {tensor_text(t)}" for t in outputs]


def main(names):
    here = pathlib.Path(__file__).parent
    sys.path.insert(0, str(here))
    for name in names or sorted(p.stem.removeprefix("cases_") for p in here.glob("cases_*.py")):
        torch.manual_seed(0)
        recorder = Recorder()
        importlib.import_module(f"cases_{name}").record(recorder)
        path = here / f"samples_{name}.txt"
        path.write_text("\n".join(recorder.lines) + "\n")
        print(f"{path}: {sum(line.startswith('op ') for line in recorder.lines)} samples, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
