"""Records what eager PyTorch answers, for the tests that compare a compiled SmolLM2 with it.

    python -m dovetail_zoo.record -o tests/models/smollm2_greedy.json

The file holds, for each chat prompt, the ids of the prompt and of 64 greedy tokens (generation doesn't stop at the end of
the turn), and for some steps the range of the logits and every 4096th of them. `smallest_margin` is the least distance
between the best and the second best logit of a step, relative to the range: how far from a tie the tokens are.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from . import smollm2

PROMPTS = (
    "What is the capital of France?",
    "Tell me about the planet Jupiter.",
    "Explain in simple words why the sky is blue.",
)
TOKENS = 64
LOGITS_STRIDE = 4096
LOGITS_STEPS = (0, 1, 31, 63)


def greedy(model: nn.Module, prompt: list[int], count: int) -> tuple[list[int], list[Tensor]]:
    """`count` greedy tokens after `prompt`, and the logits each was chosen from. The cache's old rows don't matter."""
    tokens, logits = [], []
    inputs, position = torch.tensor([prompt]), torch.arange(len(prompt))
    for _ in range(count):
        row = model(inputs, position)[0, -1]
        tokens.append(int(row.argmax()))
        logits.append(row)
        inputs, position = torch.tensor([[tokens[-1]]]), position[-1:] + 1
    return tokens, logits


def _margin(row: Tensor) -> float:
    best, second = row.topk(2).values.tolist()
    return (best - second) / float(row.max() - row.min())


def record(wheel_folder: Path) -> dict[str, Any]:
    path = smollm2.gguf_file(wheel_folder)
    model, tokenizer = smollm2.model(path), smollm2.tokenizer(path)
    cases = []
    for prompt in PROMPTS:
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True
        )
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        with torch.no_grad():
            tokens, logits = greedy(model, ids, TOKENS)
        steps = [
            {
                "step": step,
                "min": round(float(logits[step].min()), 5),
                "max": round(float(logits[step].max()), 5),
                "values": [round(value, 5) for value in logits[step][::LOGITS_STRIDE].tolist()],
            }
            for step in LOGITS_STEPS
        ]
        margin = round(min(map(_margin, logits)), 6)
        case = {"prompt": prompt, "chat_text": text, "prompt_ids": ids, "tokens": tokens, "text": tokenizer.decode(tokens)}
        cases.append({**case, "smallest_margin": margin, "logits": steps})
    return {"model": "smollm2", "torch": torch.__version__, "logits_stride": LOGITS_STRIDE, "cases": cases}


def to_json(data: dict[str, Any]) -> str:
    """Indented JSON with each list of numbers on one line."""
    lists: list[str] = []

    def shorten(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: shorten(item) for key, item in value.items()}
        if isinstance(value, list) and value and all(isinstance(item, (int, float)) for item in value):
            lists.append(json.dumps(value))
            return f"@{len(lists) - 1}@"
        return [shorten(item) for item in value] if isinstance(value, list) else value

    text = json.dumps(shorten(data), indent=1, ensure_ascii=False)
    for index, numbers in enumerate(lists):
        text = text.replace(f'"@{index}@"', numbers)
    return text + "\n"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="dovetail_zoo.record", description="Records eager PyTorch's greedy tokens.")
    parser.add_argument("-o", "--output", type=Path, default=Path("tests/models/smollm2_greedy.json"))
    parser.add_argument("--wheels", type=Path, default=Path("build/zoo/wheels"), help="folder of the downloaded wheels")
    options = parser.parse_args(arguments)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(to_json(record(options.wheels)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
