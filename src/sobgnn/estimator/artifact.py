"""A fitted classifier as a folder: safetensors and JSON, never pickle."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sobgnn.estimator.blending import Blend
from sobgnn.estimator.ensemble import Network
from sobgnn.estimator.features import FeatureMap
from sobgnn.estimator.predictor import Attaching, Predictor
from sobgnn.graphs.graph import Graph
from sobgnn.operators import SobolevOperators
from sobgnn.runtime.files import atomic_folder

FORMAT = "sobgnn.SobolevClassifier"
FORMAT_VERSION = 3
WEIGHTS, CONFIG = "weights.safetensors", "config.json"

Arrays = dict[str, npt.NDArray[Any]]


class ArtifactError(ValueError):
    """A folder does not hold a classifier that can be loaded, or must not be written over."""


def write_folder(folder: str | Path, config: dict[str, Any], arrays: Arrays) -> None:
    """Write ``config.json`` and ``weights.safetensors``: to a temporary folder, flushed, then renamed.

    A model that is already there is replaced; a folder that holds anything else is refused.
    """
    from safetensors.numpy import save_file

    folder = Path(folder)
    if folder.exists() and not (folder.is_dir() and _replaceable(folder)):
        raise ArtifactError(f"{folder} exists and is not a saved model. Give another folder, or remove it.")
    with atomic_folder(folder, replace=True) as temporary:
        save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, temporary / WEIGHTS)
        full = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "versions": _versions(),
            **config,
            "weights_sha256": _digest(temporary / WEIGHTS),
        }
        full["config_sha256"] = _config_digest(full)
        (temporary / CONFIG).write_text(json.dumps(full, indent=1, allow_nan=True) + "\n", encoding="utf-8")
        # safetensors makes its file readable by the owner alone.
        (temporary / WEIGHTS).chmod((temporary / CONFIG).stat().st_mode)


def read_folder(folder: str | Path) -> tuple[dict[str, Any], Arrays]:
    """What :func:`write_folder` wrote, checked against its own digests."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    folder = Path(folder)
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise ArtifactError(f"{folder} is not a saved model: it has no {name}.")
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError) as error:
        raise ArtifactError(f"{folder / CONFIG} is damaged: {_one_line(error)}") from None
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise ArtifactError(f"{folder} is not a saved {FORMAT}: its config.json does not say so.")
    version = config.get("format_version")
    if version != FORMAT_VERSION:
        raise ArtifactError(
            f"{folder} has format version {version}, but this version of sobgnn reads {FORMAT_VERSION}. "
            "Load it with the version that wrote it (config.json names it), or save it again."
        )
    if config.pop("config_sha256", None) != _config_digest(config):
        raise ArtifactError(f"{folder / CONFIG} was changed after it was written: its digest does not match.")
    if config.get("weights_sha256") != _digest(folder / WEIGHTS):
        raise ArtifactError(f"{folder / WEIGHTS} is truncated or was changed: its digest does not match.")
    try:
        return config, load_file(folder / WEIGHTS)
    except (SafetensorError, ValueError, KeyError, OSError) as error:
        raise ArtifactError(f"{folder / WEIGHTS} is damaged: {_one_line(error)}") from None


def pack_predictor(predictor: Predictor) -> tuple[dict[str, Any], Arrays]:
    """A predictor as JSON values and arrays."""
    graph = predictor.graph
    arrays: Arrays = {f"features.{name}": part for name, part in predictor.features.arrays().items()}
    arrays |= {f"graph_members.{name}": _numpy(value) for name, value in predictor.graph_parameters.items()}
    arrays |= {f"feature_members.{name}": _numpy(value) for name, value in predictor.feature_parameters.items()}
    arrays |= {f"student_members.{name}": _numpy(value) for name, value in predictor.student_parameters.items()}
    arrays |= {f"linear.{name}": _numpy(value) for name, value in predictor.linear_parameters.items()}
    arrays |= {f"states.{layer}": _numpy(state) for layer, state in enumerate(predictor.states)}
    arrays |= {
        "points": _numpy(predictor.points),
        "graph.indptr": _numpy(graph.indptr),
        "graph.indices": _numpy(graph.indices),
        "graph.weight": _numpy(graph.weight),
        "parts": _numpy(predictor.parts),
        "distributions": _numpy(predictor.distributions),
        "component_labelled": _numpy(predictor.component_labelled),
    }
    how = predictor.attaching
    attaching = {name: getattr(how, name) for name in ("k", "metric", "method", "recall", "bandwidth")}
    if how.reach is not None:
        arrays["reach"] = np.asarray(how.reach)
    if how.features is not None and how.points is not None:
        arrays |= {f"places.{name}": part for name, part in how.features.arrays().items()}
        arrays["places.points"] = _numpy(how.points)
    config = {
        "network": asdict(predictor.network),
        "attaching": attaching,
        "neighbor_recall": graph.neighbor_recall,
        "blend": asdict(predictor.blend),
        "temperature": predictor.temperature,
    }
    return config, arrays


def unpack_predictor(config: dict[str, Any], arrays: Arrays) -> Predictor:
    """The predictor that :func:`pack_predictor` took apart, on the CPU."""
    network, blend = Network(**config["network"]), config["blend"]
    points = torch.from_numpy(arrays["points"])
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items() if array.ndim}
    graph = Graph(
        tensors["graph.indptr"],
        tensors["graph.indices"],
        tensors["graph.weight"],
        neighbor_recall=config["neighbor_recall"],
    )
    _check_graph(graph, len(points))
    graph_parameters, feature_parameters = _under("graph_members.", tensors), _under("feature_members.", tensors)
    _check_parameters(network.graph_model(), graph_parameters)
    student_parameters = _under("student_members.", tensors)
    _check_parameters(network.feature_model(), feature_parameters)
    _check_parameters(network.feature_model(), student_parameters)
    linear = _under("linear.", tensors)
    expected = {"weight": (network.in_channels, network.out_channels), "bias": (network.out_channels,)}
    if linear and {name: tuple(value.shape) for name, value in linear.items()} != expected:
        raise ValueError("its linear classifier is not of the shape its config.json gives it")
    return Predictor(
        network,
        FeatureMap.from_arrays(_under("features.", arrays)),
        points,
        SobolevOperators(graph, network.alpha, network.epsilon),
        graph_parameters,
        feature_parameters,
        student_parameters,
        linear,
        [tensors[f"states.{layer}"] for layer in range(sum(name.startswith("states.") for name in arrays))],
        tensors["parts"],
        tensors["distributions"],
        tensors["component_labelled"],
        Blend(**{**blend, "heats": tuple(blend["heats"])}),
        float(config["temperature"]),
        _attaching(config["attaching"], arrays, len(points)),
    )


def _attaching(config: dict[str, Any], arrays: Arrays, count: int) -> Attaching:
    places = _under("places.", arrays)
    if not places:
        return Attaching(**config, reach=arrays.get("reach"))
    points, features = torch.from_numpy(places.pop("points")), FeatureMap.from_arrays(places)
    if points.shape != (count, features.num_outputs):
        raise ValueError("the neighbours' points and their map contradict each other")
    return Attaching(**config, reach=arrays.get("reach"), features=features, points=points)


def _check_graph(graph: Graph, count: int) -> None:
    """Raise on a pattern that would be read out of its bounds."""
    steps, edges = graph.indptr.diff(), graph.num_edges
    good = (
        graph.num_nodes == count
        and int(graph.indptr[0]) == 0
        and int(graph.indptr[-1]) == edges == graph.weight.numel()
        and bool((steps >= 0).all())
        and (edges == 0 or (int(graph.indices.min()) >= 0 and int(graph.indices.max()) < count))
    )
    if not good:
        raise ValueError("the graph's arrays contradict each other")


def _check_parameters(model: torch.nn.Module, stacked: dict[str, torch.Tensor]) -> None:
    """Raise on parameters that are not those of some members of ``model``; there may be none at all."""
    expected = {name: tuple(value.shape) for name, value in model.named_parameters()}
    if stacked and {name: tuple(value.shape[1:]) for name, value in stacked.items()} != expected:
        raise ValueError("its networks are not of the shape its config.json gives them")


def _under(prefix: str, values: dict[str, Any]) -> dict[str, Any]:
    return {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}


def _numpy(tensor: torch.Tensor) -> npt.NDArray[Any]:
    array: npt.NDArray[Any] = tensor.detach().cpu().numpy()
    return array


def _replaceable(folder: Path) -> bool:
    names = {path.name for path in folder.iterdir()}
    if not names:
        return True
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (ValueError, OSError):
        return False
    return names <= {CONFIG, WEIGHTS} and isinstance(config, dict) and config.get("format") == FORMAT


def _versions() -> dict[str, str]:
    import platform

    from sobgnn import __version__

    versions = {"sobgnn": __version__, "python": platform.python_version()}
    for name in ("torch", "numpy", "scipy", "scikit-learn", "safetensors"):
        versions[name] = importlib.metadata.version(name)
    return versions


def _config_digest(config: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
