"""Rounding, signs, division that rounds, running sums and resampling."""
import torch

from cases_elementwise import F, I, SHAPES, SPECIAL, extremes, make

ROUNDED = ("floor", "ceil", "round", "trunc")


def record_unary(r):
    halves = torch.tensor([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.49999997, 8388609.0, -1e20])
    for name in (*ROUNDED, "sign"):
        fn = getattr(torch, name)
        for dtype in F:
            for x in (make([3, 5], dtype), make([], dtype), make([0, 2], dtype), torch.tensor(SPECIAL, dtype=dtype), halves.to(dtype)):
                r.sample(name, [x], fn(x))
        for dtype in I:
            r.sample(name, [extremes(dtype)], fn(extremes(dtype)))
        r.sample(name, [make([2], torch.bool)], error="invalid argument")
    for dtype in F:
        for x in (make([3, 5], dtype), make([], dtype), make([0, 2], dtype), torch.tensor(SPECIAL, dtype=dtype)):
            r.sample("erf", [x], torch.erf(x))
    for dtype in I + [torch.bool]:
        x = make([2, 3], dtype, 0, 3)
        r.sample("erf", [x], torch.erf(x))


def record_binary(r):
    for name, fn in (("floor_divide", torch.floor_divide), ("remainder", torch.remainder)):
        for a_shape, b_shape in SHAPES:
            a, b = make(a_shape), make(b_shape)
            r.sample(name, [a, b], fn(a, b), tolerance=1e-5)
        special = torch.tensor(SPECIAL)
        r.sample(name, [special, special.reshape(-1, 1)], fn(special, special.reshape(-1, 1)))
        for dtype in F:
            a, b = torch.tensor([-7, -6, -0.5, 0.5, 6, 7.5], dtype=dtype), torch.tensor([[3], [-3], [0.5], [-2.5]], dtype=dtype)
            r.sample(name, [a, b], fn(a, b))
        # Quotients that round up to an integer.
        a, b = torch.tensor([1.0, -1.0, 0.3, 6.0], dtype=torch.float64), torch.tensor([0.1, 0.1, 0.1, 0.2], dtype=torch.float64)
        r.sample(name, [a, b], fn(a, b))
        r.sample(name, [a.float(), b.float()], fn(a.float(), b.float()), tolerance=1e-5)
        for dtype in I:
            low = torch.iinfo(dtype).min
            a, b = torch.tensor([low, 7, 6, 0, torch.iinfo(dtype).max], dtype=dtype), torch.tensor([[3], [1], [5]], dtype=dtype)
            r.sample(name, [a, b], fn(a, b))
            if low < 0:
                r.sample(name, [-a, b], fn(-a, b))
                r.sample(name, [a, -b], fn(a, -b))
            r.sample(name, [a, torch.zeros([1], dtype=dtype)], error="invalid argument")
        for x, y in ((torch.float32, torch.int64), (torch.int32, torch.float16), (torch.int32, torch.int64), (torch.uint8, torch.int8)):
            for a, b in ((make([3], x, 1, 9), make([3], y, 2, 4)), (make([3], x, 1, 9), make([], y, 2, 4))):
                r.sample(name, [a, b], fn(a, b), tolerance=1e-5 if torch.float32 in (x, y) else None)
        r.sample(name, [make([0]), make([1])], fn(make([0]), make([1])))
        r.sample(name, [make([2], torch.bool), make([2], torch.bool)], error="invalid argument")
        r.sample(name, [make([2, 3]), make([2])], error="invalid argument")


def record_power(r):
    for a_shape, b_shape in SHAPES:
        a, b = make(a_shape).abs(), make(b_shape)
        r.sample("pow_tensor", [a, b], torch.pow(a, b), tolerance=1e-5)
    special = torch.tensor(SPECIAL)
    r.sample("pow_tensor", [special, special.reshape(-1, 1)], torch.pow(special, special.reshape(-1, 1)), tolerance=1e-5)
    for dtype in I:
        low = torch.iinfo(dtype).min
        a, b = torch.tensor([low, 7, 1, 0, torch.iinfo(dtype).max], dtype=dtype), torch.tensor([[0], [1], [5], [13]], dtype=dtype)
        r.sample("pow_tensor", [a, b], torch.pow(a, b))
        if low < 0:
            r.sample("pow_tensor", [-a, -b], torch.pow(-a, -b))
    for x, y in ((torch.float32, torch.int64), (torch.int32, torch.float16), (torch.int32, torch.int64), (torch.uint8, torch.int8)):
        for a, b in ((make([3], x, 1, 4), make([3], y, 1, 3)), (make([3], x, 1, 4), make([], y, 1, 3))):
            r.sample("pow_tensor", [a, b], torch.pow(a, b), tolerance=1e-5 if torch.float32 in (x, y) else None)
    r.sample("pow_tensor", [make([2], torch.bool), make([2], torch.bool)], error="invalid argument")
    r.sample("pow_tensor", [make([2, 3]), make([2])], error="invalid argument")


def record_cumsum(r):
    for dtype in F + I + [torch.bool]:
        for shape, dim in (([7], 0), ([3, 4, 2], 1), ([3, 4], -1), ([0, 3], 0)):
            x = make(shape, dtype, 1, 3)
            r.sample("cumsum", [x], torch.cumsum(x, dim), dim=dim)
    x = make([2, 3])
    r.sample("cumsum", [x], torch.cumsum(x, 0, dtype=torch.float64), dim=0, dtype=torch.float64)
    r.sample("cumsum", [torch.tensor(1.5)], torch.tensor(1.5), dim=0)
    r.sample("cumsum", [torch.tensor([1.0, float("inf"), -float("inf"), 2.0])], torch.tensor([1.0, float("inf"), float("nan"), float("nan")]), dim=0)
    r.sample("cumsum", [x], dim=2, error="invalid argument")


def record_upsample(r):
    def nearest(x, size, factors):
        r.sample("upsample_nearest2d", [x], torch.ops.aten.upsample_nearest2d.vec(x, size, factors), output_size=size, scale_factors=factors)

    # Neighbours of opposite signs cancel.
    def bilinear(x, size, align, factors, tolerance=1e-4):
        out = torch.ops.aten.upsample_bilinear2d.vec(x, size, align, factors)
        r.sample("upsample_bilinear2d", [x], out, output_size=size, align_corners=align, scale_factors=factors, tolerance=tolerance)

    targets = [([8, 10], None), ([7, 3], None), ([4, 5], None), ([1, 1], None), (None, [2.0, 2.0]), (None, [0.5, 1.7]), (None, [1.5, 3.0]), (None, [2.3, 0.6])]
    for size, factors in targets:
        x = make([2, 3, 4, 5])
        nearest(x, size, factors)
        for align in (False, True):
            bilinear(x, size, align, factors)
    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        x = make([1, 2, 3, 4], dtype)
        nearest(x, [5, 9], None)
        bilinear(x, [5, 9], False, None, {torch.float64: 1e-10, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}[dtype])
    x = make([1, 1, 1, 3])
    nearest(x, [4, 4], None)
    bilinear(x, [4, 4], True, None)
    bilinear(x, [4, 4], False, None)
    for name, more in (("upsample_nearest2d", {}), ("upsample_bilinear2d", dict(align_corners=False))):
        def refuse(x, size, factors):
            r.sample(name, [x], output_size=size, scale_factors=factors, error="invalid argument", **more)
        refuse(x, None, None)
        refuse(x, [2, 2], [2.0, 2.0])
        refuse(x, [2], None)
        refuse(x, [0, 2], None)
        refuse(x, None, [0.0, 1.0])
        refuse(x[0], [2, 2], None)
        refuse(x.int(), [2, 2], None)


def record_log1p(r):
    # Numbers whose sum with 1 loses digits or all of them; beside 0, -1 and infinity.
    small = torch.tensor([1e-3, -1e-3, 3e-6, -3e-6, 2e-8, -2e-8, 1e-20, 0.5, -0.5, 0.9999, 1.001, -0.75, 40.0, 1e6])
    for dtype in F:
        for x in (make([3, 5], dtype, -0.9, 4), make([], dtype, 0, 1), make([0, 2], dtype), torch.tensor(SPECIAL + [-2.0], dtype=dtype), small.to(dtype)):
            r.sample("log1p", [x], torch.log1p(x))
    for dtype in I + [torch.bool]:
        x = make([2, 3], dtype, 0, 3)
        r.sample("log1p", [x], torch.log1p(x))


def record(r):
    record_unary(r)
    record_binary(r)
    record_cumsum(r)
    record_upsample(r)
    record_log1p(r)
    record_power(r)
