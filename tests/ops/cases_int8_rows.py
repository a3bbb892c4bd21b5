"""Rows of int8 with a scale each (int8 states), and attention over them."""
import torch


def quantize(x):
    scale = x.abs().nan_to_num(0.0, posinf=float("inf")).amax(-1, keepdim=True) / 127
    bits = scale.view(torch.int32)
    rounded = (bits + 0x7F + ((bits >> 8) & 1)) & ~0xFF  # 16 significant bits, ties to even
    scale = torch.where(scale < torch.finfo(torch.float32).tiny, 0, rounded.view(torch.float32))
    q = torch.where(scale > 0, x.double() / scale.double(), 0).round().clamp(-127, 127)
    return q.nan_to_num(0.0).to(torch.int8), scale


def rows(r):
    ramp = torch.linspace(-1, 1, 24).reshape(2, 3, 4)
    ties = torch.tensor([[127.0, 0.5, 1.5, 2.5, -0.5, -1.5, -127.0, 126.5]])
    odd = torch.tensor([[0.0, 0.0], [-0.0, 1e-38], [float("nan"), 2.0], [float("inf"), 1.0], [1e38, -3e38], [float("nan"), float("nan")]])
    for x in (torch.randn(3, 16), ramp, torch.randn(7), torch.randn(2, 3, 33) * 1e4, ties, odd, torch.zeros(0, 4), torch.randn(4, 1)):
        q, scale = quantize(x)
        r.sample("quantize_rows", [x], (q, scale))
        r.sample("dequantize_rows", [q, scale], q.float() * scale)
        again = quantize(q.float() * scale)
        if x is not odd:
            assert (again[0] == q).all() and (again[1] == scale).all()
    r.sample("dequantize_rows", [torch.tensor([[1, -128, 127]], dtype=torch.int8), torch.tensor([[0.5]])], torch.tensor([[0.5, -64.0, 63.5]]))
    r.sample("quantize_rows", [torch.randn(2, 3).double()], error="invalid argument")
    r.sample("quantize_rows", [torch.tensor(1.0)], error="invalid argument")
    q, scale = quantize(torch.randn(2, 3))
    r.sample("dequantize_rows", [q, scale[0]], error="invalid argument")
    r.sample("dequantize_rows", [q.int(), scale], error="invalid argument")


def attention(r):
    def attend(batch, heads, kv_heads, s, t, width, value_width=None, mask=None, positions=None, is_causal=False, scale=None, query_by_row=False, keys_by_row=False, **error):
        lead = [] if batch is None else [batch]
        q = torch.randn(*lead, heads, s, width)
        k, ks = quantize(torch.randn(*lead, kv_heads, t, width))
        v, vs = quantize(torch.randn(*lead, kv_heads, t, value_width or width))
        kd, vd = (k.double() * ks).repeat_interleave(heads // kv_heads, -3), (v.double() * vs).repeat_interleave(heads // kv_heads, -3)
        scores = q.double() @ kd.transpose(-1, -2) * (width ** -0.5 if scale is None else scale)
        allowed = torch.ones(s, t, dtype=torch.bool)
        if is_causal:
            allowed = allowed.tril()
        if positions is not None:
            allowed = allowed & (torch.arange(t) <= positions[:, None])
        if mask is not None and mask.dtype == torch.bool:
            allowed = allowed & mask
        elif mask is not None:
            scores = scores + mask.double()
        out = (torch.softmax(scores.masked_fill(~allowed, float("-inf")), -1).nan_to_num(0.0) @ vd).float()
        args = dict(is_causal=is_causal) if scale is None else dict(is_causal=is_causal, scale=scale)
        if query_by_row:
            q, out, args["query_by_row"] = q.transpose(-3, -2), out.transpose(-3, -2), True
        if keys_by_row:
            k, v, ks, vs = (x.transpose(-3, -2) for x in (k, v, ks, vs))
            args["keys_by_row"] = True
        if error:
            r.sample("quantized_attention", [q, k, v, ks, vs, mask, positions], **error, **args)
        else:
            r.sample("quantized_attention", [q, k, v, ks, vs, mask, positions], out, tolerance=2e-6, **args)

    attend(1, 2, 2, 3, 5, 4)
    attend(2, 4, 2, 3, 3, 4, is_causal=True)
    attend(1, 3, 1, 4, 6, 5, 3, is_causal=True, scale=0.7)
    attend(1, 4, 2, 2, 9, 8, positions=torch.tensor([3, 4]))
    attend(None, 2, 1, 3, 4, 6)
    attend(2, 2, 1, 3, 5, 4, mask=torch.randn(2, 1, 3, 5) > 0.5)
    attend(1, 2, 1, 3, 5, 4, mask=torch.randn(1, 2, 3, 5))
    attend(1, 2, 2, 3, 8, 4, mask=torch.randn(3, 8) > -0.5, positions=torch.tensor([2, 5, 7]))
    attend(1, 1, 1, 2, 0, 4)
    attend(1, 2, 2, 2, 4, 4, positions=torch.tensor([-1, 0]), error="out of range")
    q = torch.randn(1, 2, 2, 4)
    k, ks = quantize(torch.randn(1, 2, 4, 4))
    for operands in ([q, k, k, ks[..., 0], ks], [q, k.int(), k, ks, ks], [q, k, k.float(), ks, ks], [q, k, k[:, :, :3], ks, ks[:, :, :3]],
                     [q[..., :3], k, k, ks, ks], [q, k, k, ks, ks.double()]):
        r.sample("quantized_attention", [*operands, None, None], error="invalid argument")
    r.sample("quantized_attention", [q, k, k, ks, ks, torch.randn(2, 3), None], error="invalid argument")
    r.sample("quantized_attention", [q, k, k, ks, ks, None, torch.tensor([1])], error="invalid argument")
    for by_row in (dict(query_by_row=True), dict(keys_by_row=True), dict(query_by_row=True, keys_by_row=True)):
        attend(2, 4, 2, 3, 5, 4, mask=torch.randn(2, 1, 3, 5) > -0.5, **by_row)
        attend(None, 2, 1, 3, 4, 6, 2, positions=torch.tensor([1, 2, 3]), **by_row)
    r.sample("quantized_attention", [q, k[:, :, :3], k[:, :, :3], ks[:, :, :3], ks[:, :, :3], None, None], error="invalid argument", keys_by_row=True)


def record(r):
    rows(r)
    attention(r)
