"""Quantized operators. Results are formulas in float64 or integers, except where an operator is defined in f32."""
import numpy as np
import torch
import torch.nn.functional as F

from cases_algebra import ints, rand

LIMITS = {torch.int8: (-128, 127), torch.uint8: (0, 255), torch.int16: (-32768, 32767), torch.int32: (-2**31, 2**31 - 1)}


def quantized(x, scale, zero_point, dtype=torch.int8):
    q = torch.round(x.double() / float(np.float32(scale))) + zero_point
    return torch.where(q.isnan(), float(zero_point), q).clamp(*LIMITS[dtype]).to(dtype)


def elementwise(r):
    x = torch.tensor([0.0, -0.0, 0.25, 0.75, -0.25, -0.75, 1.25, 100.0, -100.0, 63.3, 1e30, -1e30, float("inf"), float("-inf"), float("nan")])
    for dtype, zero_point in [(torch.int8, 0), (torch.int8, -3), (torch.int8, 127), (torch.uint8, 128), (torch.uint8, 0), (torch.int16, -5), (torch.int32, 7)]:
        r.sample("quantize", [x], quantized(x, 0.5, zero_point, dtype), scale=0.5, zero_point=zero_point, out_dtype=dtype)
    y = rand(2, 3, 9)
    for t in (y, torch.tensor(-0.7), rand(0, 3)):
        r.sample("quantize", [t], quantized(t, 0.013, -11), scale=0.013, zero_point=-11, out_dtype=torch.int8)
    r.sample("quantize", [y.double()], error="invalid argument", scale=0.5, zero_point=0, out_dtype=torch.int8)
    r.sample("quantize", [y], error="invalid argument", scale=0.0, zero_point=0, out_dtype=torch.int8)
    r.sample("quantize", [y], error="invalid argument", scale=0.5, zero_point=128, out_dtype=torch.int8)
    r.sample("quantize", [y], error="invalid argument", scale=0.5, zero_point=0, out_dtype=torch.float32)

    for dtype, (low, high) in LIMITS.items():
        q = torch.tensor([low, high, 0, 1, 5], dtype=dtype) if dtype != torch.int32 else torch.tensor([-70000, 1000000, 0, 1, 5], dtype=dtype)
        for zero_point in (0, 3):
            r.sample("dequantize", [q], ((q.double() - zero_point) * float(np.float32(0.1))).float(), scale=0.1, zero_point=zero_point)
    q = ints(127, 2, 3, 5, low=-128, dtype=torch.int8)
    r.sample("dequantize", [q], (q.double() + 4).float() * 0.25, scale=0.25, zero_point=-4)
    r.sample("dequantize", [ints(9, 0, dtype=torch.int8)], torch.zeros(0), scale=0.25, zero_point=0)
    r.sample("dequantize", [y], error="invalid argument", scale=0.25, zero_point=0)


def dynamic_rows(x, row_dims=1):
    """XNNPACK's qd8, computed in f32: the range holds 0 and has 255 steps."""
    f = np.float32
    lead = x.shape[: x.dim() - row_dims]
    rows = x.detach().numpy().reshape(int(np.prod(lead)), int(np.prod(x.shape[x.dim() - row_dims :])))
    q, scales, zero_points = np.zeros(rows.shape, np.int8), np.zeros(len(rows), np.float32), np.zeros(len(rows), np.int32)
    for i, row in enumerate(rows):
        low, high = min(f(0), row.min(initial=0)), max(f(0), row.max(initial=0))
        inverse = f(255) / f(high - low) if high != low else f(1)
        from_low, from_high = f(-128) + f(low * inverse), f(127) + f(high * inverse)
        zero_point = f(-128) - f(low * inverse) if f(from_low + from_high) > 0 else f(127) - f(high * inverse)
        zero_points[i] = np.rint(np.clip(zero_point, -128, 127))
        scales[i] = f(1) / inverse
        q[i] = np.clip(np.rint(row.astype(np.float64) / np.float64(scales[i])) + zero_points[i], -128, 127)
    return tuple(torch.from_numpy(t).reshape(s) for t, s in ((q, x.shape), (scales, lead), (zero_points, lead)))


def dynamic(r):
    x = rand(6, 9)
    x[0] = 0
    x[1] = 2.5
    x[2] = -0.125
    x[3] = x[3].abs()
    x[4] = -x[4].abs()
    for t in (x, rand(7), rand(2, 3, 17) * 40, rand(1, 1, 64) * 1e-3, rand(0, 5), rand(3, 0), rand(4, 1),
              torch.tensor([[1e30, -2e30, 5.0], [1e-30, -1e-30, 3e-31], [1.0, 2.0, 3.0]])):
        r.sample("quantize_dynamic", [t], dynamic_rows(t), tolerance=0)
    for dims in (1, 2, 3):
        t = rand(2, 3, 4) + 0.5
        r.sample("quantize_dynamic", [t], dynamic_rows(t, dims), tolerance=0, num_nonbatch_dims=dims)
    for dims in (0, 3):
        r.sample("quantize_dynamic", [rand(2, 3)], error="invalid argument", num_nonbatch_dims=dims)
    r.sample("quantize_dynamic", [rand(2, 3).half()], error="invalid argument")


def bytes_of(w):
    """i8 weights with their scales, as the operators take them, and their values."""
    q = ints(128, *w, low=-127, dtype=torch.int8)
    scale = torch.rand(w[0]) * 0.05 + 0.001
    return q, scale, q.double() * scale.double().reshape(-1, *[1] * (len(w) - 1))


def nibbles_of(rows, columns, block):
    q = ints(16, rows, columns)
    pairs = q.reshape(rows, columns // 2, 2)
    packed = (pairs[..., 0] + pairs[..., 1] * 16).to(torch.uint8)
    scale = (torch.rand(rows, columns // block) * 0.05 + 0.001).bfloat16()
    return packed, scale, (q - 8).double() * scale.double().repeat_interleave(block, 1)


def inputs_of(x, row_dims=1):
    """The operands and the value of an f32 input, and of the same as dynamic rows."""
    q, scale, zero_point = dynamic_rows(x, row_dims)
    spread = lambda t: t.double().reshape(*t.shape, *[1] * row_dims)
    return ([x, None, None], x.double()), ([q, scale, zero_point], (q.double() - spread(zero_point)) * spread(scale))


def linears(r):
    def linear(shape, weight, bias=True):
        packed, scale, values = weight
        b = rand(packed.shape[0]) if bias else None
        for operands, x in inputs_of(rand(*shape)):
            out = F.linear(x, values, b if b is None else b.double()).float()
            r.sample("quantized_linear", [*operands, packed, scale, b], out, tolerance=3e-6)

    linear((2, 7), bytes_of((3, 7)))
    linear((5,), bytes_of((4, 5)), bias=False)
    linear((2, 1, 33), bytes_of((6, 33)))
    linear((1, 2, 3, 16), bytes_of((5, 16)), bias=False)
    linear((0, 8), bytes_of((3, 8)))
    linear((2, 0), bytes_of((3, 0)))
    linear((1, 64), nibbles_of(5, 64, 32))
    linear((32,), nibbles_of(9, 32, 32), bias=False)
    linear((2, 3, 128), nibbles_of(4, 128, 64), bias=False)
    linear((1, 1, 2, 64), nibbles_of(3, 64, 64))
    linear((3, 12), nibbles_of(3, 12, 6))
    linear((3, 6), nibbles_of(2, 6, 3))
    linear((0, 32), nibbles_of(3, 32, 32))
    x, (packed, scale, _) = rand(2, 64), nibbles_of(3, 64, 32)
    plain, rows = inputs_of(x)
    for bad in ([x, *rows[0][1:], packed, scale, None], [rows[0][0], None, None, packed, scale, None], [x, None, None, packed, scale.float(), None],
                [x[:, :32], None, None, packed, scale, None], [x, None, None, packed, scale, rand(4)], [x, None, None, packed[:2], scale, None]):
        r.sample("quantized_linear", bad, error="invalid argument")


def convolutions(r):
    def conv(shape, weight, bias=True, stride=1, padding=0, dilation=1, transposed=False, output_padding=0, groups=1):
        spatial = len(shape) - 2
        many = lambda v: list(v) if isinstance(v, (list, tuple)) else [v] * spatial
        args = dict(stride=many(stride), padding=many(padding), dilation=many(dilation), transposed=transposed,
                    output_padding=many(output_padding), groups=groups)
        channels = weight[1] if transposed else weight[0]
        q, scale = ints(128, *weight, low=-127, dtype=torch.int8), torch.rand(channels) * 0.05 + 0.001
        values = q.double() * (scale.double().reshape(1, -1, *[1] * spatial) if transposed else scale.double().reshape(-1, *[1] * (spatial + 1)))
        b = rand(channels) if bias else None
        for operands, x in inputs_of(rand(*shape), len(shape) - 1):
            out = torch.ops.aten.convolution(x, values, b if b is None else b.double(), *args.values()).float()
            r.sample("quantized_convolution", [*operands, q, scale, b], out, tolerance=3e-6, **args)

    conv((1, 3, 6, 5), (4, 3, 3, 3))
    conv((2, 2, 5, 5), (3, 2, 1, 1), bias=False)
    conv((2, 3, 8, 7), (2, 3, 3, 2), stride=(2, 1), padding=(1, 0))
    conv((1, 2, 9, 9), (2, 2, 3, 3), dilation=(2, 3), padding=2)
    conv((2, 4, 6, 6), (4, 1, 3, 3), groups=4, padding=1)
    conv((1, 4, 5, 5), (6, 2, 3, 3), groups=2, stride=2, padding=1)
    conv((2, 3, 10), (4, 3, 3), padding=1)
    conv((1, 4, 9), (4, 1, 5), groups=4, stride=2, bias=False)
    conv((1, 3, 4, 5), (3, 2, 3, 2), transposed=True, stride=2, padding=1, output_padding=1)
    conv((2, 2, 6), (2, 3, 4), transposed=True, stride=3)
    conv((0, 2, 5), (3, 2, 2))
    one = dict(stride=[1], padding=[0], dilation=[1], transposed=False, output_padding=[0], groups=1)
    (operands, _), (rows, _) = inputs_of(rand(2, 3, 7), 2)
    q, scale = ints(128, 4, 3, 3, dtype=torch.int8), torch.rand(4)
    for bad in ([*operands, q, scale[:3], None], [rows[0], None, None, q, scale, None], [operands[0], *rows[1:], q, scale, None],
                [*operands, q.float(), scale, None]):
        r.sample("quantized_convolution", bad, error="invalid argument", **one)


def embeddings(r):
    for packed, scale, values in (bytes_of((7, 5)), nibbles_of(6, 32, 32), nibbles_of(5, 128, 64), nibbles_of(5, 6, 3)):
        for i in (ints(5, 4), ints(5, 2, 3, dtype=torch.int32), ints(5, 0), torch.tensor(2)):
            r.sample("quantized_embedding", [packed, scale, i], values[i.long()].float())
        for bad in (-1, len(packed)):
            r.sample("quantized_embedding", [packed, scale, torch.tensor([1, bad])], error="out of range")
        r.sample("quantized_embedding", [packed, scale, rand(2)], error="invalid argument")


def record(r):
    elementwise(r)
    dynamic(r)
    linears(r)
    convolutions(r)
    embeddings(r)
    numbers = torch.tensor([0.0, -1.5, 3.25])
    r.sample("requantize", [numbers], numbers)
    r.sample("requantize", [torch.tensor([3])], error="invalid argument")
