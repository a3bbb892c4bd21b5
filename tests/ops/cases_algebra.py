"""Indexing, reductions, linear algebra, convolution, pooling and the fused operators."""
import itertools

import torch
import torch.nn.functional as F


def rand(*shape, dtype=torch.float32):
    return torch.randn(shape).to(dtype)


def ints(high, *shape, low=0, dtype=torch.int64):
    return torch.randint(low, high, shape, dtype=dtype)


def indexing(r):
    w = rand(7, 3)
    for i in (ints(7, 4), ints(7, 2, 3, dtype=torch.int32), ints(7, 0), torch.tensor(5)):
        r.sample("embedding", [w, i], F.embedding(i, w))
    for dtype in (torch.bfloat16, torch.int8):
        v = (w * 10).to(dtype)
        i = ints(7, 5)
        r.sample("embedding", [v, i], v[i], padding_idx=2)
    r.sample("embedding", [w, torch.tensor([0, 7])], error="out of range")
    r.sample("embedding", [w, torch.tensor([-1])], error="out of range")

    def index(self, *indices):
        # Not self[...]: Python's indexing takes a tensor of rank 0 for a number.
        r.sample("index", [self, *indices], torch.ops.aten.index(self, [i if i is None else i.long() for i in indices]))

    x = rand(4, 5, 3, 2)
    index(x, ints(4, 6, low=-4))
    index(x, None, ints(5, 2, 3, low=-5))
    index(x, ints(4, 3, 1), ints(5, 2))                         # side by side, broadcast
    index(x, None, ints(5, 2, low=-5), ints(3, 2), None)        # side by side, in the middle
    index(x, ints(4, 2), None, ints(3, 2))                      # apart: in front
    index(x, None, ints(5, 2, 1), None, ints(2, 3))
    index(x, ints(4, 2), None, None, ints(2, 1))
    index(x, torch.tensor(-1))                                  # rank 0
    index(x, None, torch.tensor(2), None, torch.tensor([1, 0]))
    index(x, ints(4, 0))
    index(x, None, None, None, ints(2, 3, dtype=torch.int32))
    index(x, ints(4, 2), ints(5, 2), ints(3, 2), ints(2, 2))
    index(ints(100, 6), ints(6, 2, 2))
    index(rand(3, 4).bfloat16(), None, ints(4, 5))
    index(rand(3, 4) > 0, ints(3, 2))
    index(rand(0, 4), None, ints(4, 2))
    r.sample("index", [x, torch.tensor([0, 4])], error="out of range")
    r.sample("index", [x, None, torch.tensor([-6])], error="out of range")
    r.sample("index", [x, torch.tensor([True, False, True, False])], error="unsupported")
    r.sample("index", [x, ints(4, 2), ints(5, 3)], error="invalid argument")
    r.sample("index", [ints(4, 2), None, ints(2, 2)], error="invalid argument")

    for self, dim, i in [(x, 0, ints(4, 3)), (x, -1, ints(2, 3, dtype=torch.int32)), (x, 2, torch.tensor(1)), (x, 1, ints(5, 0)),
                         (torch.tensor(3.5), 0, torch.tensor([0])), (ints(9, 2, 3, dtype=torch.uint8), 1, ints(3, 4))]:
        r.sample("index_select", [self, i], torch.index_select(self, dim, i), dim=dim)
    r.sample("index_select", [x, torch.tensor([-1])], dim=0, error="out of range")
    r.sample("index_select", [x, torch.tensor([3])], dim=2, error="out of range")

    def index_put(self, indices, values, accumulate=False):
        out = torch.ops.aten.index_put(self, [i if i is None else i.long() for i in indices], values, accumulate)
        for op in ("index_put", "index_put_"):
            r.sample(op, [self, *indices, values], out, accumulate=accumulate)

    y = rand(4, 5, 3)
    index_put(y, [torch.tensor([2, -4])], rand(2, 5, 3))
    index_put(y, [None, torch.tensor([1, 4, -2])], rand(4, 3, 3))
    index_put(y, [None, torch.tensor([1, 4], dtype=torch.int32)], rand(1, 1, 3))
    index_put(y, [torch.tensor([1, 3]), None, torch.tensor([0, 2])], rand(2, 5))
    index_put(y, [torch.tensor([[1], [3]]), torch.tensor([0, 2])], torch.tensor(7.0))
    index_put(y, [None, None, torch.tensor([1])], rand(5, 1))
    index_put(y, [torch.tensor([1, 1, 1])], rand(3, 5, 3))      # the last wins
    index_put(y, [torch.tensor([1, 1, 0])], rand(3, 5, 3), True)
    index_put(y, [None, torch.tensor([2, 2, -1])], rand(3, 1), True)
    index_put(ints(9, 4), [torch.tensor([3, 3])], ints(9, 2), True)
    index_put(y.bfloat16(), [torch.tensor([0])], rand(5, 3).bfloat16())
    index_put(y, [ints(4, 0)], rand(0, 5, 3))
    index_put(rand(1, 2, 6, 4), [None, None, torch.tensor([2, 3, 4])], rand(1, 2, 3, 4))  # a KV cache
    r.sample("index_put_", [y, torch.tensor([4]), rand(1, 5, 3)], accumulate=False, error="out of range")
    r.sample("index_put", [y, torch.tensor([-5]), rand(1, 5, 3)], error="out of range")
    r.sample("index_put", [y, torch.tensor([1, 2]), rand(3, 5, 3)], error="invalid argument")
    r.sample("index_put", [y, torch.tensor([1, 2]), rand(2, 2, 5, 3)], error="invalid argument")
    r.sample("index_put", [y, torch.tensor([1]), rand(1, 5, 3).half()], error="invalid argument")

    for dim, start, end, step in [(0, 1, 3, 1), (1, None, None, 2), (-1, -2, None, 1), (1, 0, 2**63 - 1, 3), (2, 1, 1, 1), (1, -100, 2, 1)]:
        size = y.shape[dim]
        src = rand(*[len(range(*slice(start, end, step).indices(size))) if d == dim % 3 else s for d, s in enumerate(y.shape)])
        r.sample("slice_scatter", [y, src], torch.slice_scatter(y, src, dim, start, end, step), dim=dim, start=start, end=end, step=step)
    r.sample("slice_scatter", [y, rand(2, 5, 3)], dim=0, start=0, end=3, error="invalid argument")


def reductions(r):
    x = rand(3, 4, 5)
    dims = [None, [], [0], [-1], [1, -1], [2, 0], [0, 1, 2]]
    for dim, keepdim in itertools.product(dims, (False, True)):
        arg = dim if dim else None
        r.sample("sum", [x], torch.sum(x, arg, keepdim), dim=dim, keepdim=keepdim)
        r.sample("mean", [x], torch.mean(x, arg, keepdim), dim=dim, keepdim=keepdim)
        if dim is not None:
            r.sample("amax", [x], torch.amax(x, dim, keepdim), dim=dim, keepdim=keepdim)
    for dim, keepdim in itertools.product((0, 1, -1), (False, True)):
        r.sample("any", [x > 1.2], torch.any(x > 1.2, dim, keepdim), dim=dim, keepdim=keepdim)
        r.sample("softmax", [x], torch.softmax(x, dim), dim=dim)
    for t in (ints(100, 3, 4, low=-100), ints(100, 3, 4, dtype=torch.uint8), ints(9, 2, 3, dtype=torch.int32), rand(3, 4) > 0,
              rand(3, 4, dtype=torch.float64), rand(3, 4, dtype=torch.float16), rand(3, 4, dtype=torch.bfloat16)):
        r.sample("sum", [t], torch.sum(t, 1), dim=[1])
        r.sample("sum", [t], torch.sum(t, 0, dtype=torch.float32), dim=[0], dtype=torch.float32)
        r.sample("mean", [t], torch.mean(t, 0, dtype=torch.float32), dim=[0], dtype=torch.float32)
        r.sample("amax", [t], torch.amax(t, [0]), dim=[0])
        r.sample("any", [t], torch.any(t, 1), dim=1)
        if t.is_floating_point():
            r.sample("mean", [t], torch.mean(t, 1), dim=[1])
            r.sample("softmax", [t], torch.softmax(t.double(), 0).to(t.dtype), dim=0)
    r.sample("sum", [x * 10], torch.sum((x * 10).int(), 0, dtype=torch.int32), dim=[0], dtype=torch.int32)
    empty = rand(0, 3)
    r.sample("sum", [empty], torch.sum(empty, 0), dim=[0])
    r.sample("mean", [empty], torch.mean(empty, 0), dim=[0])
    r.sample("any", [empty], torch.any(empty, 0), dim=0)
    r.sample("amax", [empty], torch.amax(empty, 1), dim=[1])
    r.sample("softmax", [empty], torch.softmax(empty, 1), dim=1)
    r.sample("amax", [empty], dim=[0], error="invalid argument")
    scalar = torch.tensor(2.5)
    r.sample("sum", [scalar], torch.sum(scalar, [0]), dim=[0])
    r.sample("mean", [scalar], torch.mean(scalar, None), dim=None)
    r.sample("amax", [scalar], torch.amax(scalar, [-1]), dim=[-1])
    r.sample("softmax", [scalar], torch.softmax(scalar, 0), dim=0)
    special = torch.tensor([[1.0, float("nan"), 3.0], [float("-inf")] * 3, [float("inf"), 1.0, 2.0], [float("-inf"), 0.5, 1.0]])
    r.sample("amax", [special], torch.amax(special, [1]), dim=[1])
    r.sample("sum", [special], torch.sum(special, [1]), dim=[1])
    r.sample("any", [special], torch.any(special, 1), dim=1)
    r.sample("softmax", [special], torch.softmax(special, 1), dim=1)
    r.sample("softmax", [special * 0 + 1000], torch.softmax(special * 0 + 1000, 1), dim=1)
    r.sample("softmax", [rand(2, 3).half()], error="invalid argument", dim=2)
    half = rand(2, 3).half()
    r.sample("softmax", [half], torch.softmax(half.float(), 1), dim=1, half_to_float=True)
    r.sample("softmax", [ints(3, 2)], dim=0, error="invalid argument")
    r.sample("mean", [ints(3, 2)], dim=[0], error="invalid argument")
    r.sample("sum", [x], dim=[1, -2], error="invalid argument")
    r.sample("sum", [x], dim=[3], error="invalid argument")


def products(r):
    for shape, out, bias in [((4, 5), 3, True), ((2, 3, 7), 4, False), ((1, 1, 33), 17, True), ((6,), 2, True), ((0, 5), 3, True), ((3, 0), 2, True),
                             ((2, 0), 0, False)]:
        x, w, b = rand(*shape), rand(out, shape[-1]), rand(out) if bias else None
        r.sample("linear", [x, w, b], F.linear(x.double(), w.double(), b if b is None else b.double()).float())
    for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.int32):
        x, w, b = [(t * 3).to(dtype) for t in (rand(3, 9), rand(5, 9), rand(5))]
        exact = F.linear(x.double(), w.double(), b.double()).to(dtype)
        r.sample("linear", [x, w, b], exact)
    x = rand(2, 2, 3)
    v, b0 = rand(3), torch.tensor(0.5)
    r.sample("linear", [x, v, None], F.linear(x, v))
    r.sample("linear", [x, v, b0], F.linear(x, v, b0))
    w, b1 = rand(4, 3), rand(1)
    r.sample("linear", [x, w, b1], F.linear(x, w, b1))
    r.sample("linear", [x, rand(4, 2), None], error="invalid argument")
    r.sample("linear", [x, rand(4, 3), rand(5)], error="invalid argument")
    r.sample("linear", [x, rand(4, 3).half(), None], error="invalid argument")

    shapes = [((5,), (5,)), ((5,), (5, 3)), ((4, 5), (5,)), ((4, 5), (5, 3)), ((2, 4, 5), (5, 3)), ((2, 4, 5), (2, 5, 3)), ((2, 4, 5), (5,)),
              ((5,), (2, 5, 3)), ((2, 1, 4, 5), (3, 5, 2)), ((3, 4, 5), (2, 1, 5, 2)), ((1, 3, 2, 5), (2, 1, 5, 2)), ((4, 5), (2, 2, 5, 3)),
              ((2, 0), (0, 3)), ((0, 3), (3, 2)), ((2, 0, 3), (3, 1)), ((0, 2, 3), (3, 1))]
    for a, b in shapes:
        a, b = rand(*a), rand(*b)
        r.sample("matmul", [a, b], torch.matmul(a.double(), b.double()).float())
    for dtype in (torch.float16, torch.bfloat16, torch.int64):
        a, b = (rand(2, 3, 4) * 3).to(dtype), (rand(2, 4, 5) * 3).to(dtype)
        exact = torch.matmul(a.double(), b.double()).to(dtype)
        r.sample("matmul", [a, b], exact)
        r.sample("bmm", [a, b], exact)
    for a, b in [((2, 3, 4), (2, 4, 5)), ((1, 1, 9), (1, 9, 1)), ((3, 2, 0), (3, 0, 2)), ((0, 2, 3), (0, 3, 2)), ((3, 7, 5), (3, 5, 11))]:
        a, b = rand(*a), rand(*b)
        r.sample("bmm", [a, b], torch.bmm(a.double(), b.double()).float())
    r.sample("bmm", [rand(2, 3, 4), rand(1, 4, 5)], error="invalid argument")
    r.sample("bmm", [rand(3, 4), rand(4, 5)], error="invalid argument")
    r.sample("matmul", [rand(2, 3), rand(2, 3)], error="invalid argument")
    r.sample("matmul", [rand(2, 3, 3), rand(4, 3, 3)], error="invalid argument")


def convolutions(r):
    def conv(shape, weight, bias=True, stride=1, padding=0, dilation=1, transposed=False, output_padding=0, groups=1, dtype=torch.float32):
        x, w = rand(*shape, dtype=dtype), rand(*weight, dtype=dtype)
        spatial = len(shape) - 2
        b = rand(weight[1] * groups if transposed else weight[0], dtype=dtype) if bias else None
        many = lambda v: list(v) if isinstance(v, (list, tuple)) else [v] * spatial
        args = dict(stride=many(stride), padding=many(padding), dilation=many(dilation), transposed=transposed,
                    output_padding=many(output_padding), groups=groups)
        out = torch.ops.aten.convolution(x.double(), w.double(), b if b is None else b.double(), *args.values()).to(dtype)
        r.sample("convolution", [x, w, b], out, **args)

    conv((1, 3, 6, 7), (4, 3, 3, 3))
    conv((2, 2, 5, 5), (3, 2, 1, 1), bias=False)
    conv((1, 3, 8, 7), (2, 3, 3, 2), stride=(2, 1), padding=(1, 0))
    conv((1, 2, 9, 9), (2, 2, 3, 3), dilation=(2, 3), padding=2)
    conv((1, 4, 6, 6), (4, 1, 3, 3), groups=4, padding=1)
    conv((1, 4, 5, 5), (6, 2, 3, 3), groups=2, stride=2, padding=1)
    conv((1, 1, 12, 5), (2, 1, 5, 3), stride=3, padding=(4, 1))
    conv((1, 3, 10), (4, 3, 3))
    conv((2, 4, 11), (4, 1, 4), groups=4, stride=2, padding=3)
    conv((1, 2, 16), (3, 2, 3), dilation=4, padding=1, bias=False)
    conv((1, 1, 30), (5, 1, 8), stride=8)
    conv((0, 3, 6, 6), (2, 3, 3, 3))
    conv((1, 3, 4, 5), (3, 2, 3, 3), transposed=True)
    conv((1, 3, 4, 5), (3, 2, 3, 2), transposed=True, stride=2, padding=1, output_padding=1)
    conv((2, 4, 3, 3), (4, 3, 2, 2), transposed=True, stride=(3, 2), groups=2, bias=False)
    conv((1, 2, 3, 4), (2, 2, 3, 3), transposed=True, dilation=2, padding=(1, 2), stride=2, output_padding=(1, 0))
    conv((1, 3, 6), (3, 2, 4), transposed=True, stride=2, padding=1)
    conv((1, 2, 5), (2, 1, 3), transposed=True, groups=2, stride=3, output_padding=2)
    conv((1, 2, 5, 5), (2, 2, 3, 3), dtype=torch.float16)
    conv((1, 2, 6), (2, 2, 3), dtype=torch.bfloat16, transposed=True)
    x, w = ints(9, 1, 2, 5, low=-9), ints(9, 2, 2, 3, low=-9)
    r.sample("convolution", [x, w, None], F.conv1d(x, w, padding=1), stride=[1], padding=[1], dilation=[1], transposed=False, output_padding=[0], groups=1)
    usual = dict(stride=[1, 1], padding=[0, 0], dilation=[1, 1], transposed=False, output_padding=[0, 0], groups=1)
    for shape, weight, change in [((1, 3, 2, 2), (4, 3, 3, 3), {}), ((1, 4, 5, 5), (4, 3, 3, 3), {}), ((1, 4, 5, 5), (4, 2, 3, 3), {"groups": 3}),
                                  ((1, 4, 5, 5), (4, 4, 3), {}), ((1, 4, 5, 5), (4, 4, 3, 3), {"stride": [0, 1]}),
                                  ((1, 4, 5, 5), (4, 4, 3, 3), {"padding": [-1, 0]}), ((1, 4, 5, 5), (4, 4, 3, 3), {"stride": [1, 1, 1]}),
                                  ((1, 4, 5, 5), (4, 4, 3, 3), {"transposed": True, "output_padding": [1, 0]})]:
        r.sample("convolution", [rand(*shape), rand(*weight), None], error="invalid argument", **{**usual, **change})


def pools(r):
    def pool(shape, kernel_size, dtype=torch.float32, **args):
        x = rand(*shape, dtype=dtype) if dtype.is_floating_point else ints(20, *shape, low=-20, dtype=dtype)
        out = torch.ops.aten.max_pool2d_with_indices(x, kernel_size, **args)
        r.sample("max_pool2d_with_indices", [x], out, kernel_size=kernel_size, **args)
        args.pop("dilation", None)
        if dtype.is_floating_point and all(p <= k // 2 for p, k in zip(args.get("padding", [0, 0]), kernel_size)):
            for more in ({}, {"count_include_pad": False}, {"divisor_override": 3}):
                out = torch.ops.aten.avg_pool2d(x.double(), kernel_size, **args, **more).to(dtype)
                r.sample("avg_pool2d", [x], out, kernel_size=kernel_size, **args, **more)

    pool((1, 2, 6, 6), [2, 2])
    pool((2, 1, 7, 5), [3, 2], stride=[2, 1])
    pool((1, 2, 5, 5), [3, 3], stride=[2, 2], padding=[1, 1])
    pool((1, 1, 7, 8), [3, 3], stride=[2, 2], padding=[1, 1], ceil_mode=True)
    pool((1, 1, 6, 7), [2, 2], stride=[3, 3], ceil_mode=True)
    pool((1, 1, 5, 4), [2, 3], stride=[4, 3], padding=[1, 1], ceil_mode=True)
    pool((2, 6, 7), [3, 2])
    pool((1, 1, 9, 9), [3, 3], stride=[2, 1], padding=[1, 1], dilation=[2, 3])
    pool((0, 2, 4, 4), [2, 2])
    pool((1, 2, 4, 4), [2, 2], dtype=torch.float16)
    pool((1, 2, 4, 4), [3, 2], dtype=torch.bfloat16, padding=[1, 0])
    pool((1, 2, 4, 5), [2, 2], dtype=torch.int64)
    x = torch.tensor([[[[1.0, float("nan"), 2.0], [float("-inf")] * 3, [3.0, 3.0, float("nan")]]]])
    r.sample("max_pool2d_with_indices", [x], torch.ops.aten.max_pool2d_with_indices(x, [2, 2], [1, 1]), kernel_size=[2, 2], stride=[1, 1])
    x = torch.full((1, 1, 4, 4), float("-inf"))
    r.sample("max_pool2d_with_indices", [x], torch.ops.aten.max_pool2d_with_indices(x, [2, 2]), kernel_size=[2, 2])
    y = rand(1, 1, 4, 4)
    for op in ("max_pool2d_with_indices", "avg_pool2d"):
        r.sample(op, [y], kernel_size=[5, 5], error="invalid argument")
        r.sample(op, [y], kernel_size=[2, 2], padding=[2, 0], error="invalid argument")
        r.sample(op, [y], kernel_size=[0, 2], error="invalid argument")
    r.sample("avg_pool2d", [y], kernel_size=[2, 2], divisor_override=0, error="invalid argument")


def fused(r):
    wide = lambda *tensors: [None if t is None else t.double() if t.is_floating_point() else t for t in tensors]
    for shape, dtype in [((3, 8), torch.float32), ((2, 1, 5), torch.float32), ((1, 2, 33), torch.float32), ((0, 4), torch.float32),
                         ((2, 7), torch.float16), ((2, 7), torch.bfloat16)]:
        x, w = rand(*shape, dtype=dtype), rand(shape[-1], dtype=dtype)
        for eps in (1e-5, 0.5):
            r.sample("rms_norm", [x, w], F.rms_norm(x.double(), [shape[-1]], w.double(), eps).to(dtype), eps=eps)
    x = torch.zeros(2, 4)
    r.sample("rms_norm", [x, torch.ones(4)], x, eps=1e-6)
    r.sample("rms_norm", [x, torch.ones(3)], error="invalid argument", eps=1e-6)

    def rotate(x, cos, sin):
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat([-b, a], -1) * sin

    for shape, table in [((1, 2, 3, 8), (3, 8)), ((2, 3, 1, 4), (1, 1, 1, 4)), ((2, 2, 3, 6), (2, 1, 3, 6)), ((1, 3, 5, 2), (5, 2)), ((4, 6), (6,)),
                         ((1, 2, 0, 4), (0, 4)), ((1, 2, 3, 4), (3, 1))]:
        x, cos, sin = rand(*shape), rand(*table), rand(*table)
        r.sample("rope", [x, cos, sin], rotate(*wide(x, cos, sin)).float())
    x, cos, sin = (rand(2, 3, 4, dtype=torch.bfloat16) for _ in range(3))
    r.sample("rope", [x, cos, sin], rotate(*wide(x, cos, sin)).bfloat16())
    r.sample("rope", [rand(2, 3), rand(3), rand(3)], error="invalid argument")
    r.sample("rope", [rand(2, 4), rand(3, 4), rand(4)], error="invalid argument")

    for shape, dtype in [((3, 5), torch.float32), ((0,), torch.float32), ((2, 1, 17), torch.float32), ((9,), torch.float16)]:
        gate, up = rand(*shape, dtype=dtype) * 4, rand(*shape, dtype=dtype)
        r.sample("silu_mul", [gate, up], (F.silu(gate.double()) * up.double()).to(dtype))
    extreme = torch.tensor([-1e4, -100.0, -88.0, 0.0, 88.0, 1e4, float("inf"), float("nan")])
    r.sample("silu_mul", [extreme, torch.ones(8)], F.silu(extreme.double()).float())
    r.sample("silu_mul", [rand(2, 3), rand(3)], error="invalid argument")

    def attend(q, k, v, mask=None, positions=None, is_causal=False, scale=None):
        dtype = q.dtype
        qd, kd, vd = wide(q, k, v)
        group = q.shape[-3] // k.shape[-3]
        kd, vd = kd.repeat_interleave(group, -3), vd.repeat_interleave(group, -3)
        scores = qd @ kd.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
        allowed = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool)
        if is_causal:
            allowed = allowed.tril()
        if positions is not None:
            allowed = allowed & (torch.arange(k.shape[-2]) <= positions[:, None])
        if mask is not None and mask.dtype == torch.bool:
            allowed = allowed & mask
        elif mask is not None:
            scores = scores + mask.double()
        scores = scores.masked_fill(~allowed, float("-inf"))
        weights = torch.softmax(scores, -1).nan_to_num(0.0)
        # Unlike 0 * inf: what a row doesn't attend may hold anything.
        out = (weights @ vd.nan_to_num(0.0)).to(dtype)
        args = dict(is_causal=is_causal)
        if scale is not None:
            args["scale"] = scale
        r.sample("attention", [q, k, v, mask, positions], out, tolerance=2e-6 if dtype == torch.float32 else None, **args)

    def qkv(b, hq, hkv, s, t, d, dv=None, dtype=torch.float32):
        lead = [] if b is None else [b]
        return rand(*lead, hq, s, d, dtype=dtype), rand(*lead, hkv, t, d, dtype=dtype), rand(*lead, hkv, t, dv or d, dtype=dtype)

    attend(*qkv(1, 2, 2, 3, 5, 4))
    attend(*qkv(2, 4, 2, 3, 3, 4), is_causal=True)
    attend(*qkv(1, 3, 1, 4, 6, 5, 3), is_causal=True)
    attend(*qkv(1, 2, 1, 5, 3, 4), is_causal=True, scale=0.7)
    attend(*qkv(1, 4, 2, 2, 9, 8), positions=torch.tensor([3, 4]))
    attend(*qkv(1, 2, 2, 1, 7, 4), positions=torch.tensor([0]))
    attend(*qkv(2, 2, 1, 3, 7, 4), positions=torch.tensor([6, 0, 2], dtype=torch.int32))
    attend(*qkv(None, 2, 1, 3, 4, 6))
    attend(*qkv(1, 2, 2, 3, 5, 4), mask=rand(3, 5) > 0)
    attend(*qkv(2, 2, 1, 3, 5, 4), mask=rand(2, 1, 3, 5) > 0.5)
    attend(*qkv(1, 2, 1, 3, 5, 4), mask=torch.tensor([[True] * 5, [False] * 5, [False, True, False, False, True]]))
    attend(*qkv(1, 2, 1, 3, 5, 4), mask=rand(1, 2, 3, 5))
    attend(*qkv(1, 2, 1, 3, 5, 4), mask=rand(5))
    attend(*qkv(2, 2, 1, 3, 5, 4), mask=rand(2, 1, 1, 1))
    attend(*qkv(1, 2, 1, 3, 5, 4), mask=torch.zeros(3, 5).masked_fill(rand(3, 5) > 0, float("-inf")))
    attend(*qkv(1, 1, 1, 2, 4, 4), mask=torch.full((2, 4), float("-inf")))
    attend(*qkv(1, 2, 2, 3, 8, 4), mask=rand(3, 8) > -0.5, positions=torch.tensor([2, 5, 7]))
    attend(*qkv(1, 1, 1, 2, 0, 4))
    attend(*qkv(1, 2, 1, 3, 5, 4, dtype=torch.float16), is_causal=True)
    attend(*qkv(1, 2, 1, 3, 5, 4, dtype=torch.bfloat16))
    q, k, v = qkv(1, 2, 2, 2, 4, 4)
    attend(q * 60, k * 60, v)  # large scores
    r.sample("attention", [q, k, v, None, torch.tensor([-1, 0])], error="out of range")
    r.sample("attention", [q, k, v, None, torch.tensor([1])], error="invalid argument")
    r.sample("attention", [q, k, v, rand(2, 3), None], error="invalid argument")
    r.sample("attention", [rand(1, 3, 2, 4), k, v, None, None], error="invalid argument")
    r.sample("attention", [q, rand(1, 2, 4, 3), v, None, None], error="invalid argument")
    r.sample("attention", [q, k, rand(1, 2, 3, 4), None, None], error="invalid argument")


def layer_norms(r):
    for shape, dtype in [((3, 8), torch.float32), ((2, 1, 33), torch.float32), ((0, 4), torch.float32), ((2, 7), torch.float16)]:
        x, w, b = rand(*shape, dtype=dtype), rand(shape[-1], dtype=dtype), rand(shape[-1], dtype=dtype)
        r.sample("layer_norm", [x, w, b], F.layer_norm(x.double(), [shape[-1]], w.double(), b.double(), 1e-3).to(dtype), eps=1e-3)
    x = torch.full((2, 4), 3.0)
    r.sample("layer_norm", [x, torch.ones(4), torch.ones(4)], torch.ones(2, 4), eps=1e-6)
    r.sample("layer_norm", [x, torch.ones(4), torch.ones(3)], error="invalid argument", eps=1e-6)


def attention_by_row(r):
    def attend(query, keys, b, hq, hkv, s, t, d, dv=None, dtype=torch.float32, mask=None, is_causal=False):
        lead = [] if b is None else [b]
        q, k, v = rand(*lead, hq, s, d, dtype=dtype), rand(*lead, hkv, t, d, dtype=dtype), rand(*lead, hkv, t, dv or d, dtype=dtype)
        out = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), attn_mask=mask, is_causal=is_causal, enable_gqa=True).to(dtype)
        q, out = (x.transpose(-3, -2) if query else x for x in (q, out))
        k, v = (x.transpose(-3, -2) if keys else x for x in (k, v))
        r.sample("attention", [q, k, v, mask, None], out, tolerance=2e-6 if dtype == torch.float32 else None, is_causal=is_causal, query_by_row=query,
                 keys_by_row=keys)

    for query, keys in ((True, True), (True, False), (False, True)):
        attend(query, keys, 1, 2, 2, 3, 5, 4)
        attend(query, keys, 2, 4, 2, 3, 3, 4, 6, is_causal=True)
        attend(query, keys, 2, 3, 3, 2, 5, 4, mask=torch.tensor([True, False, True, True, False]).expand(2, 1, 1, 5))
        attend(query, keys, None, 2, 1, 3, 4, 6)
    attend(True, True, 1, 2, 1, 3, 5, 4, dtype=torch.float16)
    q, k = rand(1, 3, 2, 4), rand(1, 5, 2, 4)
    by_row = dict(query_by_row=True, keys_by_row=True)
    r.sample("attention", [q, k, k, None, None], error="invalid argument", query_by_row=True)  # 2 heads, 5 of the keys
    r.sample("attention", [q, k, k, None, None], error="invalid argument", keys_by_row=True)  # 3 heads, 2 of the keys
    r.sample("attention", [q, k, rand(1, 4, 2, 4), None, None], error="invalid argument", **by_row)
    r.sample("attention", [q, rand(1, 5, 0, 4), rand(1, 5, 0, 4), None, None], error="invalid argument", **by_row)
    r.sample("attention", [q, k, k, rand(2, 5), None], error="invalid argument", **by_row)  # the mask of 2 rows
    r.sample("attention", [q, k, k, None, torch.tensor([0, 1])], error="invalid argument", **by_row)


def record(r):
    indexing(r)
    reductions(r)
    products(r)
    convolutions(r)
    pools(r)
    fused(r)
    layer_norms(r)
    attention_by_row(r)
