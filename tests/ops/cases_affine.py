"""Quantization with a scale for each block, as quantized_decomposed and torchao have it. Needs the package torchao."""
import torch
import torchao  # noqa: F401: registers torch.ops.torchao
import torch.ao.quantization.fx._decomposed  # noqa: F401: registers torch.ops.quantized_decomposed

AO, QD = torch.ops.torchao, torch.ops.quantized_decomposed
MAPPINGS = {"asymmetric": "ASYMMETRIC", "symmetric": "SYMMETRIC", "symmetric_no_clipping_err": "SYMMETRIC_NO_CLIPPING_ERR"}


def rows(*shape):
    x = torch.randn(shape) * 3
    x[0] = 0
    if shape[0] > 2:
        x[1], x[2] = x[1].abs() + 1, -x[2].abs() - 1  # ranges that 0 must widen
    return x


def grid(x, block):
    return [s // b for s, b in zip(x.shape, block)]


def choose(r, x, block, mapping, low=-128, high=127, eps=1.1920928955078125e-07):
    scale, zero_point = AO.choose_qparams_affine(x, MAPPINGS[mapping], block, torch.int8, low, high, eps, torch.float32, torch.int32)
    out = scale.reshape(grid(x, block)), zero_point.reshape(grid(x, block))
    r.sample("choose_qparams_affine", [x], out, block_size=block, mapping_type=mapping, quant_min=low, quant_max=high, eps=eps)
    return out


def record(r):
    for shape, block in [((4, 6), [1, 6]), ((4, 6), [4, 6]), ((2, 3, 8), [1, 1, 8]), ((3, 8), [1, 4]), ((3, 4, 2), [1, 4, 2])]:
        x = rows(*shape)
        for mapping in MAPPINGS:
            scale, zero_point = choose(r, x, block, mapping)
            q = AO.quantize_affine(x, block, scale, zero_point, torch.int8, -128, 127)
            r.sample("quantize_affine", [x, scale, zero_point], q, block_size=block, quant_min=-128, quant_max=127, out_dtype=torch.int8)
            y = AO.dequantize_affine(q, block, scale, zero_point, torch.int8, -128, 127)
            r.sample("dequantize_affine", [q, scale, zero_point], y, block_size=block)
    x = rows(3, 5)
    choose(r, x, [1, 5], "symmetric", -8, 7)
    scale, zero_point = QD.choose_qparams.tensor(x, -128, 127, 2.0**-12, torch.int8)
    r.sample("choose_qparams_affine", [x], (scale.float().reshape(1, 1), zero_point.int().reshape(1, 1)), block_size=[3, 5], mapping_type="asymmetric",
             quant_min=-128, quant_max=127, eps=2.0**-12)
    q = QD.quantize_per_tensor.tensor(x, scale, zero_point, -128, 127, torch.int8)
    r.sample("quantize_affine", [x, scale, zero_point], q, block_size=[3, 5], quant_min=-128, quant_max=127, out_dtype=torch.int8)
    r.sample("dequantize_affine", [q, scale, zero_point], QD.dequantize_per_tensor.tensor(q, scale, zero_point, -128, 127, torch.int8), block_size=[3, 5])
    scale, zero_point = QD._choose_qparams_per_token_asymmetric_impl(x, torch.int8)
    r.sample("choose_qparams_affine", [x], (scale.float(), zero_point.int()), block_size=[1, 5], mapping_type="asymmetric_least_error", quant_min=-128,
             quant_max=127, eps=1.1920928955078125e-07)
    q = torch.randint(-128, 128, (2, 3, 4), dtype=torch.int8)
    for axis in (0, 1):
        scale, zero_point = torch.rand(q.shape[axis]) + 0.1, torch.randint(-9, 9, (q.shape[axis],))
        block = [1 if d == axis else s for d, s in enumerate(q.shape)]
        y = QD.dequantize_per_channel(q, scale, zero_point, axis, -128, 127, torch.int8)
        r.sample("dequantize_affine", [q, scale, zero_point], y, block_size=block)
        y = QD.dequantize_per_channel(q, scale, None, axis, -128, 127, torch.int8)
        r.sample("dequantize_affine", [q, scale, None], y, block_size=block)
        x = torch.randn(q.shape) * 20
        r.sample("quantize_affine", [x, scale, zero_point], QD.quantize_per_channel(x, scale, zero_point, axis, -100, 90, torch.int8), block_size=block,
                 quant_min=-100, quant_max=90, out_dtype=torch.int8)
    u = torch.randint(0, 256, (5,), dtype=torch.uint8)
    r.sample("dequantize_affine", [u, torch.tensor(0.5), torch.tensor(128)], (u.float() - 128) * 0.5, block_size=[5])
    r.sample("dequantize_affine", [u, torch.rand(2), None], error="invalid argument", block_size=[1])
    r.sample("dequantize_affine", [u, torch.rand(5), None], error="invalid argument", block_size=[2])
    r.sample("dequantize_affine", [u, torch.rand(5), torch.rand(5)], error="invalid argument", block_size=[1])
    r.sample("quantize_affine", [torch.rand(4), torch.tensor(1.0), None], error="invalid argument", block_size=[4], quant_min=-129, quant_max=127,
             out_dtype=torch.int8)
    r.sample("choose_qparams_affine", [torch.rand(4)], error="invalid argument", block_size=[4], mapping_type="none", quant_min=-128, quant_max=127, eps=0.0)
    r.sample("choose_qparams_affine", [torch.rand(4)], error="invalid argument", block_size=[4], mapping_type="symmetric", quant_min=1, quant_max=1, eps=0.0)
