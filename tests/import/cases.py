"""Small models that show one thing each: how memory is shared and written, how types are promoted, how layers are built."""
import dataclasses
from typing import Any, Callable

import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim


@dataclasses.dataclass
class Case:
    name: str
    model: Callable[[], nn.Module]
    steps: Callable[[], list]
    dynamic: Any = None
    core: bool = False
    training: bool = False
    refused: bool = False


CASES = []


def case(steps, **options):
    """Makes a case of a module class."""
    def add(cls):
        name = "".join("_" + c.lower() if c.isupper() else c for c in cls.__name__).strip("_")
        CASES.append(Case(name, cls, steps, **options))
        return cls
    return add


def ramp(*shape, scale=0.5):
    n = 1
    for s in shape:
        n *= s
    return (torch.arange(n, dtype=torch.float32) * scale - n * scale / 3).reshape(shape)


# State.

@case(lambda: [(ramp(3),), (ramp(3) * 2,)], core=True)
class StateBroadcast(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("k", torch.ones(2, 3))

    def forward(self, x):
        old = self.k.sum()
        self.k.copy_(x)  # run_decompositions() makes x itself the new value
        return old


@case(lambda: [(torch.tensor([1]), torch.tensor([[5.0, 6.0]])), (torch.tensor([3]), torch.tensor([[7.0, 8.0]]))], core=True)
class StateInit(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("k", torch.ones(4, 2), persistent=False)

    def forward(self, pos, x):
        self.k.index_copy_(0, pos, x)
        return self.k + 0


@case(lambda: [(ramp(3),), (ramp(3) + 4,), (torch.zeros(3),)], core=True)
class StateReplaced(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("b", torch.zeros(3))

    def forward(self, x):
        old = self.b.clone()
        self.b.copy_(x)
        return old


@case(lambda: [(ramp(1, 2, 2),), (ramp(1, 2, 2) * 3,), (ramp(1, 2, 2) - 1,)], core=True)
class StateIndirect(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("st", torch.zeros(1, 2, 3))
        self.conv = nn.Conv1d(2, 2, 4)

    def forward(self, x):
        h = torch.cat([self.st, x], -1)
        self.st.copy_(h[..., -3:])
        return self.conv(h)


@case(lambda: [(torch.ones(2),)] * 3, core=True)
class StateCrossCopy(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("a", torch.zeros(2))
        self.register_buffer("b", 2 * torch.ones(2))

    def forward(self, x):
        t = self.a.clone()
        self.a.copy_(self.b + x)
        self.b.copy_(t)
        return torch.cat([self.a, self.b])


@case(lambda: [(ramp(3),), (ramp(3) * 2,)], core=True)
class StateReadAfterValue(nn.Module):
    """The new value is computed before the old one is read."""
    def __init__(self):
        super().__init__()
        self.register_buffer("b", torch.full((3,), 7.0))

    def forward(self, x):
        new = x * 2
        y = self.b + 1
        self.b.copy_(new)
        return y


@case(lambda: [(ramp(3),), (ramp(3) * 2,)], core=True)
class StateReturned(nn.Module):
    """Results that are the state itself see its last value."""
    def __init__(self):
        super().__init__()
        self.register_buffer("b", torch.full((2, 3), 7.0))

    def forward(self, x):
        row = self.b[0]
        self.b.add_(x)
        early = self.b + 0
        self.b[1].mul_(2)
        return self.b, row, early


@case(lambda: [(ramp(2),), (ramp(2) * 2,)])
class StateTwoNames(nn.Module):
    def __init__(self):
        super().__init__()
        shared = torch.ones(2)
        self.register_buffer("a", shared)
        self.register_buffer("b", shared)

    def forward(self, x):
        self.a.add_(x)
        return self.b * 2


@case(lambda: [(torch.tensor(3), ramp(2, 3)), (torch.tensor(5), ramp(2, 3) * 2)])
class StateAtItem(nn.Module):
    """Writes and reads at a position that is the contents of a tensor."""
    def __init__(self):
        super().__init__()
        self.register_buffer("b", ramp(8, 3))

    def forward(self, pos, x):
        p = pos.item()
        torch._check(p >= 0)
        torch._check(p + 2 <= 8)
        self.b.narrow(0, p, 2).copy_(x)
        return self.b.narrow(0, p, 2) * 2, self.b[p] + p, self.b + 0


@case(lambda: [(torch.tensor([2.0]),), (torch.tensor([3.0]),)], core=True)
class StateOfNumber(nn.Module):
    """A counter of integers, and a state of half precision; arithmetic keeps the state's type."""
    def __init__(self):
        super().__init__()
        self.register_buffer("n", torch.tensor(0))
        self.register_buffer("h", torch.ones(2, dtype=torch.float16))

    def forward(self, x):
        self.n += 1
        self.h.mul_(3).add_(x, alpha=0.5)
        return x * self.n, self.h.float(), self.n % 1 if False else self.n + 0


# Memory that is shared and written.

@case(lambda: [(ramp(3),), (ramp(3) * 2,)])
class ViewChain(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("b", ramp(4, 6))

    def forward(self, x):
        v = self.b[1:3].transpose(0, 1)[2:5]
        w = v.unsqueeze(0).permute(2, 0, 1)
        v.mul_(2)
        v[:, 1].add_(x)
        w[0, 0, 1:].sub_(1)
        self.b[::2, 1].fill_(3)
        self.b.view(2, 2, 6)[1, :, ::3] = x[0]
        return self.b + 0, v * 1, w.sum(-1)


@case(lambda: [(ramp(2, 3),)], core=True)
class ViewOfTemporary(nn.Module):
    def forward(self, x):
        y = x * 2
        z = y.view(-1)
        z.add_(1)
        y[0].zero_()
        a, b = y.split([1, 2], dim=1)
        b.neg_()
        top = y.unbind(0)[1]
        top.relu_()
        return y, z, a + 0


@case(lambda: [(ramp(2, 3),)])
class ReshapeCopies(nn.Module):
    """reshape of a transposed tensor is a copy, of a contiguous one a view; contiguous() of either likewise."""
    def forward(self, x):
        y = (x * 2).t()
        z = y.reshape(-1)
        z.add_(1)
        u = y.contiguous()
        u.mul_(5)
        w = x * 3
        w.reshape(3, 2).flatten().add_(100)
        w.contiguous().mul_(2)
        e = x * 4
        e.reshape(2, 1, 3).transpose(0, 1).reshape(2, 3).sub_(1)
        return y + 0, z, u, w, e


@case(lambda: [(ramp(2, 3), ramp(2, 3) * 2)])
class InputWritten(nn.Module):
    def forward(self, x, y):
        y.transpose(0, 1)[1].mul_(10)
        z = x + y
        x.copy_(y)
        return z


# Types.

@case(lambda: [(ramp(3), torch.tensor([1, -2, 3]), torch.tensor([True, False, True]))])
class Promotion(nn.Module):
    def forward(self, x, i, b):
        h = x.half()
        zero_d = torch.tensor(0.5, dtype=torch.float64)
        return (i + 0.5, i + b, b + 1, b * 2.5, h + x, h * zero_d, x * zero_d, i / 2, i / i, i * 2, 1 - i, 2.0 - x, i > 0.5, i == b, x.add(i, alpha=2),
                i.sub(i, alpha=3), torch.where(b, i, 1.5), torch.where(b, h, x), i.masked_fill(b, 9), torch.cat([i, x]), torch.stack([h, x]), i.mean(dtype=torch.float32),
                b.sum(), i.sum(), i.float().mean(), torch.full((2,), 3), torch.full((2,), True), i ** 2, x.clamp(min=0), i.clamp(max=1), ~b, b & (x > 0), b ^ (i > 0))


@case(lambda: [(ramp(3, 4),), (ramp(5, 4),)], dynamic=({0: Dim("n", min=3, max=6)},))
class DynamicShapes(nn.Module):
    def forward(self, x):
        n = x.shape[0]
        a, b = x.reshape(n, 2, -1).unbind(1)
        c, d = x.chunk(2, dim=1)
        grown = torch.cat([x, x], 0)
        ones = x.new_ones(n, 2)
        ramped = torch.arange(n) * 2
        return (a * b, c - d, grown.view(2, n, 4).sum(0), x[1:] - x[:-1], x.unsqueeze(1).expand(-1, 3, -1).flatten(0, 1), ones * n, ramped + n, x[-1], x.flatten(), torch.zeros(n, n).tril() + x.sum(),
                x.repeat(2, 1).repeat_interleave(2, dim=1), x.t()[1:3], n)


# Layers.

@case(lambda: [(ramp(2, 4, 6, scale=0.1), ramp(2, 4, 6, 6, scale=0.05))])
class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln, self.gn, self.rms = nn.LayerNorm(6), nn.GroupNorm(2, 4), nn.RMSNorm(6, eps=1e-5)
        self.bn1, self.bn2 = nn.BatchNorm1d(4), nn.BatchNorm2d(4, affine=False)
        self.same1, self.same2 = nn.Conv1d(4, 3, 4, padding="same"), nn.Conv2d(4, 2, (3, 2), padding="same", dilation=2)
        self.up = nn.ConvTranspose1d(4, 2, 3, stride=2, padding=1, output_padding=1)
        self.prelu = nn.PReLU(4)
        for m in (self.bn1, self.bn2):
            m.running_mean.copy_(torch.tensor([0.1, -0.2, 0.3, 0.0]))
            m.running_var.copy_(torch.tensor([1.5, 0.5, 1.0, 2.0]))

    def forward(self, x, y):
        return (self.ln(x), self.gn(x), self.rms(x), self.bn1(x), self.bn2(y), self.same1(x), self.same2(y), self.up(x), self.prelu(y), F.adaptive_avg_pool2d(y, 1), F.adaptive_avg_pool2d(y, (3, 2)),
                F.max_pool2d(y, 2), F.avg_pool2d(y, 3, 2, padding=1), F.pad(x, (1, 2)), F.pad(x, (2, 1), mode="reflect"), F.dropout(x, 0.5, self.training))


@case(lambda: [(ramp(2, 3), ramp(2, 4), torch.zeros(2, 0), torch.zeros(0, 4))])
class Ranges(nn.Module):
    def forward(self, x, y, wide, high):
        # Clamps whose ranges do not meet; sums of no elements.
        return (F.relu(F.hardtanh(x, -2, -1)), F.relu6(x).clamp(-5, 5).clamp(8, 9), x.clamp(1, 2).clamp(-1, 0.5), y + wide @ high, F.softmax(wide, -1), F.linear(wide, wide), F.max_pool2d(wide.reshape(0, 2, 4, 4), 2))


@case(lambda: [(ramp(2, 6, scale=0.3),)])
class Activations(nn.Module):
    def forward(self, x):
        return (F.relu6(x), F.hardswish(x), F.hardsigmoid(x), F.hardtanh(x), F.leaky_relu(x, 0.2), F.elu(x), F.glu(x), F.silu(x), F.gelu(x), F.gelu(x, approximate="tanh"), F.softmax(x, -1), F.log_softmax(x, 1),
                torch.square(x), x.abs(), x.rsqrt().isnan(), (x / 0).isinf(), x.sigmoid(), x.tanh(), x.exp(), x.sin(), torch.maximum(x, -x), torch.minimum(x, x * 2), x.reciprocal())


@case(lambda: [(ramp(2, 4, scale=0.2), ramp(2, 3, scale=0.1))])
class Cells(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.gru = nn.LSTMCell(4, 3), nn.GRUCell(4, 3, bias=False)

    def forward(self, x, h):
        a, b = self.lstm(x, (h, h * 2))
        return a, b, self.gru(x, h)


@case(lambda: [(ramp(1, 4, 3, 8, scale=0.02), ramp(1, 2, 5, 8, scale=0.03), ramp(3, 5) > 0)])
class Attention(nn.Module):
    def forward(self, q, k, mask):
        k4 = k.repeat_interleave(2, dim=1)
        return (F.scaled_dot_product_attention(q, k, k, enable_gqa=True), F.scaled_dot_product_attention(q, k4, k4, attn_mask=mask), F.scaled_dot_product_attention(q, q, q, is_causal=True, scale=0.5),
                F.scaled_dot_product_attention(q[0], k4[0], k4[0], attn_mask=mask.float()), F.scaled_dot_product_attention(q[0, 0], k[0, 0], k[0, 1]))


@case(lambda: [(ramp(3, 4), ramp(4, 2), ramp(2, 3, 4))])
class Products(nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.b = nn.Parameter(ramp(5, 4)), nn.Parameter(ramp(5))

    def forward(self, x, y, z):
        return (torch.mm(x, y), torch.addmm(self.b, x, self.w.t()), torch.addmm(self.b, x, self.w.t(), beta=2, alpha=0.5), torch.mm(x, self.w.t()), torch.baddbmm(z.new_ones(1), z, z.transpose(1, 2)), torch.mv(x, y[:, 0]),
                torch.dot(x[0], x[1]), z @ y, x @ y[:, 1])


@case(lambda: [(ramp(3, 4), torch.tensor([[0, 3, 1], [2, 2, 0]]), torch.tensor([2, 0]))])
class Indexing(nn.Module):
    def forward(self, x, i, r):
        return (x.gather(1, i), torch.zeros(3, 4).scatter(1, i, 2.0), torch.zeros(3, 4).scatter_add(1, i, x[:2, :3]), x.index_select(0, r), x[r, 1:], x[:, r], x.index_add(0, r, x[:2], alpha=2), x.index_fill(1, r, -1.0),
                x.select_scatter(x[0], 0, -1), x.tril(1), x.triu(), x.masked_fill(x > 1, 0.5), x.index_copy(0, r, x[1:]))


@case(lambda: [(ramp(3, 4),)])
class Reductions(nn.Module):
    def forward(self, x):
        return (x.sum(), x.sum(0), x.mean(), x.mean((0, 1), keepdim=True), x.var(), x.var(1, unbiased=False), x.std(1), torch.var(x, 0, correction=2), x.amax(), x.amin(1), x.max(), x.min(), (x > 0).any(), (x > -9).all(), (x > 1).any(1),
                (x > 1).all(0, keepdim=True))


@case(lambda: [(ramp(2, 4, scale=0.1), ramp(2, 2, 2, scale=0.2))], core=False)
class ComplexNumbers(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("c", torch.complex(ramp(4, 4), ramp(4, 4) * 2)[::2, 1:3])

    def forward(self, x, y):
        z = torch.view_as_complex(x.view(2, 2, 2))
        w = torch.view_as_complex(y)
        p = torch.polar(x[:, :2] + 3, x[:, 2:])
        s = (z * w + z - w) * 2.0
        return torch.view_as_real(s), torch.view_as_real(z * self.c), (p * z).abs(), (z.unsqueeze(0).transpose(1, 2) * w).real, torch.view_as_real(z.t()[1:]), s.imag * 1


# Refused, each with its message.

@case(lambda: [(ramp(4, 3),)], training=True, refused=True)
class RefusedTraining(nn.Module):
    def __init__(self):
        super().__init__()
        self.bn, self.drop = nn.BatchNorm1d(3), nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(self.bn(x))


@case(lambda: [(ramp(4, 3),)], refused=True)
class RefusedOperators(nn.Module):
    def forward(self, x):
        a = torch.linalg.svdvals(x)
        b = torch.fft.rfft(x).abs()
        c = torch.linalg.svdvals(x + 1)
        return a + c, b, torch.cholesky(x.t() @ x)


@case(lambda: [(torch.tensor(3),)], refused=True)
class RefusedSize(nn.Module):
    def forward(self, n):
        size = n.item()
        torch._check(size >= 2)
        torch._check(size <= 100)
        return torch.ones(size).sum()


@case(lambda: [(ramp(2, 2),)], refused=True)
class RefusedOverlap(nn.Module):
    def __init__(self):
        super().__init__()
        whole = torch.zeros(4, 2)
        self.register_buffer("whole", whole)
        self.register_buffer("part", whole[1:3])

    def forward(self, x):
        self.part.copy_(x)
        return self.whole.sum() + x


# Operators made of others; at the end, so that the lines above stay where recordings and tests say they are.

@case(lambda: [(torch.tensor([[1.0, 3.0, 3.0], [2.0, float("nan"), 9.0]]), torch.tensor([4, -1, 4, -1]))])
class Positions(nn.Module):
    """The first of equal extremes, and a NaN before all."""
    def forward(self, x, i):
        return (x.argmax(1), x.argmin(-1, keepdim=True), x[0].argmax(), x[:1].argmin(keepdim=True), i.argmax(0), i.argmin(), *x.max(1), *x[:1].min(0), i.max(0, keepdim=True)[1])


@case(lambda: [(ramp(3, 4),)])
class Flips(nn.Module):
    def forward(self, x):
        return x.flip(0), x.flip(-1, 0), x.flip(()) + 1


@case(lambda: [(ramp(1, 2, 5, scale=0.1),)])
class WeightNorms(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.utils.parametrizations.weight_norm(nn.Conv1d(2, 3, 2))
        self.lin = torch.nn.utils.parametrizations.weight_norm(nn.Linear(5, 2), dim=1)

    def forward(self, x):
        return self.conv(x), self.lin(x)


@case(lambda: [(ramp(3, 6, scale=2.0),), (ramp(2, 6, scale=9.0),)], core=True, dynamic=({0: Dim("n", min=2, max=6)},))
class SmoothActivations(nn.Module):
    """Far from zero on both sides too, where exp(x) is too large or 1 + exp(x) is 1."""
    def forward(self, x):
        return (F.mish(x), F.softplus(x), F.softplus(x, 0.5, 3), F.softplus(x.half(), 2), F.softplus(x.double()), F.logsigmoid(x), F.logsigmoid(x.bfloat16()), x.abs().log1p(),
                (x * 1e-6).log1p(), F.mish(x * 1, inplace=True), x.long().log1p(), F.softplus(x[0, 0], threshold=-1.0))


@case(lambda: [(ramp(3, 4, 5, 2, scale=0.1),), (ramp(1, 4, 5, 2, scale=0.3),)], core=True, dynamic=({0: Dim("n", max=6)},))
class NormsOfInput(nn.Module):
    """Statistics of each channel of each image, and of each channel of all; kept ones are used where there are any."""
    def __init__(self):
        super().__init__()
        self.plain, self.affine, self.tracked = nn.InstanceNorm2d(4), nn.InstanceNorm2d(4, eps=0.1, affine=True), nn.InstanceNorm2d(4, track_running_stats=True)
        self.line, self.batch = nn.InstanceNorm1d(4, affine=True), nn.BatchNorm2d(4, track_running_stats=False)
        for p in (self.affine.weight, self.affine.bias, self.line.weight, self.line.bias, self.batch.weight, self.batch.bias, self.tracked.running_mean, self.tracked.running_var):
            p.data.copy_(torch.tensor([0.5, 1.5, 0.75, 2.0]))

    def forward(self, x):
        return self.plain(x), self.affine(x), self.tracked(x), self.line(x[:, :, 0]), self.line(x[0, :, :, 0]), self.batch(x), self.plain(x[0])


@case(lambda: [(ramp(2, 8, 3, 4), ramp(2, 2, 6, 4)), (ramp(3, 8, 3, 4), ramp(3, 2, 6, 4))], core=True, dynamic=({0: Dim("n", max=6)}, {0: Dim("n", max=6)}))
class PixelShuffles(nn.Module):
    def forward(self, x, y):
        return F.pixel_shuffle(x, 2), F.pixel_shuffle(x[0], 2), F.pixel_shuffle(x, 1), F.pixel_unshuffle(y, 2), F.pixel_unshuffle(y[:, None], 2), F.pixel_unshuffle(F.pixel_shuffle(x, 2), 2) * 2


@case(lambda: [(ramp(2, 3, 4),)], training=True, refused=True)
class RefusedInstanceNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.InstanceNorm1d(3, track_running_stats=True)

    def forward(self, x):
        return self.norm(x)
