"""What every engine is asked to do: models, schemes, and calls. Needs NumPy only."""

import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = ROOT / "build" / "peers"
WARM_STEPS = 4


class NotMeasured(Exception):
    """An engine can't do this; the message is the reason that the table shows."""


@dataclass(frozen=True)
class Language:
    """Shape of a Llama."""

    vocab: int
    dim: int
    layers: int
    heads: int
    kv_heads: int
    hidden: int
    eps: float
    rope_theta: float
    context: int
    tied: bool

    @property
    def head_dim(self) -> int:
        return self.dim // self.heads


_LLAMA = Language(32000, 768, 12, 12, 12, 2048, 1e-5, 1e4, 256, tied=False)
LANGUAGES = {
    "llama110m": _LLAMA,
    "llama110m_4096": Language(**{**asdict(_LLAMA), "context": 4096}),
    "smollm2": Language(49152, 576, 30, 9, 3, 1536, 1e-5, 1e5, 256, tied=True),
}
MODELS = (*LANGUAGES, "minilm", "mobilenet")

# Schemes of each model: int8 is of dynamic activations, except MobileNetV2's, which is calibrated (static).
SCHEMES = {
    "llama110m": ("int8", "int4"),
    "llama110m_4096": ("int8", "int4"),
    "smollm2": ("int8", "int4"),
    "minilm": ("int8", "f32"),
    "mobilenet": ("int8", "f32"),
}


def token(model: str, position: int) -> int:
    return (position * 7919 + 13) % LANGUAGES[model].vocab


@dataclass(frozen=True)
class Work:
    """A language model: a first prefill of `prompt` tokens, `calls` more of them, then WARM_STEPS + `steps` single tokens.
    Another model: a first call, then `calls` more of them on the same input."""

    model: str
    calls: int = 5
    prompt: int = 128
    steps: int = 32

    @property
    def is_language(self) -> bool:
        return self.model in LANGUAGES

    def prompt_arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """Tokens [1, prompt] and positions [prompt], int64."""
        positions = np.arange(self.prompt)
        return np.array([[token(self.model, int(p)) for p in positions]]), positions

    def step_arrays(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        position = self.prompt + step
        return np.array([[token(self.model, position)]]), np.array([position])

    @property
    def all_steps(self) -> int:
        return WARM_STEPS + self.steps if self.steps else 0

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    @staticmethod
    def load(path: Path) -> "Work":
        return Work(**json.loads(path.read_text()))


def single_inputs(model: str) -> list[np.ndarray]:
    """The inputs of a call of a model that isn't a language model."""
    if model == "minilm":
        length = 128
        ids = (np.arange(length) * 7919 + 13) % 28000 + 1000
        ids[0], ids[-1] = 101, 102  # [CLS] and [SEP]
        return [ids[None].astype(np.int64), np.ones((1, length), np.int64)]
    with np.load(BUILD / "models" / "mobilenet.inputs.npz") as file:
        return [file["picture"]]


class Stopwatch:
    """Wall time, and processor time of this process and of its children, which other work on the machine hardly changes."""

    def __init__(self) -> None:
        self.start, self.cpu = time.perf_counter(), sum(os.times()[:4])

    def read(self) -> dict[str, float]:
        return {"seconds": time.perf_counter() - self.start, "cpu_seconds": sum(os.times()[:4]) - self.cpu}


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    a, b = a.astype(np.float64).ravel(), b.astype(np.float64).ravel()
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))
