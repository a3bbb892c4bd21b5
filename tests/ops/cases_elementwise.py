"""Samples of the elementwise, data movement and tensor-making operators, and of copy_."""
import torch

F = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
I = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
SPECIAL = [float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1.0, -1.0, 0.5, 2.0]
INT64_MAX = 2**63 - 1


def make(shape, dtype=torch.float32, low=-3, high=3):
    if dtype == torch.bool:
        return torch.rand(shape) > 0.5
    if dtype.is_floating_point:
        return (torch.rand(shape, dtype=torch.float64) * (high - low) + low).to(dtype)
    return torch.randint(0 if dtype == torch.uint8 else low, high + 1, shape).to(dtype)


def extremes(dtype):
    info = torch.iinfo(dtype)
    return torch.tensor([info.min, info.max, 0, 1, 2, info.max - 1], dtype=dtype)


def record_unary(r):
    real = dict(exp={}, log=dict(low=0.1), sqrt=dict(low=0), rsqrt=dict(low=0.1), reciprocal=dict(low=0.3), sin={}, cos={}, tanh={}, sigmoid={})
    for name, span in real.items():
        fn = getattr(torch, name)
        for dtype in F:
            for shape in ([2, 3], [], [0, 4], [3, 1, 5]):
                x = make(shape, dtype, **span)
                r.sample(name, [x], fn(x))
            x = torch.tensor(SPECIAL, dtype=dtype)
            r.sample(name, [x], fn(x))
        for dtype in I + [torch.bool]:
            x = make([2, 3], dtype, 1, 6)
            r.sample(name, [x], fn(x))
    for name in ("silu", "gelu"):
        fn = getattr(torch.nn.functional, name)
        for dtype in F:
            for shape in ([2, 7], [], [0]):
                x = make(shape, dtype)
                # 1 + erf(x) and 1 + tanh(x) cancel for negative x, in ours as in theirs.
                tolerance = 1e-5 if dtype == torch.float32 else None
                r.sample(name, [x], fn(x), tolerance=tolerance)
                if name == "gelu":
                    r.sample(name, [x], fn(x, approximate="tanh"), approximate="tanh", tolerance=tolerance)
            # Without infinities: for +inf PyTorch gives inf or NaN, depending on the width of its vectors.
            x = torch.tensor(SPECIAL[:1] + SPECIAL[3:], dtype=dtype)
            r.sample(name, [x], fn(x), tolerance=1e-5 if dtype == torch.float32 else None)
        r.sample(name, [make([2], torch.int32)], error="invalid argument")
    r.sample("gelu", [make([2])], error="invalid argument", approximate="quick")
    for name in ("abs", "neg", "relu"):
        fn = getattr(torch, name)
        for dtype in F:
            for x in (make([2, 3], dtype), make([], dtype), make([0], dtype), torch.tensor(SPECIAL, dtype=dtype)):
                r.sample(name, [x], fn(x))
        for dtype in I:
            r.sample(name, [extremes(dtype)], fn(extremes(dtype)))
        r.sample(name, [make([2], torch.bool)], error="invalid argument")
    for dtype in F + I:
        x = make([3, 4], dtype, 0, 9)
        if dtype != torch.uint8:
            r.sample("hardtanh", [x], torch.nn.functional.hardtanh(x))
        r.sample("hardtanh", [x], torch.nn.functional.hardtanh(x, 0, 6), min_val=0, max_val=6)
        for lo, hi in ((1, 4), (None, 3), (2, None), (5, 2), (1.5, 3.25), (None, 2.5)):
            r.sample("clamp", [x], torch.clamp(x, lo, hi), min=lo, max=hi)
    x = torch.tensor(SPECIAL)
    r.sample("hardtanh", [x], torch.nn.functional.hardtanh(x))
    r.sample("clamp", [x], torch.clamp(x, -0.25, 0.75), min=-0.25, max=0.75)
    r.sample("clamp", [x], torch.clamp(x, float("nan"), 1.0), min=float("nan"), max=1.0)
    r.sample("clamp", [make([0, 2])], make([0, 2]), min=0)
    r.sample("clamp", [x], error="invalid argument")
    for dtype in F + I + [torch.bool]:
        x = make([2, 5], dtype, -1, 1)
        r.sample("logical_not", [x], torch.logical_not(x))
        for to in F + I + [torch.bool]:
            x = make([7], dtype, -9, 9) if dtype.is_floating_point and to != torch.uint8 else make([7], dtype, 0, 9)
            r.sample("to_dtype", [x], x.to(to), out_dtype=to)
    x = torch.tensor([-1.5, -0.5, 0.5, 1.5, 2.5, 100.75])
    for to in I:
        r.sample("to_dtype", [x], x.to(to), out_dtype=to)
    r.sample("logical_not", [torch.tensor(SPECIAL)], torch.logical_not(torch.tensor(SPECIAL)))
    for to in (torch.bool, torch.float16, torch.bfloat16, torch.float64):
        r.sample("to_dtype", [torch.tensor(SPECIAL)], torch.tensor(SPECIAL).to(to), out_dtype=to)
    for to in (torch.int8, torch.int32, torch.bool, torch.float32):
        x = torch.tensor([2**40 + 5, -(2**33) + 200, 0, 2**24 + 1])
        r.sample("to_dtype", [x], x.to(to), out_dtype=to)
    # Halfway cases, overflow, and subnormals of the 16-bit floats.
    x = torch.tensor([1 + 2**-11, 1 + 3 * 2**-11, 1 + 2**-8, 65519.0, 65520.0, 1e-7, 6e-8, 3.5e38 / 1.03, -1e-40])
    for to in (torch.float16, torch.bfloat16):
        r.sample("to_dtype", [x], x.to(to), out_dtype=to)
    for t in (torch.uint16, torch.uint32):
        x = torch.tensor([0, 1, 60000], dtype=torch.int64).to(t)
        r.sample("to_dtype", [x], x.to(torch.float32), out_dtype=torch.float32)
        r.sample("to_dtype", [torch.tensor([0.0, 1.9, 60000.0])], torch.tensor([0.0, 1.9, 60000.0]).to(t), out_dtype=t)


SHAPES = [([2, 3], [2, 3]), ([2, 3], [3]), ([4, 1, 2], [3, 1]), ([], [2]), ([2], []), ([], []), ([0, 3], [3]), ([1], [0]), ([2, 1, 1, 3], [5, 1, 1])]


def record_binary(r):
    for name in ("add", "sub", "mul", "div", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or"):
        fn = getattr(torch, name)
        for a_shape, b_shape in SHAPES:
            a, b = make(a_shape), make(b_shape)
            r.sample(name, [a, b], fn(a, b))
        for dtype in F + I + [torch.bool]:
            if dtype == torch.bool and name == "sub":
                r.sample(name, [make([2], dtype), make([2], dtype)], error="invalid argument")
                continue
            a, b = make([6], dtype), make([2, 1], dtype)
            r.sample(name, [a, b], fn(a, b))
        for dtype in I:
            if name != "div":
                r.sample(name, [extremes(dtype), extremes(dtype).flip(0)], fn(extremes(dtype), extremes(dtype).flip(0)))
        a, b = torch.tensor(SPECIAL), torch.tensor(SPECIAL).reshape(-1, 1)
        r.sample(name, [a, b], fn(a, b))
        # Promotion, with a rank-0 operand of the same, a lower and a higher category.
        pairs = [(torch.float32, torch.int64), (torch.int32, torch.float16), (torch.float16, torch.bfloat16), (torch.float64, torch.float32),
                 (torch.uint8, torch.int8), (torch.int32, torch.int64), (torch.bool, torch.int16), (torch.bool, torch.float32)]
        for x, y in pairs:
            if name == "sub" and torch.bool in (x, y):
                continue
            for a, b in ((make([3], x), make([3], y)), (make([3], x), make([], y)), (make([], x), make([3], y))):
                r.sample(name, [a, b], fn(a, b))
        r.sample(name, [make([2, 3]), make([2])], error="invalid argument")
        if name in ("add", "sub"):
            for dtype, alpha in ((torch.float32, 2), (torch.float32, 0.5), (torch.int32, 3), (torch.float16, -2), (torch.int64, -1)):
                a, b = make([2, 3], dtype), make([3], dtype)
                r.sample(name, [a, b], fn(a, b, alpha=alpha), alpha=alpha)
    for dtype in F:
        for exponent in (2, 3, 0.5, -1, -0.5, 0, 1.7, -2):
            x = make([5], dtype, 0.2, 3)
            r.sample("pow", [x], torch.pow(x, exponent), exponent=exponent)
    x = torch.tensor(SPECIAL)
    for exponent in (2, 3, -1, 0, 1.5):
        r.sample("pow", [x], torch.pow(x, exponent), exponent=exponent)
    for dtype in I:
        for exponent in (0, 1, 2, 5, 2.5):
            x = make([5], dtype, 0, 9)
            r.sample("pow", [x], torch.pow(x, exponent), exponent=exponent)
    x = make([4], torch.bool)
    r.sample("pow", [x], torch.pow(x, 2), exponent=2)
    r.sample("pow", [make([2], torch.int32)], error="invalid argument", exponent=-1)
    for c, a, b in (([2, 3], [2, 3], [2, 3]), ([3], [2, 1], []), ([], [2], [3, 1]), ([0], [1], []), ([2, 1, 3], [4, 1], [1])):
        for dtype in [torch.float32, torch.int64, torch.bool, torch.float16]:
            condition, x, y = make(c, torch.bool), make(a, dtype), make(b, dtype)
            r.sample("where", [condition, x, y], torch.where(condition, x, y))
    condition, x, y = make([3], torch.bool), make([3], torch.int32), make([], torch.float32)
    r.sample("where", [condition, x, y], torch.where(condition, x, y))
    r.sample("where", [make([3]), x, x], error="invalid argument")


def record_movement(r):
    for from_shape, to in (([2, 3], [6]), ([2, 3], [-1]), ([4, 6], [2, -1, 3]), ([], [1, 1]), ([1], []), ([0, 3], [3, 0]), ([0, 3], [-1, 3]), ([2, 0], [0, 7])):
        for dtype in (torch.float32, torch.int8):
            x = make(from_shape, dtype)
            r.sample("view", [x], x.reshape(to), size=to)
    for from_shape, to in (([2, 3], [5]), ([2, 3], [4, -1]), ([2, 3], [-1, -1]), ([0, 3], [0, -1]), ([4], [-2, -2])):
        r.sample("view", [make(from_shape)], error="invalid argument", size=to)
    for shape, dims in (([2, 3], [1, 0]), ([2, 3, 4], [2, 0, 1]), ([2, 3, 4], [0, -1, 1]), ([2, 1, 3, 2], [3, 1, 0, 2]), ([], []), ([0, 3], [1, 0]), ([2, 3, 2], [0, 1, 2])):
        for dtype in (torch.float32, torch.bool, torch.float16, torch.int64):
            x = make(shape, dtype)
            r.sample("permute", [x], x.permute(dims), dims=dims)
    r.sample("permute", [make([2, 3])], error="invalid argument", dims=[0, 0])
    r.sample("permute", [make([2, 3])], error="invalid argument", dims=[0])
    r.sample("permute", [make([2, 3])], error="invalid argument", dims=[0, 2])
    for shape, to in (([1, 3], [2, 3]), ([3, 1], [3, 4]), ([2], [3, -1]), ([], [2, 2]), ([1, 2, 1], [4, 3, 2, 5]), ([1], [0]), ([3, 1], [-1, 2])):
        for dtype in (torch.float32, torch.uint8, torch.bfloat16):
            x = make(shape, dtype)
            r.sample("expand", [x], x.expand(to), size=to)
    r.sample("expand", [make([2, 3])], error="invalid argument", size=[4, 3])
    r.sample("expand", [make([2, 3])], error="invalid argument", size=[3])
    r.sample("expand", [make([3])], error="invalid argument", size=[-1, 3])
    slices = [dict(), dict(dim=1), dict(start=1), dict(end=2), dict(start=1, end=3), dict(start=-2), dict(end=-1), dict(start=3, end=1), dict(end=100),
              dict(start=-100, end=2), dict(start=100), dict(end=INT64_MAX), dict(step=2), dict(dim=1, start=1, end=5, step=3), dict(dim=-1, start=1, step=100),
              dict(start=0, end=INT64_MAX, step=INT64_MAX)]
    for s in slices:
        for shape, dtype in (([4, 5], torch.float32), ([4, 6, 2], torch.int16)):
            x = make(shape, dtype)
            r.sample("slice", [x], torch.ops.aten.slice.Tensor(x, s.get("dim", 0), s.get("start"), s.get("end"), min(s.get("step", 1), 100)), **s)
    r.sample("slice", [make([4])], error="invalid argument", step=0)
    r.sample("slice", [make([])], error="invalid argument")
    r.sample("slice", [make([4])], error="invalid argument", dim=1)
    for shapes, dim in (([[2, 3], [4, 3]], 0), ([[2, 3], [2, 1], [2, 2]], 1), ([[2, 3], [2, 3]], -1), ([[0], [2, 3]], 0), ([[2], [0], [3]], 0), ([[1, 2, 3], [1, 4, 3]], 1),
                        ([[2, 3]], 1), ([[0], [0]], 0), ([[2, 0, 2], [2, 3, 2]], 1)):
        for dtype in (torch.float32, torch.bool, torch.int64):
            xs = [make(s, dtype) for s in shapes]
            r.sample("cat", xs, torch.cat(xs, dim), dim=dim)
    for x, y in ((torch.int32, torch.float32), (torch.float16, torch.bfloat16), (torch.bool, torch.uint8)):
        xs = [make([2, 2], x), make([2, 3], y)]
        r.sample("cat", xs, torch.cat(xs, 1), dim=1)
    r.sample("cat", [make([2, 3]), make([2, 4])], error="invalid argument")
    r.sample("cat", [], error="invalid argument")
    for dtype in F + I + [torch.bool]:
        x = make([2, 3], dtype)
        r.sample("clone", [x], x)
        for shape, pad in (([3], [1, 2]), ([2, 3], [0, 1, 2, 0])):
            x = make(shape, dtype)
            r.sample("constant_pad_nd", [x], torch.constant_pad_nd(x, pad, 1), pad=pad, value=1)
    r.sample("clone", [make([0])], make([0]))
    for shape, pad in (([4, 5], [-1, 1]), ([4, 5], [-2, -2, 1, -1]), ([2, 3, 4], [1, 1, 0, 0, 2, 1]), ([0, 2], [1, 1, 1, 1]), ([3], [0, 0]), ([2, 2], []), ([2, 3], [-3, 2])):
        x = make(shape)
        r.sample("constant_pad_nd", [x], torch.constant_pad_nd(x, pad, -1.5), pad=pad, value=-1.5)
    x = make([3])
    r.sample("constant_pad_nd", [x], torch.constant_pad_nd(x, [1, 1], float("-inf")), pad=[1, 1], value=float("-inf"))
    r.sample("constant_pad_nd", [x], torch.constant_pad_nd(x, [1, 1]), pad=[1, 1])
    r.sample("constant_pad_nd", [x], error="invalid argument", pad=[-2, -2])
    r.sample("constant_pad_nd", [x], error="invalid argument", pad=[1])
    r.sample("constant_pad_nd", [x], error="invalid argument", pad=[1, 1, 1, 1])
    for shape, padding in (([2, 5], [2, 1]), ([1, 2, 4], [3, 3]), ([2, 3], [0, 2]), ([2, 3], [0, 0])):
        for dtype in (torch.float32, torch.float64):
            x = make(shape, dtype)
            r.sample("reflection_pad1d", [x], torch.ops.aten.reflection_pad1d(x, padding), padding=padding)
    r.sample("reflection_pad1d", [make([2, 3])], error="invalid argument", padding=[3, 0])
    r.sample("reflection_pad1d", [make([3])], error="invalid argument", padding=[1, 1])


def record_making(r):
    for size in ([2, 3], [], [0, 2]):
        for dtype in F + I + [torch.bool]:
            for value in (3, 1.5, True):
                r.sample("full", [], torch.full(size, value, dtype=dtype), size=size, fill_value=value, out_dtype=dtype)
    r.sample("full", [], torch.full([2], float("-inf")), size=[2], fill_value=float("-inf"), out_dtype=torch.float32)
    r.sample("full", [], torch.full([1], 2**53 + 1), size=[1], fill_value=2**53 + 1, out_dtype=torch.int64)
    r.sample("full", [], error="invalid argument", size=[-1], fill_value=0, out_dtype=torch.int64)
    for args in ((0, 5, 1), (2, 9, 3), (5, 0, -2), (3, 3, 1), (-4, 5, 2), (0, 7, 10)):
        for dtype in [torch.int64, torch.int32, torch.uint8 if min(args) >= 0 else torch.int16, torch.float32, torch.float64]:
            r.sample("arange", [], torch.arange(*args, dtype=dtype), start=args[0], end=args[1], step=args[2], out_dtype=dtype)
    for args in ((0.0, 2.0, 0.5), (1.0, 0.0, -0.25), (0, 1, 0.3), (0.5, 4, 1), (0.0, 1.0, 0.1)):
        for dtype in F:
            tolerance = 1e-2 if dtype == torch.bfloat16 else 2e-3 if dtype == torch.float16 else None
            r.sample("arange", [], torch.arange(*args, dtype=dtype), start=args[0], end=args[1], step=args[2], out_dtype=dtype, tolerance=tolerance)
    r.sample("arange", [], torch.arange(0.5, 4.9, 1.2, dtype=torch.int64), start=0.5, end=4.9, step=1.2, out_dtype=torch.int64)
    r.sample("arange", [], torch.arange(0.5, 4.9, 1.2, dtype=torch.int32), start=0.5, end=4.9, step=1.2, out_dtype=torch.int32)
    r.sample("arange", [], torch.arange(4), start=0, end=4, out_dtype=torch.int64)
    r.sample("arange", [], error="invalid argument", start=0, end=4, step=0, out_dtype=torch.int64)
    r.sample("arange", [], error="invalid argument", start=0, end=4, step=-1, out_dtype=torch.int64)


def record_copy(r):
    for shape, src in (([2, 3], [2, 3]), ([2, 3], [3]), ([2, 3], []), ([2, 2, 2], [2, 1, 2]), ([0, 2], [2]), ([], [])):
        for to, dtype in ((torch.float32, torch.float32), (torch.int8, torch.int8), (torch.float16, torch.float32), (torch.int32, torch.float32), (torch.float32, torch.bool)):
            x, y = make(shape, to), make(src, dtype)
            r.sample("copy_", [x, y], x.clone().copy_(y))
    r.sample("copy_", [make([2]), make([3])], error="invalid argument")
    r.sample("copy_", [make([2]), make([3, 2])], error="invalid argument")


def record(r):
    record_unary(r)
    record_binary(r)
    record_movement(r)
    record_making(r)
    record_copy(r)
