"""--weights and --weights-cache: where packed weights live changes the time of a run and nothing else."""

import hashlib
import json
import subprocess
import time

import numpy as np
import pytest

from conftest import ROOT


def execute(arguments):
    return subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True)


@pytest.fixture(scope="module")
def program(dovetail, tmp_path_factory):
    """A model with a state, its weights quantized, and two calls."""
    folder = tmp_path_factory.mktemp("weights")
    model = "tests/fixtures/llama_tiny_index_put.pt2"
    done = execute([dovetail, "compile", model, "-o", folder / "m.pte", "--quantize", "int8-dynamic"])
    assert done.returncode == 0, done.stderr
    np.savez(folder / "a.npz", input_0=np.arange(6)[None], input_1=np.arange(6))
    np.savez(folder / "b.npz", input_0=np.array([[3]]), input_1=np.array([6]))
    # A file that was changed a moment ago gets no cache file; on coarse file systems a moment is two seconds.
    changed = (folder / "m.pte").stat().st_mtime_ns
    time.sleep(2.1 if changed % 10**9 == 0 else 0.1)
    return folder


# So many calls of its delegates that `auto` decides and `fast` has moved the weights.
def command(dovetail, program, out, *flags):
    calls = [program / "a.npz", program / "b.npz"]
    return [dovetail, "run", program / "m.pte", *calls, "--repeat", "12", "--dump-states", "--json", "-o", out, *map(str, flags)]


def arrays(out):
    """Everything that a run wrote, as bytes."""
    found = {}
    for file in sorted(out.iterdir()):
        with np.load(file) as archive:
            found |= {(file.name, name): (archive[name].dtype, archive[name].shape, archive[name].tobytes()) for name in archive.files}
    assert len({name for name, _ in found}) == 2
    return found


@pytest.fixture
def run(dovetail, program, tmp_path):
    count = 0

    def call(*flags):
        nonlocal count
        count += 1
        out = tmp_path / f"out{count}"
        done = execute(command(dovetail, program, out, *flags))
        assert done.returncode == 0 and done.stderr == "", done.stderr
        return arrays(out)

    return call


@pytest.fixture(scope="module")
def expected(dovetail, program, tmp_path_factory):
    out = tmp_path_factory.mktemp("expected")
    done = execute(command(dovetail, program, out, "--weights-cache", "off", "--threads", 1))
    assert done.returncode == 0, done.stderr
    return arrays(out)


def cache_file(folder):
    (file,) = folder.iterdir()
    assert file.suffix == ".weights"
    return file


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("mode", ["auto", "shared", "fast"])
def test_outputs_are_the_same_in_every_mode(run, expected, tmp_path, mode, threads):
    cache = tmp_path / "cache"
    flags = ("--weights", mode, "--weights-cache", cache, "--threads", threads)
    assert run(*flags) == expected
    written = cache_file(cache).stat()
    assert run(*flags) == expected
    again = cache_file(cache).stat()
    assert (again.st_ino, again.st_mtime_ns) == (written.st_ino, written.st_mtime_ns), "the second run packs again"
    assert again.st_mode & 0o077 == 0


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("mode", ["auto", "shared", "fast"])
def test_off_writes_no_file(run, expected, tmp_path, monkeypatch, mode, threads):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    for _ in range(2):
        assert run("--weights", mode, "--weights-cache", "off", "--threads", threads) == expected
    assert not (tmp_path / "xdg").exists()


def test_the_default_folder(run, expected, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert run("--threads", 1) == expected
    cache_file(tmp_path / "xdg" / "dovetail")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert run("--threads", 1) == expected
    cache_file(tmp_path / "home" / ".cache" / "dovetail")


def overwrite(file, at, data):
    with file.open("r+b") as f:
        f.seek(at)
        f.write(data)


DAMAGE = {
    "header": lambda f: overwrite(f, 100, b"\xff" * 64),
    "weights": lambda f: overwrite(f, 4096, b"\x55" * (f.stat().st_size // 2 - 4096)),  # what the index says of them stays right
    "index": lambda f: overwrite(f, f.stat().st_size - 24, b"\xff" * 24),
    "short": lambda f: f.write_bytes(f.read_bytes()[:5000]),
    "empty": lambda f: f.write_bytes(b""),
    "long": lambda f: f.write_bytes(f.read_bytes() + b"more"),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
@pytest.mark.parametrize("mode", ["auto", "shared", "fast"])
def test_a_damaged_file_changes_nothing(run, expected, tmp_path, mode, damage):
    cache = tmp_path / "cache"
    flags = ("--weights", mode, "--weights-cache", cache, "--threads", 1)
    assert run(*flags) == expected
    intact = cache_file(cache).stat()
    damage(cache_file(cache))
    assert run(*flags) == expected
    replaced = cache_file(cache).stat()
    assert replaced.st_size == intact.st_size and replaced.st_ino != intact.st_ino, "the file was not written anew"
    assert run(*flags) == expected
    assert cache_file(cache).stat().st_ino == replaced.st_ino


def test_a_folder_that_cannot_be_made_is_no_error(run, expected, tmp_path):
    (tmp_path / "file").write_text("a file in its place")
    for cache in (tmp_path / "file", tmp_path / "file" / "cache"):
        for mode in ("auto", "shared", "fast"):
            assert run("--weights", mode, "--weights-cache", cache, "--threads", 1) == expected
    assert (tmp_path / "file").read_text() == "a file in its place"


@pytest.mark.parametrize("mode", ["auto", "shared", "fast"])
def test_processes_at_the_same_time(dovetail, program, expected, tmp_path, mode):
    cache = tmp_path / "cache"
    for turn in range(3):  # the first finds no file, and both write one
        outs = [tmp_path / f"{turn}_{i}" for i in range(2)]
        flags = ("--weights", mode, "--weights-cache", cache, "--threads")
        processes = [subprocess.Popen(command(dovetail, program, out, *flags, i + 1), cwd=ROOT, stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, text=True) for i, out in enumerate(outs)]
        for process, out in zip(processes, outs, strict=True):
            _, errors = process.communicate(timeout=60)
            assert process.returncode == 0 and errors == "", errors
            assert arrays(out) == expected
        cache_file(cache)


def test_a_changed_program_is_packed_again(dovetail, program, run, expected, tmp_path):
    cache = tmp_path / "cache"
    assert run("--weights-cache", cache, "--threads", 1) == expected
    before = hashlib.sha256(cache_file(cache).read_bytes()).digest()
    (program / "m.pte").touch()
    time.sleep(2.1 if (program / "m.pte").stat().st_mtime_ns % 10**9 == 0 else 0.1)
    assert run("--weights-cache", cache, "--threads", 1) == expected
    assert hashlib.sha256(cache_file(cache).read_bytes()).digest() != before


@pytest.mark.parametrize("verb", ["run", "bench"])
def test_wrong_usage(dovetail, program, tmp_path, verb):
    out = ["-o", tmp_path / "out"] if verb == "run" else []
    done = execute([dovetail, verb, program / "m.pte", program / "a.npz", *out, "--weights", "quick"])
    assert done.returncode == 2 and "--weights" in done.stderr and done.stdout == ""


def test_bench_takes_the_flags(dovetail, program, tmp_path):
    cache = tmp_path / "cache"
    for mode in ("auto", "shared", "fast"):
        done = execute([dovetail, "bench", program / "m.pte", program / "b.npz", "--iterations", "2", "--threads", "1", "--weights", mode,
                        "--weights-cache", cache, "--profile", tmp_path / "t.json", "--json"])
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["iterations"] == 2
        cache_file(cache)
