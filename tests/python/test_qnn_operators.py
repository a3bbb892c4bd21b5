"""Operators on Qualcomm's library beside eager PyTorch, computed in 16 bits: what the library accepts must also mean what PyTorch means.

All of a group are outputs of one program. Inputs avoid the points where 16 bits may fall on the other side (ties of rounding, zeros of sign).
"""

import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from quant_cli import Cli, sqnr
from quant_models import Model, write_calls
from test_qnn import SOC


@pytest.fixture
def cli(dovetail, tmp_path):
    return Cli(dovetail, tmp_path)


def values(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed)) * 3 - 1.5


X, Y = values(2, 3, 8, 6), values(2, 3, 8, 6, seed=1)
POSITIVE = X.abs() + 0.3
_module = None  # the one that is called


def const(*shape, seed=0):
    """A buffer of the module that is called: other tensors cannot be saved with an export."""
    name = f"const_{seed}_{'_'.join(map(str, shape))}"
    if not hasattr(_module, name):
        _module.register_buffer(name, values(*shape, seed=seed))
    return getattr(_module, name)


def rows():
    if not hasattr(_module, "rows"):
        _module.register_buffer("rows", torch.tensor([3, 0, 6]))
    return _module.rows


def W():  # noqa: N802
    return const(5, 3, 3, 3, seed=2)


def B():  # noqa: N802
    return const(5, seed=3)


# What leaves the processor as i64 or bool is compared exactly.
GROUPS = {
    "unary": {
        "abs": lambda x, y, p: x.abs(), "neg": lambda x, y, p: -x, "exp": lambda x, y, p: x.exp(), "log": lambda x, y, p: p.log(), "sqrt": lambda x, y, p: p.sqrt(),
        "rsqrt": lambda x, y, p: p.rsqrt(), "reciprocal": lambda x, y, p: p.reciprocal(), "sin": lambda x, y, p: x.sin(), "cos": lambda x, y, p: x.cos(),
        "floor": lambda x, y, p: (x * 4).floor(), "ceil": lambda x, y, p: (x * 4).ceil(), "sign": lambda x, y, p: x.sign(),
        "tanh": lambda x, y, p: x.tanh(), "sigmoid": lambda x, y, p: x.sigmoid(), "relu": lambda x, y, p: x.relu(), "gelu": lambda x, y, p: F.gelu(x * 2),
        "gelu_tanh": lambda x, y, p: F.gelu(x * 2, approximate="tanh"), "silu": lambda x, y, p: F.silu(x), "erf": lambda x, y, p: torch.erf(x),
        "hardtanh": lambda x, y, p: F.hardtanh(x, -0.5, 0.75), "clamp_min": lambda x, y, p: x.clamp(min=-0.25), "clamp_max": lambda x, y, p: x.clamp(max=0.25),
        "hardswish": lambda x, y, p: F.hardswish(x * 3), "square": lambda x, y, p: x**2, "cube": lambda x, y, p: x**3, "root": lambda x, y, p: p**0.5,
        "log1p": lambda x, y, p: torch.log1p(x * 0.6), "log1p_small": lambda x, y, p: torch.log1p(x * 1e-2) * 100, "log1p_large": lambda x, y, p: torch.log1p(p * 50),
        "softplus": lambda x, y, p: F.softplus(x * 8), "softplus_beta": lambda x, y, p: F.softplus(x, 3.0), "softplus_small": lambda x, y, p: F.softplus(x - 6) * 100,
        "mish": lambda x, y, p: F.mish(x * 8), "logsigmoid": lambda x, y, p: F.logsigmoid(x * 8),
    },
    "binary": {
        "add": lambda x, y, p: x + y, "add_row": lambda x, y, p: x + y[0, 0, 0], "add_channel": lambda x, y, p: x + y[0, :, :1, :1], "sub": lambda x, y, p: x - y,
        "rsub": lambda x, y, p: 1 - x, "sub_alpha": lambda x, y, p: torch.sub(x, y, alpha=2), "mul": lambda x, y, p: x * y, "div": lambda x, y, p: x / p,
        "maximum": lambda x, y, p: torch.maximum(x, y), "minimum": lambda x, y, p: torch.minimum(x, y), "where": lambda x, y, p: torch.where(x > y, x, y),
        "where_scalar": lambda x, y, p: torch.where(x < 0.1, x, torch.tensor(-2.0)), "masked_fill": lambda x, y, p: x.masked_fill((x >= 0) & (y <= 0), 1.5),
    },
    "moving": {
        "view": lambda x, y, p: x.reshape(6, 48), "permute": lambda x, y, p: x.permute(0, 2, 3, 1) + 0, "transpose": lambda x, y, p: x.transpose(1, 3) + 0,
        "slice": lambda x, y, p: x[:, 1:, 2:7:2] + 0, "select": lambda x, y, p: x[:, 1] + 0, "flip_cat": lambda x, y, p: torch.cat([-x, y, x[:, :1]], 1),
        "cat_last": lambda x, y, p: torch.cat([x, y], -1), "expand": lambda x, y, p: x[:1, :1].expand(4, 3, 8, 6) + 0, "repeat": lambda x, y, p: x[:, :, None].repeat(1, 1, 2, 1, 1) + 0,
        "pad": lambda x, y, p: F.pad(x, (1, 2, 0, 3)), "pad_value": lambda x, y, p: F.pad(x, (0, 1), value=-0.5), "stack": lambda x, y, p: torch.stack([x, y], 2),
        "slice_scatter": lambda x, y, p: torch.slice_scatter(x, y[:, :, :3], 2, 4, 7), "index_select": lambda x, y, p: x.index_select(2, rows()), "index": lambda x, y, p: x[:, :, rows()],
        "index_two": lambda x, y, p: x.reshape(6, 8, 6)[rows()[:, None] % 5, rows()[None, :2]], "index_bool": lambda x, y, p: torch.where((x > 0)[:, :, rows()], 1.0, 2.0),
        "index_first": lambda x, y, p: x.reshape(8, -1)[rows()], "index_put_middle": lambda x, y, p: torch.ops.aten.index_put(x, [None, None, rows()], y[:, :, :3]),
        "index_put_first": lambda x, y, p: x.reshape(8, -1).index_put((rows(),), y.reshape(8, -1)[:3]), "index_copy": lambda x, y, p: x.index_copy(2, rows(), y[:, :, :3]),
        "pixel_shuffle": lambda x, y, p: F.pixel_shuffle(x.reshape(2, 12, 4, 3), 2), "pixel_unshuffle": lambda x, y, p: F.pixel_unshuffle(x, 2),
        "unbind": lambda x, y, p: x.unbind(1)[2] * 1, "split": lambda x, y, p: x.split([1, 2], 1)[1] + 0,
    },
    "algebra": {
        "linear": lambda x, y, p: F.linear(x, const(7, 6, seed=5), const(7, seed=6)), "linear_no_bias": lambda x, y, p: F.linear(x, const(7, 6, seed=5)),
        "matmul": lambda x, y, p: x @ y.transpose(2, 3), "matmul_batch": lambda x, y, p: x @ y[:1, :1].transpose(2, 3), "bmm": lambda x, y, p: torch.bmm(x[0], y[0].transpose(1, 2)),
        "matmul_constant": lambda x, y, p: x @ const(6, 4, seed=7), "softmax": lambda x, y, p: x.softmax(-1), "softmax_middle": lambda x, y, p: x.softmax(1),
        "log_softmax": lambda x, y, p: x.log_softmax(-1), "mean": lambda x, y, p: x.mean((2, 3), keepdim=True), "mean_flat": lambda x, y, p: x.mean(-1), "sum": lambda x, y, p: x.sum(1),
        "amax": lambda x, y, p: x.amax((1, 2)), "layer_norm": lambda x, y, p: F.layer_norm(x, (6,), const(6, seed=8), const(6, seed=9)),
        "rms_norm": lambda x, y, p: F.rms_norm(x, (6,), const(6, seed=8), 1e-5), "attention": lambda x, y, p: F.scaled_dot_product_attention(x, y, p),
        "group_norm": lambda x, y, p: F.group_norm(torch.cat([x, y[:, :1]], 1), 2), "instance_norm": lambda x, y, p: F.instance_norm(x, weight=const(3, seed=13), bias=const(3, seed=14)),
        "batch_norm_of_input": lambda x, y, p: F.batch_norm(x, None, None, training=True), "embedding": lambda x, y, p: F.embedding(rows(), const(9, 4, seed=10)),
    },
    "spatial": {
        "conv": lambda x, y, p: F.conv2d(x, W(), B()), "conv_stride": lambda x, y, p: F.conv2d(x, W(), B(), stride=2, padding=1), "conv_dilated": lambda x, y, p: F.conv2d(x, W(), None, dilation=2),
        "conv_uneven": lambda x, y, p: F.conv2d(x, W()[:, :, :, :1], B(), stride=(2, 1), padding=(1, 0)), "depthwise": lambda x, y, p: F.conv2d(x, const(3, 1, 3, 3, seed=4), None, padding=1, groups=3),
        "depthwise_twice": lambda x, y, p: F.conv2d(x, const(6, 1, 3, 3, seed=17), None, padding=1, groups=3),
        "grouped": lambda x, y, p: F.conv2d(torch.cat([x, y[:, :1]], 1), const(6, 2, 3, 3, seed=11), None, groups=2), "conv_chain": lambda x, y, p: F.conv2d(F.conv2d(x, W(), B()).relu(), const(2, 5, 1, 1)),
        "conv1d": lambda x, y, p: F.conv1d(x[:, :, 0], W()[:, :, 0], B(), padding=1), "transposed": lambda x, y, p: F.conv_transpose2d(x, const(3, 4, 3, 3, seed=12), const(4), stride=2, padding=1, output_padding=1),
        "transposed1d": lambda x, y, p: F.conv_transpose1d(x[:, :, 0], const(3, 4, 4, seed=12), stride=2, padding=1),
        "max_pool": lambda x, y, p: F.max_pool2d(x, 3, 2, 1), "max_pool_ceil": lambda x, y, p: F.max_pool2d(x, 3, 2, ceil_mode=True), "avg_pool": lambda x, y, p: F.avg_pool2d(x, 2),
        "avg_pool_pad": lambda x, y, p: F.avg_pool2d(x, 3, 2, 1), "avg_pool_no_pad": lambda x, y, p: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
        "adaptive": lambda x, y, p: F.adaptive_avg_pool2d(x, 1), "nearest": lambda x, y, p: F.interpolate(x, scale_factor=2.0), "nearest_odd": lambda x, y, p: F.interpolate(x, size=(12, 9)),
        "bilinear": lambda x, y, p: F.interpolate(x, scale_factor=2.0, mode="bilinear"), "bilinear_corners": lambda x, y, p: F.interpolate(x, size=(15, 11), mode="bilinear", align_corners=True),
        "conv_then_view": lambda x, y, p: F.conv2d(x, W(), B()).flatten(1), "conv_add_channel": lambda x, y, p: F.conv2d(x, W(), B()) + B()[:, None, None], "conv_cat": lambda x, y, p: torch.cat([F.conv2d(x, W(), B()), F.conv2d(y, W(), B())], 1),
        "batch_norm": lambda x, y, p: F.batch_norm(F.conv2d(x, W()), B(), B().abs() + 0.5, B(), B()),
    },
}  # fmt: skip
# Computed by our kernels, with the reason in `explain`: the library has no operator of that meaning.
OUTSIDE = {"erf", "cube", "root", "sub_alpha"}


class Group(torch.nn.Module):
    def __init__(self, functions):
        super().__init__()
        self.functions = list(functions)

        self(X, Y, POSITIVE)  # makes the buffers

    def forward(self, x, y, p):
        global _module
        _module = self
        return tuple(f(x, y, p) for f in self.functions)


@pytest.mark.parametrize("group", GROUPS)
def test_operators_mean_what_pytorch_means(cli, qnn_library, group):
    names = list(GROUPS[group])
    model = Model(Group(GROUPS[group].values()), [(X, Y, POSITIVE)])
    source = model.export(cli.new_path("model.pt2"))
    flags = ["--quantize", "qnn-fp16", "--backend", "qnn,cpu", "--soc", SOC, "--qnn-lib", qnn_library]
    program, _ = cli.compile(source, *flags)
    got = cli.run(program, model.calls).outputs[0]
    wrong = []
    for name, ours, theirs in zip(names, got, model.eager()[0], strict=True):
        assert ours.shape == theirs.shape and ours.dtype == theirs.dtype, name
        span = max(float(np.ptp(theirs)), 1e-3)
        error = float(np.abs(ours.astype(np.float64) - theirs).max()) / span
        if not error < 5e-3:
            wrong.append(f"{name}: {error:.4f} of the range")
    assert not wrong, wrong
    nodes = json.loads(cli("explain", source, *flags, "--json").stdout)["nodes"]
    outside = {(n["op"], n["reason"]) for n in nodes if n["backend"] != "qnn"}
    assert len(outside) <= len(OUTSIDE & set(names)) + 2, outside


class Windows(torch.nn.Module):
    def forward(self, x):
        return (x * 2).view(2, 2, 8, 4, 4) * 3


def test_what_the_library_takes_and_cannot_make_runs_elsewhere(cli, qnn_library):
    """Its validation takes a reshape to 5 dims in 16-bit floats; QnnGraph_finalize fails for it."""
    model = Model(Windows(), [(values(4, 32, 4),)])
    source = model.export(cli.new_path("model.pt2"))
    program, report = cli.compile(source, "--quantize", "qnn-fp16", "--backend", "qnn,cpu", "--soc", SOC, "--qnn-lib", qnn_library)
    assert report["delegate_calls"] == 2
    warning = "\n".join(report["warnings"])
    assert "1 x view outside the NPU, whose library cannot make a graph with it: QnnGraph_finalize failed" in warning
    assert "test_qnn_operators.py" in warning
    np.testing.assert_allclose(cli.run(program, model.calls).outputs[0][0], model.eager()[0][0], atol=0.02)


class Layer(torch.nn.Module):
    def __init__(self, layer, function):
        super().__init__()
        self.layer, self.function = layer, function

    def forward(self, x):
        return self.function(self.layer, x)


def soft_sign(x):
    return x / (x.abs() + 0.5)


# What the library computes wrongly when it is asked in the plainest way: model, input, scheme, SQNR in dB that the simulator must reach beside our kernels.
PITFALLS = {
    "depthwise filters of several results for a narrow image":
        (lambda: Layer(torch.nn.Conv2d(4, 8, 3, stride=2, padding=1, groups=4), lambda c, x: c(x)), (1, 4, 16, 8), "qnn-16a8w", 50),
    "the greater of bytes and themselves":
        (lambda: Layer(torch.nn.Conv2d(16, 8, 3, padding=1), lambda c, x: (lambda y: (y, torch.maximum(y, y)))(c(x))), (1, 16, 12, 8), "qnn-8a8w", 30),
    "the lesser of bytes and what was chosen from them":
        (lambda: Layer(torch.nn.Conv2d(8, 16, 3, padding=1), lambda c, x: (lambda y: (lambda z: (z, torch.minimum(z, y)))(torch.where(y > 0.5, y, torch.where(y < -0.5, y, y))))(c(x))),
         (1, 8, 16, 8), "qnn-8a8w", 30),
    "a quotient of bytes that is doubled for a linear":
        (lambda: Layer(torch.nn.Linear(8, 16), lambda l, x: l(soft_sign(x) * 2)), (1, 24, 8), "qnn-8a8w", 30),
    "a sum with zeros":
        (lambda: Layer(torch.nn.Linear(3, 16), lambda l, x: (lambda y: torch.floor(y) * 0.01 + y)((lambda m: torch.add(m * m, m * m, alpha=0.5))(l(x) * 0.2))),
         (1, 80, 3), "qnn-16a8w", 50),
    "a softmax of small numbers": (lambda: Layer(None, lambda _, x: F.softmax((x * 0.05) @ (x * 0.05).transpose(1, 2), -1)), (1, 8, 4), "qnn-16a8w", 50),
    "a softmax of a product with a number": (lambda: Layer(None, lambda _, x: F.softmax((x * 0.05) @ (x * 0.05).transpose(1, 2) * 0.25, -1)), (1, 8, 4), "qnn-16a8w", 60),
    "a softmax of next to nothing": (lambda: Layer(None, lambda _, x: F.softmax((x * 1e-4) @ (x * 1e-4).transpose(1, 2), -1)), (1, 8, 4), "qnn-16a8w", 60),
    "a mean of a padded tensor": (lambda: Layer(None, lambda _, x: F.pad(x * 2, (0, 0, 2, 1)).mean(1)), (1, 8, 8), "qnn-16a8w", 50),
}  # fmt: skip


@pytest.mark.parametrize("name", PITFALLS)
def test_what_the_library_gets_wrong_when_asked_plainly(cli, qnn_library, name):
    make, shape, scheme, least = PITFALLS[name]
    torch.manual_seed(0)
    model = Model(make().eval(), [(torch.randn(shape),)])
    source = model.export(cli.new_path("model.pt2"))
    folder = cli.new_path("calibration")
    write_calls(model.calls, folder)
    common = ["--quantize", scheme, "--calibrate", folder]
    program, _ = cli.compile(source, *common, "--backend", "qnn,cpu", "--soc", SOC, "--qnn-lib", qnn_library)
    plain, _ = cli.compile(source, *common, "--backend", "cpu")
    for ours, theirs in zip(cli.run(plain, model.calls).outputs[0], cli.run(program, model.calls).outputs[0], strict=True):
        assert sqnr(theirs, ours) > least


FIXED_POINT = {
    "mish": F.mish, "softplus": F.softplus, "softplus_beta": lambda x: F.softplus(x, 2.0), "logsigmoid": F.logsigmoid, "log1p": lambda x: torch.log1p(x.abs()),
    "instance_norm": lambda x: F.instance_norm(x), "pixel_shuffle": lambda x: F.pixel_shuffle(x, 2).repeat(1, 4, 1, 1), "minimum_number": lambda x: torch.minimum(torch.full((), 0.0), x),
    # Whose operand is read elsewhere too.
    "clamp_beside": lambda x: x.clamp(min=-0.1) + x, "clamp_max_beside": lambda x: x.clamp(max=0.0) - x.abs(), "relu6_beside": lambda x: F.relu6(x) + x,
}  # fmt: skip


class BetweenConvolutions(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.before = torch.nn.ModuleList(torch.nn.Conv2d(3, 8, 3, padding=1) for _ in FIXED_POINT)
        self.after = torch.nn.ModuleList(torch.nn.Conv2d(8, 12, 3, padding=1) for _ in FIXED_POINT)

    def forward(self, x):
        return tuple(after(f(before(x))) for before, f, after in zip(self.before, FIXED_POINT.values(), self.after, strict=True))


@pytest.mark.parametrize("scheme,least", [("qnn-16a8w", 40), ("qnn-8a8w", 30)])
def test_activations_in_fixed_point(cli, qnn_library, scheme, least):
    model = Model(BetweenConvolutions(), [(values(1, 3, 16, 16) * 1.5,)])
    calls = cli.new_path("calibration")
    write_calls(model.calls, calls)
    flags = ["--quantize", scheme, "--calibrate", calls, "--backend", "qnn,cpu", "--soc", SOC, "--qnn-lib", qnn_library]
    program, _ = cli.compile(model.export(cli.new_path("model.pt2")), *flags)
    for name, ours, theirs in zip(FIXED_POINT, cli.run(program, model.calls).outputs[0], model.eager()[0], strict=True):
        assert sqnr(ours, theirs) > least, f"{name}: {sqnr(ours, theirs):.1f} dB"
