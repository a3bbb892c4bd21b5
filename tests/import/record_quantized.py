"""Exports small models that were quantized in PyTorch, with what eager PyTorch gives for the quantized programs.

    python tests/import/record_quantized.py [NAME ...]

For every case: tests/fixtures/quantized/NAME.pt2 and NAME.ref.safetensors, in the form that record.py describes. "pt2e" cases went through
torchao's prepare_pt2e and convert_pt2e with ExecuTorch's XNNPACKQuantizer, "ao" cases through torchao's quantize_. The references are the outputs
of the quantized program, not of the float model, so an importer must meet them to rounding. Needs the packages executorch and torchao.
"""
import copy
import dataclasses
import io
import sys
import warnings
from typing import Any, Callable

import torch
import torch.nn.functional as F
from executorch.backends.transforms.duplicate_dynamic_quant_chain import DuplicateDynamicQuantChainPass
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.export import Dim
from torchao.quantization import (
    Int8DynamicActivationInt8WeightConfig, Int8DynamicActivationIntxWeightConfig, Int8WeightOnlyConfig, IntxWeightOnlyConfig, quantize_,
)
from torchao.quantization.granularity import PerAxis, PerGroup
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.quantization.pt2e.quantizer import QuantizationAnnotation, QuantizationSpec, Quantizer
from torchao.quantization.pt2e.quantizer.quantizer import Q_ANNOTATION_KEY
from torchao.utils import unwrap_tensor_subclass

from record import ROOT, slim, tensors

OUT = ROOT / "tests/fixtures/quantized"
Steps = list[tuple[Tensor, ...]]


@dataclasses.dataclass
class Case:
    name: str
    program: Callable[["Case"], Any]  # the exported, quantized program
    model: Callable[[], nn.Module]
    steps: Callable[[], Steps]  # calls in order on one instance; the first is the example to export with
    dynamic: Any = None


CASES: list[Case] = []


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def noise(seed: int, *shape: int, scale: float = 1.0) -> Tensor:
    return torch.randn(*shape, generator=seeded(seed)) * scale


# How a model becomes a quantized program.

def export(model: nn.Module, case: Case):
    return torch.export.export(model, copy.deepcopy(case.steps()[0]), dynamic_shapes=case.dynamic)


def xnnpack_quantizer(**options) -> XNNPACKQuantizer:
    return XNNPACKQuantizer().set_global(get_symmetric_quantization_config(**options))


def pt2e(quantizer: Quantizer, duplicate_chains: bool = False):
    """Post-training quantization of an exported graph, calibrated with the case's own calls."""

    def program(case: Case):
        model = case.model().eval()
        buffers = {name: value.clone() for name, value in model.named_buffers()}
        prepared = prepare_pt2e(export(model, case).module(), quantizer)
        for args in case.steps():
            prepared(*copy.deepcopy(args))
        for name, value in prepared.named_buffers():  # calibration wrote the states
            if name in buffers:
                value.copy_(buffers[name])
        converted = convert_pt2e(prepared)
        if duplicate_chains:
            DuplicateDynamicQuantChainPass()(converted)
        return export(converted, case)

    return program


def ao(*configs, embedding=None, unwrap: bool = True):
    """Weights replaced by tensor subclasses, which unwrap_tensor_subclass takes apart into plain tensors before the export."""

    def program(case: Case):
        model = case.model().eval()
        for config in configs:
            quantize_(model, config)
        if embedding is not None:
            quantize_(model, embedding, lambda module, name: isinstance(module, nn.Embedding))
        return export(unwrap_tensor_subclass(model) if unwrap else model, case)

    return program


def case(name: str, program, steps: Callable[[], Steps], dynamic=None):
    def add(model):
        CASES.append(Case(name, program, model, steps, dynamic))
        return model

    return add


# Static int8.

def images(shape: tuple[int, ...]) -> Callable[[], Steps]:
    return lambda: [(noise(10 + i, *shape),) for i in range(3)]


@case("pt2e_static_per_channel", pt2e(xnnpack_quantizer(is_per_channel=True)), images((2, 3, 8, 8)), ({0: Dim("batch", min=1, max=8)},))
@case("pt2e_static_per_tensor", pt2e(xnnpack_quantizer()), images((2, 3, 8, 8)))
class Residual(nn.Module):
    """conv-bn-relu, a residual sum, max pooling, cat of two branches, linear."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.body = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8))
        self.left, self.right = nn.Conv2d(8, 4, 1), nn.Conv2d(8, 6, 1)
        self.head = nn.Linear(10 * 16, 10)
        for index, layer in enumerate(m for m in self.modules() if isinstance(m, nn.BatchNorm2d)):
            layer.running_mean, layer.running_var = noise(index, 8, scale=0.1), 0.5 + noise(9 + index, 8).abs()

    def forward(self, x: Tensor) -> Tensor:
        y = self.stem(x)
        y = F.max_pool2d(F.relu(y + self.body(y)), 2)
        return self.head(torch.cat([self.left(y), self.right(y)], 1).flatten(1))


@case("pt2e_static_convolutions", pt2e(xnnpack_quantizer(is_per_channel=True)), images((1, 4, 6, 6)))
class Convolutions(nn.Module):
    """Depthwise, grouped, strided, dilated and transposed (per-channel axis 1) convolutions, ReLU6, a product, pooling by mean."""

    def __init__(self) -> None:
        super().__init__()
        self.depthwise, self.grouped = nn.Conv2d(4, 8, 3, padding=1, groups=4), nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=2)
        self.up, self.down = nn.ConvTranspose2d(8, 6, 3, stride=2, padding=1), nn.Conv2d(6, 6, 3, stride=2)
        with torch.no_grad():
            self.up.weight.mul_(10.0 ** (torch.arange(6) % 3 - 1).view(1, 6, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu6(self.depthwise(x))
        y = y * self.grouped(y)
        return F.adaptive_avg_pool2d(self.down(self.up(y)), 1)


def one_dimension() -> Steps:
    return [(noise(20 + i, 1, 2, 16),) for i in range(2)]


@case("pt2e_static_conv1d", pt2e(xnnpack_quantizer(is_per_channel=True)), one_dimension)
class Sequence(nn.Module):
    """1-d convolutions with an even kernel and padding "same": one more zero on the right."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow = nn.Conv1d(2, 4, 4, padding="same"), nn.Conv1d(4, 4, 2, padding="same")

    def forward(self, x: Tensor) -> Tensor:
        return self.narrow(F.relu(self.wide(x)))


# Dynamic int8.

def activations() -> Steps:
    return [(noise(30, 5, 32),), (noise(31, 1, 32, scale=4.0),), (torch.zeros(2, 32),)]


DYNAMIC = xnnpack_quantizer(is_per_channel=True, is_dynamic=True)
ROWS = ({0: Dim("rows", min=1, max=16)},)


@case("pt2e_dynamic_shared", pt2e(DYNAMIC), activations, ROWS)
@case("pt2e_dynamic_duplicated", pt2e(DYNAMIC, duplicate_chains=True), activations, ROWS)
class SharedInputs(nn.Module):
    """q, k and v of one activation, then SwiGLU: one quantized chain with several users, or the same chain for each user."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = nn.Linear(32, 32), nn.Linear(32, 16), nn.Linear(32, 16, bias=False)
        self.out = nn.Linear(32, 32)
        self.gate, self.up, self.down = nn.Linear(32, 48, bias=False), nn.Linear(32, 48, bias=False), nn.Linear(48, 32, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.out(self.q(x) * torch.cat([self.k(x), self.v(x)], -1)) + x
        return y + self.down(F.silu(self.gate(y)) * self.up(y))


# Static int8 with a state.

def tokens() -> Steps:
    """A prompt of three rows, then single rows."""
    steps, position = [], 0
    for index, count in enumerate((3, 1, 1, 1)):
        steps.append((noise(40 + index, count, 16), torch.arange(position, position + count)))
        position += count
    return steps


COUNT = Dim("count", min=1, max=7)


@case("pt2e_static_cache", pt2e(xnnpack_quantizer(is_per_channel=True)), tokens, ({0: COUNT}, {0: COUNT}))
class Cache(nn.Module):
    """Attention over rows that index_put_ writes, from a cache that is not zero at first."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(16, 16) for _ in range(4))
        self.register_buffer("k_cache", noise(1, 8, 16))
        self.register_buffer("v_cache", noise(2, 8, 16))

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        self.k_cache[position] = self.k(x)
        self.v_cache[position] = self.v(x)
        scores = self.q(x) @ self.k_cache.t() * 0.25
        return self.out(torch.softmax(scores, -1) @ self.v_cache) + x


class OneSpec(Quantizer):
    """Gives index_put_'s state, its rows and its result one shared 8-bit format."""

    def annotate(self, model: torch.fx.GraphModule) -> torch.fx.GraphModule:
        from torchao.quantization.pt2e import MinMaxObserver
        from torchao.quantization.pt2e.quantizer import SharedQuantizationSpec

        spec = QuantizationSpec(dtype=torch.int8, quant_min=-128, quant_max=127, qscheme=torch.per_tensor_affine,
                                observer_or_fake_quant_ctr=MinMaxObserver)
        for node in model.graph.nodes:
            if node.target == torch.ops.aten.index_put_.default:
                state, _, rows = node.args[:3]
                shared = SharedQuantizationSpec((rows, node))
                node.meta[Q_ANNOTATION_KEY] = QuantizationAnnotation(input_qspec_map={rows: spec, state: shared}, output_qspec=shared, _annotated=True)
        return model

    def validate(self, model: torch.fx.GraphModule) -> None:
        pass


@case("pt2e_observed_state", pt2e(OneSpec()), lambda: [(torch.tensor([value]), torch.tensor([index])) for value, index in ((3.0, 2), (4.0, 0), (1.0, 1))])
class ObservedState(nn.Module):
    """The state itself is observed: its write must not end in a temporary, and each call sees the earlier ones."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.zeros(4))

    def forward(self, x: Tensor, index: Tensor) -> Tensor:
        self.state.index_put_((index,), x)
        return self.state + 0


# torchao's quantize_.

def hidden_rows() -> Steps:
    return [(noise(50, 3, 64),), (noise(51, 1, 64, scale=3.0),)]


# torchao 0.18 has no Int8DynamicActivationInt4WeightConfig; this is what replaced it (8da4w).
INT4 = dict(weight_dtype=torch.int4, weight_granularity=PerGroup(32))


@case("ao_8da4w", ao(Int8DynamicActivationIntxWeightConfig(**INT4)), hidden_rows, ROWS)
@case("ao_8da4w_subclass", ao(Int8DynamicActivationIntxWeightConfig(**INT4), unwrap=False), hidden_rows, ROWS)
@case("ao_8da8w", ao(Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int8, weight_granularity=PerAxis(0))), hidden_rows, ROWS)
@case("ao_int8_dynamic", ao(Int8DynamicActivationInt8WeightConfig()), hidden_rows, ROWS)
@case("ao_int8_weight_only", ao(Int8WeightOnlyConfig()), hidden_rows, ROWS)
@case("ao_intx4_weight_only", ao(IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32))), hidden_rows, ROWS)
@case("ao_intx8_weight_only", ao(IntxWeightOnlyConfig(weight_dtype=torch.int8, granularity=PerAxis(0))), hidden_rows, ROWS)
class Feed(nn.Module):
    """Two linears, one with a bias, and an input of hidden size 64."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(64, 96), nn.Linear(96, 64, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.up(x)))


@case("ao_8da4w_embedding", ao(Int8DynamicActivationIntxWeightConfig(**INT4), embedding=IntxWeightOnlyConfig(weight_dtype=torch.int8, granularity=PerAxis(0))),
      lambda: [(torch.tensor([[1, 5, 30]]),), (torch.tensor([[7]]),)], ({1: Dim("length", min=1, max=8)},))
class Vocabulary(nn.Module):
    """Ids to logits: an embedding of 8-bit rows, and a head of rank 3."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(32, 64), nn.Linear(64, 32, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(F.silu(self.embed(ids)))


# Of these, the program after run_decompositions() too, as NAME.core.pt2.
DECOMPOSED = ("pt2e_static_conv1d",)


def record(case: Case) -> None:
    torch.manual_seed(0)
    with torch.no_grad():
        program = case.program(case)
        buffer = io.BytesIO()
        torch.export.save(program, buffer)
        (OUT / f"{case.name}.pt2").write_bytes(slim(buffer.getvalue()))
        if case.name in DECOMPOSED:
            buffer = io.BytesIO()
            torch.export.save(program.run_decompositions(), buffer)
            (OUT / f"{case.name}.core.pt2").write_bytes(slim(buffer.getvalue()))
        module, reference = program.module(), {}
        for index, args in enumerate(case.steps()):
            reference |= tensors("in", index, args)
            reference |= tensors("out", index, module(*copy.deepcopy(args)))
    save_file(reference, OUT / f"{case.name}.ref.safetensors")


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    OUT.mkdir(parents=True, exist_ok=True)
    for case in CASES:
        if len(sys.argv) < 2 or case.name in sys.argv[1:]:
            record(case)
            print(case.name, (OUT / f"{case.name}.pt2").stat().st_size)
