"""Run folders that were damaged, or forged and signed anew, each from its seed alone."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from sobgnn._system.files import file_digest, json_digest
from sobgnn.estimator.artifact import CONFIG, WEIGHTS

FILES = ("table.json", "table.npz", "checks.json", f"model/{CONFIG}", f"model/{WEIGHTS}")
ODD_VALUES: list[Any] = [
    None, True, False, -1, 0, 1, 2, 10**6, 10**18, 10**40, -(10**12), 0.5, -0.0, 1e-300, 1e300, float("nan"),
    float("inf"), "", "x", "auto", "x" * 1000, "<U100000000", "object", [], {}, [1], [[]], {"a": 1}, [None], ["x"] * 3,
    "\0", "\n",
]  # fmt: skip


def named(outside: Path) -> list[str]:
    """What a forged value may name: files and modules outside the run, which the fuzzer's audit watches."""
    own = [str(outside / name) for name in ("evil.pt2", "", "model", "secret.png")]
    return [
        *own, "../../outside/secret.png", "../../../../../../etc/passwd", "/etc/passwd", "~/.ssh/known_hosts",
        "https://localhost:9/model", "os.system", "torch.load", "__import__('os').system('true')",
        "sentence-transformers/all-MiniLM-L6-v2",
    ]  # fmt: skip


def harm(folder: Path, seed: int, outside: Path | None = None) -> str:
    """Do something to the run in ``folder``, and say what."""
    draw = np.random.default_rng([seed, 2])
    kind = int(draw.choice(8, p=[0.15, 0.1, 0.2, 0.2, 0.1, 0.1, 0.1, 0.05]))
    odd = [*ODD_VALUES, *(named(outside) if outside else [])]
    name = FILES[int(draw.integers(len(FILES)))]
    if kind == 0:
        data = (folder / name).read_bytes()
        at, length = int(draw.integers(len(data))), int(draw.integers(1, 40))
        ways = (data[:at], draw.bytes(length), data[at:] + data[:at], data[: at + length] + data[at:])
        put = (data[:at] + draw.bytes(length) + data[at + length :], data[:at] + data[at + length :])
        (folder / name).write_bytes([*ways, *put][int(draw.integers(6))])
        return f"damaged {name}"
    if kind == 1:
        return _replaced(folder / name, draw)
    if kind == 2:
        return _odd_config(folder / "model", draw, odd)
    if kind == 3:
        return _odd_weights(folder / "model", draw)
    if kind == 7:
        return _odd_header(folder / "model", draw)
    content = json.loads((folder / "table.json").read_text())
    if kind in (4, 6):
        wanted = odd if kind == 4 or outside is None else named(outside)
        said = "; ".join(_odd_leaf(content, draw, wanted) for _ in range(int(draw.integers(1, 4))))
    else:
        with np.load(folder / "table.npz") as held:
            arrays = {key: held[key] for key in held.files}
        said = _odd_array(arrays, draw)
        np.savez(folder / "table.npz", **arrays)
    _sign_table(folder, content)
    return f"table: {said}"


def _replaced(path: Path, draw: np.random.Generator) -> str:
    kinds = ["missing", "empty", "pipe", "device", "folder", "loop", "large", "denied", "zeros", "brackets"]
    kind = kinds[int(draw.integers(len(kinds)))]
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "large":
        with open(path, "wb") as file:
            file.truncate(2**33)
    elif kind != "missing":
        path.write_bytes({"zeros": b"\0" * 5000, "brackets": b"[" * 200_000}.get(kind, b""))
        path.chmod(0 if kind == "denied" else 0o644)
    return f"{path.name} is {kind}"


def _odd_leaf(content: Any, draw: np.random.Generator, odd: list[Any]) -> str:
    """Change, remove or add one value somewhere in nested JSON."""
    path = []
    while content:
        keys = list(content) if isinstance(content, dict) else list(range(len(content)))
        key = keys[int(draw.integers(len(keys)))]
        path.append(str(key))
        inner = content[key]
        if not (isinstance(inner, (dict, list)) and len(inner) and draw.random() < 0.9):
            break
        content = inner
    if not content:
        return "nothing"
    where = ".".join(path)
    if draw.random() < 0.15:
        del content[key]
        return f"without {where}"
    content[key] = odd[int(draw.integers(len(odd)))]
    return f"{where} = {content[key]!r:.40}"


def _odd_array(arrays: dict[str, Any], draw: np.random.Generator) -> str:
    name = list(arrays)[int(draw.integers(len(arrays)))]
    old = arrays[name]
    kind = int(draw.integers(14))
    if kind == 0:
        del arrays[name]
    elif kind == 1 and old.size:
        new = old.copy()
        new.flat[int(draw.integers(old.size))] = (
            draw.choice([np.nan, np.inf, -1, 0, 1e38]) if old.dtype.kind == "f" else -7
        )
        arrays[name] = new
    elif kind == 2 and old.dtype.itemsize in (4, 8) and old.dtype.kind in "fi":
        arrays[name] = old.view({"f": "i", "i": "f"}[old.dtype.kind] + str(old.dtype.itemsize))
    elif kind == 3 and old.ndim and len(old):
        arrays[name] = old[:-1].copy()
    elif kind == 4:
        arrays[name] = old[None].copy()
    elif kind == 5:
        arrays[name] = old.ravel().copy()
    elif kind == 6:
        arrays[name] = np.zeros((0,) * max(1, old.ndim), old.dtype)
    elif kind == 7 and old.dtype.kind in "fi":
        arrays[name] = old.astype({"f": np.float16, "i": np.int8}[old.dtype.kind])
    elif kind == 8 and old.dtype.kind == "f":
        arrays[name] = np.full_like(old, draw.choice([np.nan, np.inf, -np.inf, 3e38, -3e38, 0, 1e-40]))
    elif kind == 9 and old.dtype.kind == "i":
        arrays[name] = np.full_like(
            old, draw.choice([-1, 0, 1, 2**30, np.iinfo(old.dtype).max, np.iinfo(old.dtype).min])
        )
    elif kind == 10:
        arrays["families.7.extra"] = old.copy()
    elif kind == 11 and old.ndim > 1:
        arrays[name] = np.ascontiguousarray(np.swapaxes(old, 0, -1))
    elif kind == 12 and old.dtype.kind in "fi" and old.size:
        arrays[name] = draw.permutation(old.ravel()).reshape(old.shape)
    elif old.ndim and len(old):
        arrays[name] = np.concatenate([old, old])
    return f"{name} by way {kind}"


def _odd_config(model: Path, draw: np.random.Generator, odd: list[Any]) -> str:
    config = json.loads((model / CONFIG).read_text())
    said = [_odd_leaf(config, draw, odd) for _ in range(int(draw.integers(1, 3)))]
    _sign(model, config)
    return "; ".join(said)


def _odd_weights(model: Path, draw: np.random.Generator) -> str:
    from safetensors.numpy import load_file, save_file

    arrays = load_file(model / WEIGHTS)
    said = _odd_array(arrays, draw)
    save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, model / WEIGHTS)
    config = json.loads((model / CONFIG).read_text())
    config["weights_sha256"] = file_digest(model / WEIGHTS)
    _sign(model, config)
    return said


def _odd_header(model: Path, draw: np.random.Generator) -> str:
    """Change a value of the safetensors header: a type, a shape or an offset."""
    data = (model / WEIGHTS).read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    said = _odd_leaf(header, draw, [-1, 0, 7, 2**62, "F64", "I8", "BOOL", "x", [], [2**40], [0, 2**50], None])
    made = json.dumps(header).encode()
    (model / WEIGHTS).write_bytes(len(made).to_bytes(8, "little") + made + data[8 + length :])
    config = json.loads((model / CONFIG).read_text())
    config["weights_sha256"] = file_digest(model / WEIGHTS)
    _sign(model, config)
    return f"header: {said}"


def _sign_table(folder: Path, content: Any) -> None:
    if isinstance(content, dict):
        content.pop("sha256", None)
        content["arrays_sha256"] = file_digest(folder / "table.npz")
        content["sha256"] = json_digest(content)
    (folder / "table.json").write_text(json.dumps(content))


def _sign(model: Path, config: dict[str, Any]) -> None:
    config.pop("config_sha256", None)
    config["config_sha256"] = json_digest(config)
    (model / CONFIG).write_text(json.dumps(config))


def copy_run(source: Path, target: Path) -> Path:
    """A fresh copy of a run's files that prediction reads."""
    shutil.rmtree(target, ignore_errors=True)
    (target / "model").mkdir(parents=True)
    for name in FILES:
        shutil.copyfile(source / name, target / name)
    return target
