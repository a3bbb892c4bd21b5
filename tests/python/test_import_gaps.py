"""Functions that models use beside their layers: each as a module, compiled for both runtimes, against eager PyTorch."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from executorch import runtime

ROWS = torch.export.Dim("rows", min=2, max=16)
RUNTIMES = ["dovetail", "executorch"]


@dataclass
class Case:
    """`fn` of tensors of these shapes; None is the dimension `rows`, which changes from call to call."""

    fn: Callable
    shapes: list
    scale: float = 3
    whole: bool = False  # inputs are whole numbers

    def inputs(self, rows, seed):
        generator = torch.Generator().manual_seed(seed)
        tensors = [torch.randn([rows if d is None else d for d in shape], generator=generator) * self.scale for shape in self.shapes]
        return tuple(t.round() if self.whole else t for t in tensors)


def attention_scores(q, k):
    return torch.einsum("bqhd,bkhd->bhqk", q, k)


def positions(mask):
    kept = (mask > 0).long()
    return torch.cumsum(kept, dim=1) * kept


def relative_positions(x):
    ramp = torch.arange(x.shape[0])
    return x * torch.remainder(ramp, 3)[:, None] + torch.floor_divide(ramp, 2)[:, None]


def diagonal_written(x, values):
    x = x.clone()
    x.diagonal().mul_(values)
    return x


MATRIX, IMAGE = [[None, 6]], [[1, 3, 5, 7]]
SIGNS = [[None, 4], [None, 4]]
CASES = {
    "normalize": Case(lambda x: F.normalize(x, dim=1), MATRIX),
    "normalize_p1": Case(lambda x: F.normalize(x, p=1.0, dim=-1), MATRIX),
    "vector_norm_all": Case(lambda x: torch.linalg.vector_norm(x), MATRIX),
    "vector_norm_0": Case(lambda x: torch.linalg.vector_norm(F.relu(x), ord=0, dim=1), MATRIX),
    "vector_norm_3": Case(lambda x: torch.linalg.vector_norm(x, ord=3, dim=[1], keepdim=True), MATRIX),
    "vector_norm_inf": Case(lambda x: torch.linalg.vector_norm(x, ord=float("inf"), dim=0), MATRIX),
    "vector_norm_minus_inf": Case(lambda x: torch.linalg.vector_norm(x, ord=-float("inf"), dim=1), MATRIX),
    "norm": Case(lambda x: torch.ops.aten.norm.ScalarOpt_dim(x, 2, [1], True), MATRIX),
    "norm_none": Case(lambda x: torch.ops.aten.norm.ScalarOpt_dim(x, None, [0]), MATRIX),
    "norm_all": Case(lambda x: torch.ops.aten.norm.Scalar(x, 2), MATRIX),
    "einsum_matmul": Case(lambda a, b: torch.einsum("ij,jk->ik", a, b), [[None, 6], [6, 5]]),
    "einsum_transposed": Case(lambda a, b: torch.einsum("ij,kj->ki", a, b), [[None, 6], [5, 6]]),
    "einsum_implicit": Case(lambda a, b: torch.einsum("cb,ac", a, b), [[6, None], [5, 6]]),
    "einsum_attention": Case(attention_scores, [[2, None, 3, 4], [2, None, 3, 4]], 1),
    "einsum_outer": Case(lambda a, b: torch.einsum("i,j->ij", a, b), [[None], [5]]),
    "einsum_batch_outer": Case(lambda a, b: torch.einsum("bi,bj->jbi", a, b), [[None, 3], [None, 4]]),
    "einsum_two_summed": Case(lambda a, b: torch.einsum("abcd,ecbf->aedf", a, b), [[None, 3, 4, 2], [5, 4, 3, 2]], 1),
    "einsum_summed_alone": Case(lambda a, b: torch.einsum("ijk,jl->l", a, b), [[None, 3, 4], [3, 5]], 1),
    "einsum_dot": Case(lambda a, b: torch.einsum("i,i->", a, b), [[None], [None]]),
    "einsum_one": Case(lambda a: torch.einsum("ijk->kj", a), [[None, 3, 4]]),
    "einsum_mask": Case(lambda a, b: torch.einsum("st,bhsd->bhtd", a, b), [[None, None], [1, 2, None, 3]], 1),
    "remainder": Case(lambda x: torch.remainder(x, 1.75), MATRIX),
    "remainder_tensor": Case(torch.remainder, SIGNS),
    "remainder_negative": Case(lambda x: x % -3, MATRIX, whole=True),
    "floor_divide": Case(lambda x: x // 1.5, MATRIX),
    "floor_divide_tensor": Case(torch.floor_divide, SIGNS),
    "div_floor": Case(lambda x: torch.div(x, 0.75, rounding_mode="floor"), MATRIX),
    "div_trunc": Case(lambda a, b: torch.div(a, b, rounding_mode="trunc"), SIGNS),
    "fmod": Case(torch.fmod, SIGNS),
    "fmod_number": Case(lambda x: torch.fmod(x, -1.75), MATRIX),
    "integers_towards_zero": Case(lambda a, b: torch.div(a.long(), b.abs().long() + 2, rounding_mode="trunc") + torch.fmod(a.long(), -3), SIGNS),
    "integer_positions": Case(relative_positions, MATRIX),
    "diff": Case(torch.diff, MATRIX),
    "diff_rows": Case(lambda x: torch.diff(x, dim=0), [[4, 3]]),
    "diff_twice_between": Case(lambda x, a, b: torch.diff(x, n=2, dim=1, prepend=a, append=b), [[None, 3], [None, 1], [None, 2]]),
    "diff_positions": Case(lambda x: torch.cumsum((torch.diff(x.long(), prepend=x[:, :1].long() - 1) != 1).long(), -1), MATRIX),
    "diff_bool": Case(lambda x: torch.diff(x > 0).float(), MATRIX),
    "diff_of_one": Case(lambda x: torch.cat([torch.diff(x[:, :1], n=2), x], 1), MATRIX),
    "pow_tensor": Case(lambda a, b: torch.pow(a.abs() + 0.5, b), SIGNS, 1),
    "pow_base": Case(lambda x: torch.pow(2.0, x) + 2 ** torch.arange(6) + torch.pow(0.5, torch.arange(6)), MATRIX),
    "pow_integers": Case(lambda a, b: torch.pow(a.long(), b.long().abs()), SIGNS, 2),
    "dropout_in_place": Case(lambda x: F.dropout(x * 2, 0.3, training=False, inplace=True), MATRIX),
    "reshape_as": Case(lambda x, y: x.t().reshape_as(y), [[4, 6], [3, 8]]),
    "attention_of_one_key_head": Case(F.scaled_dot_product_attention, [[2, 4, None, 8], [2, 1, None, 8], [2, 1, None, 8]], 1),
    "floor": Case(torch.floor, MATRIX),
    "ceil": Case(torch.ceil, MATRIX),
    "round": Case(lambda x: torch.round(x * 2) + torch.round(x.round() + 0.5), MATRIX),
    "round_decimals": Case(lambda x: torch.round(x, decimals=2) + torch.round(10 * x, decimals=-1), MATRIX),
    "trunc": Case(torch.trunc, MATRIX),
    "sign": Case(lambda x: torch.sign(F.hardtanh(x.round())), MATRIX),
    "cumsum": Case(lambda x: torch.cumsum(x, dim=1), MATRIX),
    "cumsum_dynamic": Case(lambda x: torch.cumsum(x, dim=0), MATRIX),
    "cumsum_positions": Case(positions, MATRIX),
    "roll": Case(lambda x: torch.roll(x, 2, 1), MATRIX),
    "roll_dynamic": Case(lambda x: torch.roll(x, -5, 0), MATRIX),
    "roll_two": Case(lambda x: torch.roll(x, (-3, 8), (2, 3)), IMAGE),
    "roll_flat": Case(lambda x: torch.roll(x, 4), [[3, 5]]),
    "diagonal": Case(lambda x: torch.diagonal(x), [[5, 7]]),
    "diagonal_below": Case(lambda x: torch.diagonal(x, -2, 3, 1), [[2, 5, 3, 4]]),
    "diagonal_above": Case(lambda x: torch.diagonal(x, 2, dim1=1, dim2=2).sum(1), [[None, 5, 4]]),
    "diagonal_written": Case(diagonal_written, [[4, 4], [4]]),
    "erf": Case(torch.erf, MATRIX),
    "logsumexp": Case(lambda x: torch.logsumexp(x, dim=1), MATRIX, 50),
    "logsumexp_keepdim": Case(lambda x: torch.logsumexp(x, dim=[0, 1], keepdim=True), MATRIX, 50),
    "logsumexp_masked": Case(lambda x: torch.logsumexp(torch.where(x[:, :1] > 0, x, -float("inf")), dim=1).exp(), MATRIX, 1),
    "lerp": Case(lambda a, b: torch.lerp(a, b, 0.25) + torch.lerp(a, b, 0.9), SIGNS),
    "lerp_tensor": Case(lambda a, b, w: torch.lerp(a, b, w), [*SIGNS, [None, 4]]),
    "nearest_factor": Case(lambda x: F.interpolate(x, scale_factor=2, mode="nearest"), IMAGE),
    "nearest_size": Case(lambda x: F.interpolate(x, size=(7, 4), mode="nearest"), IMAGE),
    "nearest_dynamic": Case(lambda x: F.interpolate(x, scale_factor=2.0, mode="nearest"), [[1, 2, None, 5]]),
    "bilinear_factor": Case(lambda x: F.interpolate(x, scale_factor=1.5, mode="bilinear"), IMAGE),
    "bilinear_size": Case(lambda x: F.interpolate(x, size=(9, 4), mode="bilinear", align_corners=False), IMAGE),
    "bilinear_corners": Case(lambda x: F.interpolate(x, size=(9, 4), mode="bilinear", align_corners=True), IMAGE),
    "bilinear_dynamic": Case(lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"), [[1, 2, None, 5]]),
    "log1p": Case(lambda x: torch.log1p(x.abs()) + torch.log1p(-0.75 * torch.sigmoid(x)), MATRIX),
    "log1p_near_zero": Case(lambda x: 1e5 * torch.log1p(x * 1e-6), MATRIX),
    "softplus": Case(F.softplus, MATRIX, 20),
    "softplus_small": Case(lambda x: F.softplus(-12 - x.abs()) * 1e6, MATRIX),
    "softplus_beta": Case(lambda x: F.softplus(x, beta=2.5), MATRIX),
    "softplus_threshold": Case(lambda x: F.softplus(x, 2, threshold=1), MATRIX),
    "softplus_negative_beta": Case(lambda x: F.softplus(x, -0.5, 4.0), MATRIX, 10),
    "softplus_half": Case(lambda x: F.softplus(x.half()).float(), MATRIX, 1),
    "softplus_by_hand": Case(lambda x: torch.where(x > 20, x, torch.log1p(torch.exp(x))) + torch.where(x > 2, x, torch.log1p(torch.exp(-x))), MATRIX),
    "mish": Case(F.mish, MATRIX, 20),
    "mish_small": Case(lambda x: F.mish(-12 - x.abs()) * 1e5, MATRIX),
    "mish_in_place": Case(lambda x: F.mish(x * 2, inplace=True), MATRIX),
    "logsigmoid": Case(F.logsigmoid, MATRIX, 20),
    "logsigmoid_small": Case(lambda x: F.logsigmoid(12 + x.abs()) * 1e6, MATRIX),
    "maximum_number": Case(lambda x: torch.maximum(x, torch.full((), 0.25)) - torch.minimum(torch.full((), -1.5), x), MATRIX),
    "instance_norm": Case(lambda x: F.instance_norm(x), [[None, 3, 5, 7]]),
    "instance_norm_rows": Case(lambda x: F.instance_norm(x, eps=0.1), [[2, 3, None]]),
    "instance_norm_volume": Case(lambda x, w, b: F.instance_norm(x, weight=w, bias=b), [[2, 3, 2, 3, 4], [3], [3]]),
    "instance_norm_unbatched": Case(lambda x: torch.nn.InstanceNorm1d(3)(x), [[3, 8]]),
    "batch_norm_of_input": Case(lambda x, w: F.batch_norm(x, None, None, w, training=True), [[None, 3, 4, 5], [3]]),
    "pixel_shuffle": Case(lambda x: F.pixel_shuffle(x, 2), [[None, 12, 3, 5]]),
    "pixel_shuffle_image": Case(lambda x: F.pixel_shuffle(x, 3), [[18, None, 4]]),
    "pixel_shuffle_volume": Case(lambda x: F.pixel_shuffle(x, 2), [[2, 3, 8, 2, 3]]),
    "pixel_unshuffle": Case(lambda x: F.pixel_unshuffle(x, 3), [[None, 2, 6, 9]]),
    "pixel_unshuffle_image": Case(lambda x: F.pixel_unshuffle(x, 2), [[3, 4, 6]]),
    "pixel_unshuffle_dynamic": Case(lambda x: F.pixel_unshuffle(torch.cat([x, x], 2), 2), [[2, 3, None, 6]]),
    "unsafe_index": Case(lambda x: torch.ops.aten._unsafe_index.Tensor(x, [None, torch.arange(4)]), MATRIX),
    "addmv": Case(lambda v, m, x: torch.addmv(v, m, x, beta=0.5, alpha=2.0), [[None], [None, 6], [6]]),
}


class Function(torch.nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, *tensors):
        return self.fn(*tensors)


class Projected(torch.nn.Module):
    """A weight as an operand of einsum."""

    def __init__(self, equation, *shape):
        super().__init__()
        self.equation = equation
        self.weight = torch.nn.Parameter(torch.randn(shape, generator=torch.Generator().manual_seed(1)))

    def forward(self, x):
        return torch.einsum(self.equation, x, self.weight)


def export(module, shapes, inputs, target, core=False):
    dynamic = tuple({i: ROWS for i, d in enumerate(shape) if d is None} for shape in shapes)
    program = torch.export.export(module.eval(), inputs, dynamic_shapes=(dynamic,) if isinstance(module, Function) else dynamic)
    torch.export.save(program.run_decompositions() if core else program, target)
    return target


def results(dovetail, program, which, calls, folder):
    if which == "executorch":
        method = runtime.Runtime.get().load_program(str(program)).load_method("forward")
        return [method.execute(call)[0].clone() for call in calls]
    paths = []
    for i, call in enumerate(calls):
        paths.append(folder / f"call{i}.npz")
        np.savez(paths[-1], **{f"input_{k}": t.numpy() for k, t in enumerate(call)})
    subprocess.run([dovetail, "run", program, *paths, "-o", folder / "results"], check=True, stderr=subprocess.PIPE)
    return [torch.from_numpy(np.load(folder / "results" / path.name)["output_0"]) for path in paths]


def check(dovetail, folder, module, case, which, core=False, flags=()):
    calls = [case.inputs(6, 0), case.inputs(6, 1)]
    if any(None in shape for shape in case.shapes):
        calls += [case.inputs(2, 2), case.inputs(11, 3)]
    source, program = export(module, case.shapes, calls[0], folder / "model.pt2", core), folder / "program.pte"
    done = subprocess.run([dovetail, "compile", source, "-o", program, "--runtime", which, *flags], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for call, got in zip(calls, results(dovetail, program, which, calls, folder), strict=True):
        with torch.no_grad():
            want = module(*call)
        assert got.shape == want.shape and got.dtype == want.dtype
        assert want.numel() > 0 and torch.isfinite(want).all()
        span = max(1.0, float(want.abs().max()))
        assert float((got.double() - want.double()).abs().max()) <= 1e-5 * span


@pytest.mark.parametrize("which", RUNTIMES)
@pytest.mark.parametrize("name", CASES)
def test_function(dovetail, tmp_path, name, which):
    check(dovetail, tmp_path, Function(CASES[name].fn), CASES[name], which)


@pytest.mark.parametrize("name", CASES)
def test_function_in_core_operators(dovetail, tmp_path, name):
    """As `run_decompositions` leaves it."""
    check(dovetail, tmp_path, Function(CASES[name].fn), CASES[name], "dovetail", core=True)


@pytest.mark.parametrize("which", RUNTIMES)
@pytest.mark.parametrize(
    "equation,x,weight",
    [("bi,oi->bo", [None, 6], [5, 6]), ("bti,io->bto", [2, None, 6], [6, 5]), ("bthd,hdo->bto", [2, None, 3, 4], [3, 4, 5])],
)
def test_einsum_with_a_weight(dovetail, tmp_path, equation, x, weight, which):
    module = Projected(equation, *weight)
    check(dovetail, tmp_path, module, Case(None, [x], 1), which)


class Upscaler(torch.nn.Module):
    """As small networks for images: normalization of each image, smooth activations, channels that become pixels."""

    def __init__(self, activation, tracked):
        super().__init__()
        torch.manual_seed(1)
        self.first, self.last = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.Conv2d(2, 12, 3, padding=1)
        self.norm = torch.nn.InstanceNorm2d(8, affine=True, track_running_stats=tracked)
        self.activation = activation
        for t in (self.norm.weight, self.norm.bias) + ((self.norm.running_mean, self.norm.running_var) if tracked else ()):
            t.data.uniform_(0.5, 2)

    def forward(self, x):
        y = self.activation(self.norm(self.first(x)))
        return F.pixel_unshuffle(F.pixel_shuffle(self.last(F.pixel_shuffle(y, 2)), 2), 4)


def all_activations(x):
    return F.mish(x) + F.logsigmoid(x) + F.softplus(x, 2.0) + torch.log1p(F.softplus(x))


@pytest.mark.parametrize("core", [False, True], ids=["", "core"])
@pytest.mark.parametrize("tracked", [False, True], ids=["", "tracked"])
@pytest.mark.parametrize("which", RUNTIMES)
def test_upscaler(dovetail, tmp_path, which, tracked, core):
    module = Upscaler(all_activations, tracked)
    check(dovetail, tmp_path, module, Case(None, [[None, 3, 4, 6]], 1), which, core, ["--backend", "xnnpack,cpu"])


@pytest.mark.parametrize("core", [False, True], ids=["", "core"])
def test_activations_stay_in_one_region(dovetail, tmp_path, core):
    source = export(Function(all_activations), MATRIX, (torch.ones(6, 6),), tmp_path / "model.pt2", core)
    done = subprocess.run([dovetail, "explain", source, "--backend", "xnnpack,cpu", "--json"], check=True, capture_output=True, text=True)
    nodes = json.loads(done.stdout)["nodes"]
    assert {n["backend"] for n in nodes} == {"xnnpack"} and "log1p" in {n["op"] for n in nodes}, nodes


EXTREMES = [float("inf"), -float("inf"), float("nan"), -1, -2, -0.9999999, -0.99, -0.4999, 0, 1e-30, -3e-8, 1.0001, 20.5, 100, -50, -5000, 1e30]


@pytest.mark.parametrize("fn", [torch.log1p, F.softplus, lambda x: F.softplus(x, 2, 1.0), F.mish, F.logsigmoid], ids=["log1p", "softplus", "softplus_threshold", "mish", "logsigmoid"])
@pytest.mark.parametrize("which", RUNTIMES)
def test_extremes(dovetail, tmp_path, fn, which):
    """All digits of small results too, also where XNNPACK computes them: sums around keep it from being too little work."""
    module = Function(lambda x: torch.stack([fn(x), fn(x + 0.0) * 2, fn(x * 1.0) * 0.5]))
    x = torch.tensor(EXTREMES)
    source, program = export(module, [[len(x)]], (x,), tmp_path / "model.pt2"), tmp_path / "program.pte"
    subprocess.run([dovetail, "compile", source, "-o", program, "--runtime", which, "--backend", "xnnpack,cpu"], check=True, stderr=subprocess.PIPE)
    torch.testing.assert_close(results(dovetail, program, which, [(x,)], tmp_path)[0], module(x), rtol=2e-6, atol=1e-35, equal_nan=True)


REFUSED = {
    "three": (lambda a: torch.einsum("ij,jk,kl->il", a, a, a), "3 operands"),
    "ellipsis": (lambda a: torch.einsum("...j,kj->...k", a, a), "ellipsis"),
    "diagonal": (lambda a: torch.einsum("ii->i", a), "twice in one operand"),
    "diagonal_of_any_size": (lambda a: torch.diagonal(a), "both must be constant"),
    "instance_norm_that_learns": (lambda a: F.instance_norm(a[None], torch.zeros(4), torch.ones(4)), "call model.eval() before torch.export.export"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusal(dovetail, tmp_path, name):
    fn, message = REFUSED[name]
    source = export(Function(fn), [[None, None] if name == "diagonal_of_any_size" else [4, 4]], (torch.ones(4, 4),), tmp_path / "model.pt2")
    done = subprocess.run([dovetail, "compile", source, "-o", tmp_path / "program.pte"], capture_output=True, text=True)
    assert done.returncode != 0 and message in done.stderr and "test_import_gaps.py" in done.stderr, done.stderr
