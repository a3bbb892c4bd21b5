"""ExecuTorch: as its export recipes make programs, and as its LLM tooling does, with custom attention and cache operators."""

from pathlib import Path
from typing import Any

import numpy as np

from .work import LANGUAGES, NotMeasured, Stopwatch, Work

VARIANTS = {
    "executorch": "ExecuTorch, XNNPACK recipes of executorch.export",
    "executorch-tuned": "ExecuTorch, llama.custom_sdpa and llama.update_cache, torchao 8da8w / 8da4w, float cache",
}
VENV = "project"


def supports(variant: str, model: str) -> bool:
    return variant == "executorch" or model in LANGUAGES


def _program(folder: Path) -> Path:
    return folder / "program.pte"


def _recipe(model: str, scheme: str):
    from executorch.backends.xnnpack.recipes.xnnpack_recipe_types import XNNPackRecipeType
    from executorch.export import ExportRecipe

    # PT2E turns the integers that transformers computes MiniLM's mask of into floats, and the capture then fails: torchao quantizes it.
    if scheme == "f32" or model == "minilm":
        return ExportRecipe.get_recipe(XNNPackRecipeType.FP32)
    if scheme == "int4":
        return ExportRecipe.get_recipe(XNNPackRecipeType.TORCHAO_INT8_DYNAMIC_ACT_INT4_WEIGHT_PER_TENSOR, group_size=32)
    static = model == "mobilenet"
    return ExportRecipe.get_recipe(
        XNNPackRecipeType.PT2E_INT8_STATIC_PER_CHANNEL if static else XNNPackRecipeType.PT2E_INT8_DYNAMIC_PER_CHANNEL
    )


def _quantized_graph(module, calls, shapes, quantizer):
    """What the recipe's own PT2E stage does, but for a dynamic length: that stage captures the model at the example's shapes only."""
    import torch
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    graph = prepare_pt2e(torch.export.export(module, calls[0], dynamic_shapes=shapes, strict=True).module(), quantizer)
    for call in calls:
        graph(*call)
    return convert_pt2e(graph)


def _quantize_linears(module, bits: int) -> None:
    """torchao's 8da8w by channel or 8da4w in groups of 32."""
    import torch
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig, quantize_
    from torchao.quantization.granularity import PerAxis, PerGroup

    weight, granularity = (torch.int4, PerGroup(32)) if bits == 4 else (torch.int8, PerAxis(0))
    quantize_(module, Int8DynamicActivationIntxWeightConfig(weight_dtype=weight, weight_granularity=granularity))


def _by_recipe(model: str, scheme: str, folder: Path) -> dict[str, float]:
    import executorch.backends.xnnpack.recipes  # noqa: F401, registers them
    import torch
    from executorch.export import export

    from . import models

    module = models.module(model)
    calls = models.calibration(model) if scheme == "int8" else [models.inputs(model)]
    if model in LANGUAGES:
        calls = [models.inputs(model)]
    shapes = models.dynamic_shapes(model)
    recipe = _recipe(model, scheme)
    watch = Stopwatch()
    with torch.no_grad():
        if scheme == "int8" and model == "minilm":
            _quantize_linears(module, 8)
        elif scheme == "int8" and shapes:
            [quantizer] = recipe.quantization_recipe.quantizers
            module = _quantized_graph(module, calls, shapes, quantizer)
        session = export(module, calls, recipe, dynamic_shapes={"forward": shapes} if shapes else None)
        session.save_to_pte(str(_program(folder)))
    return watch.read()


def _tuned(model: str, scheme: str, folder: Path) -> dict[str, float]:
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackDynamicallyQuantizedPartitioner, XnnpackPartitioner
    from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge_transform_and_lower
    from executorch.exir.passes import MemoryPlanningPass
    from torchao.utils import unwrap_tensor_subclass

    from . import models
    from .executorch_llama import tuned

    module = tuned(LANGUAGES[model], models.weights(model))
    watch = Stopwatch()
    with torch.no_grad():
        if scheme != "f32":
            _quantize_linears(module, 4 if scheme == "int4" else 8)
            module = unwrap_tensor_subclass(module)
        program = torch.export.export(module, models.inputs(model), dynamic_shapes=models.dynamic_shapes(model), strict=True)
        lowered = to_edge_transform_and_lower(
            program,
            partitioner=[XnnpackDynamicallyQuantizedPartitioner(), XnnpackPartitioner()],
            compile_config=EdgeCompileConfig(_check_ir_validity=False, _skip_dim_order=True),
        )
        done = lowered.to_executorch(
            ExecutorchBackendConfig(extract_delegate_segments=True, memory_planning_pass=MemoryPlanningPass(alloc_graph_input=False))
        )
    with open(_program(folder), "wb") as file:
        done.write_to_file(file)
    return watch.read()


def prepare(variant: str, model: str, scheme: str, folder: Path, work: Work) -> dict[str, Any]:
    result = _by_recipe(model, scheme, folder) if variant == "executorch" else _tuned(model, scheme, folder)
    return {**result, **count_calls(_program(folder)), "file_bytes": _program(folder).stat().st_size}


def count_calls(path: Path) -> dict[str, int]:
    """Instructions of one inference by kind."""
    from executorch.exir._serialize._program import deserialize_pte_binary
    from executorch.exir.schema import DelegateCall, KernelCall

    program = deserialize_pte_binary(path.read_bytes())
    program = getattr(program, "program", program)
    instructions = [i.instr_args for chain in program.execution_plan[0].chains for i in chain.instructions]
    return {
        "delegate_calls": sum(isinstance(i, DelegateCall) for i in instructions),
        "operator_calls": sum(isinstance(i, KernelCall) for i in instructions),
    }


class _Session:
    def __init__(self, path: Path, threads: int) -> None:
        from executorch.extension.pybindings import portable_lib
        from executorch.runtime import Runtime

        portable_lib._unsafe_reset_threadpool(threads)
        if portable_lib._threadpool_get_thread_count() != threads:
            raise NotMeasured(f"the thread pool has {portable_lib._threadpool_get_thread_count()} threads, wanted {threads}")
        self.program = Runtime.get().load_program(path)
        self.method = self.program.load_method("forward")

    def rewind(self) -> None:
        pass  # the positions say which rows of the cache are in use

    def prepare(self, *arrays: np.ndarray):
        import torch

        return tuple(torch.from_numpy(array) for array in arrays)

    def call(self, prepared) -> np.ndarray:
        return self.method.execute(prepared)[0].numpy()


def import_runtime() -> None:
    """Imports count as the host's memory and start, not as the engine's."""
    import executorch.extension.llm.custom_ops.custom_ops  # noqa: F401
    import executorch.kernels.quantized  # noqa: F401
    import executorch.runtime  # noqa: F401
    import torch  # noqa: F401


def command(variant: str, model: str, scheme: str, folder: Path, work: Work, threads: int, out: Path) -> None:
    return None


def session(variant: str, model: str, scheme: str, folder: Path, threads: int) -> _Session:
    return _Session(_program(folder), threads)
