from __future__ import annotations

import json
import os
import shutil
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import make_blobs

from sobgnn import SobolevClassifier
from sobgnn._system.files import file_digest, json_digest, read_json
from sobgnn.estimator.artifact import (
    CONFIG,
    FORMAT_VERSION,
    WEIGHTS,
    ArtifactError,
    read_folder,
)


def fit(**settings):
    X, y = make_blobs(120, n_features=5, centers=3, cluster_std=2.0, random_state=0)
    given = np.where(np.arange(120) < 40, y, -1)
    quick = {"n_members": 2, "epochs": 15, "hidden_channels": 8, "random_state": 0}
    return X, SobolevClassifier(**{**quick, **settings}).fit(X, given)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "model"
    X, classifier = fit()
    classifier.save(folder)
    return X, classifier, folder


@pytest.fixture(scope="module")
def deep(tmp_path_factory):
    folder = tmp_path_factory.mktemp("deep") / "model"
    fit(families=["s-sobgnn"], epochs=2)[1].save(folder)
    return folder


@pytest.fixture
def copy(saved, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    for name in (CONFIG, WEIGHTS):
        (folder / name).write_bytes((saved[2] / name).read_bytes())
    return folder


def edit(folder: Path, change, *, sign: bool) -> None:
    config = json.loads((folder / CONFIG).read_text())
    change(config)
    if sign:
        config.pop("config_sha256", None)
        config["config_sha256"] = json_digest(config)
    (folder / CONFIG).write_text(json.dumps(config))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"bandwidth": "local"},
        {"families": ["sobolev"]},
        {"families": ["diffusion"]},
        {"families": ["forests", "gaussian", "kernel", "linear"]},
        {"families": ["s-sobgnn"], "num_layers": 3},
        {"n_components": 3, "class_weight": {0: 2.0, 2: 0.5}},
        {"scale": None, "metric": "cosine"},
        {"scale": ("range", "unit"), "class_priors": {0: 2.0, 1: 1.0, 2: 1.0}},
    ],
)
def test_predictions_after_loading_are_equal_to_the_last_bit(tmp_path, settings):
    X, classifier = fit(**settings)
    classifier.save(tmp_path / "model")
    loaded = SobolevClassifier.load(tmp_path / "model")
    assert loaded.get_params() == classifier.get_params()
    np.testing.assert_array_equal(loaded.predict_proba(X + 0.1), classifier.predict_proba(X + 0.1))
    for name in ("label_distributions_", "transduction_", "classes_", "embedding_", "component_labelled_", "labelled_"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(classifier, name))
    assert loaded.filter_importance_ == classifier.filter_importance_
    assert loaded.history_ == classifier.history_
    assert loaded.describe() == classifier.describe()
    np.testing.assert_array_equal(loaded.suggest(5), classifier.suggest(5))


def test_many_new_points_are_placed_by_cells_that_are_the_same_after_loading(saved, monkeypatch):
    X, _, folder = saved
    monkeypatch.setattr("sobgnn.graphs.neighbors.index.INDEX_COST", 0)
    monkeypatch.setattr("sobgnn.graphs.neighbors.index.INDEX_QUERIES", 100)
    loaded = SobolevClassifier.load(folder)
    few = loaded.predict_proba(X[:10] + 0.1)
    assert not loaded.predictor_.placed.search._held._near  # what loading checks, and few points, need none
    many = loaded.predict_proba(X + 0.1)
    assert loaded.predictor_.placed.search._held._near
    np.testing.assert_array_equal(few, loaded.predict_proba(X[:10] + 0.1))
    np.testing.assert_array_equal(many, SobolevClassifier.load(folder).predict_proba(X + 0.1))
    np.testing.assert_allclose(many[:10], few, atol=0.05)


@pytest.mark.parametrize("names", [["ash", "birch", "cedar"], [True, False, True], [1.5, 2.5, 3.5]])
def test_class_names_of_every_kind_come_back(tmp_path, names):
    X, y = make_blobs(60, n_features=3, centers=3, random_state=0)
    labels = np.array(names)[y] if not isinstance(names[0], str) else np.array(names, dtype=object)[y]
    if isinstance(names[0], float):
        labels = labels.astype(str)
    classifier = SobolevClassifier(n_members=1, epochs=5, random_state=0).fit(X, labels)
    classifier.save(tmp_path / "model")
    loaded = SobolevClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(X), classifier.predict(X))
    assert loaded.classes_.dtype.kind == classifier.classes_.dtype.kind


def test_the_folder_names_its_format_versions_and_settings(saved):
    config, arrays = read_folder(saved[2])
    assert config["format_version"] == FORMAT_VERSION
    assert {"sobgnn", "torch", "numpy"} <= set(config["versions"])
    assert config["settings"]["epochs"] == 15
    assert {"predictor.placed.points.points", "outcome.labelled", "predictor.members.0.fitted.networks.weight1"} <= set(
        arrays
    )
    assert sorted(path.name for path in saved[2].iterdir()) == [CONFIG, WEIGHTS]


def test_all_files_of_a_model_have_the_permissions_of_a_new_file(saved, tmp_path):
    (tmp_path / "new").touch()
    modes = {path.stat().st_mode for path in [tmp_path / "new", *saved[2].iterdir()]}
    assert len(modes) == 1


def test_saving_again_replaces_the_model_and_leaves_nothing_else(tmp_path):
    X, classifier = fit()
    classifier.save(tmp_path / "model")
    _, other = fit(random_state=5)
    other.save(tmp_path / "model")
    np.testing.assert_array_equal(SobolevClassifier.load(tmp_path / "model").predict_proba(X), other.predict_proba(X))
    assert os.listdir(tmp_path) == ["model"]


def test_a_save_that_fails_leaves_what_was_there(saved, tmp_path, monkeypatch):
    X, classifier, _ = saved
    classifier.save(tmp_path / "model")

    def fail(*arguments, **keywords):
        raise OSError("disk full")

    monkeypatch.setattr("sobgnn._system.files.os.fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        classifier.save(tmp_path / "model")
    assert os.listdir(tmp_path) == ["model"]
    monkeypatch.undo()
    np.testing.assert_array_equal(
        SobolevClassifier.load(tmp_path / "model").predict_proba(X), classifier.predict_proba(X)
    )


def test_a_folder_with_other_things_is_not_written_over(saved, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ArtifactError, match="not a saved model"):
        saved[1].save(tmp_path)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ArtifactError, match="not a saved model"):
        saved[1].save(tmp_path / "file")
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("name", [CONFIG, WEIGHTS])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
def test_a_truncated_file_is_one_clear_error(copy, name, share):
    data = (copy / name).read_bytes()
    (copy / name).write_bytes(data[: int(share * len(data))])
    with pytest.raises(ArtifactError) as error:
        SobolevClassifier.load(copy)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", [CONFIG, WEIGHTS])
def test_any_changed_byte_is_noticed(copy, name):
    data = (copy / name).read_bytes()
    generator = np.random.default_rng(0)
    for place in generator.integers(0, len(data) - 1, size=40):
        changed = bytearray(data)
        changed[place] ^= 1 << int(generator.integers(8))
        (copy / name).write_bytes(bytes(changed))
        try:
            SobolevClassifier.load(copy)
        except ArtifactError as error:
            assert "\n" not in str(error)  # noqa: PT017
        else:  # a blank for a blank in the JSON's layout changes nothing
            assert json.loads(changed) == json.loads(data)


def networks(config):
    return config["predictor"]["placed"]["points"]["networks"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.update(format_version=FORMAT_VERSION - 1), "format version"),
        (lambda c: c.update(format_version="4\n"), "format version"),
        (lambda c: c.update(format="other"), "not a saved"),
        (lambda c: c["classes"]["values"].pop(), "not a complete"),
        (lambda c: c.pop("predictor"), "not a complete"),
        (lambda c: networks(c).update(alpha=9), "not a complete"),
        (lambda c: c["predictor"]["members"].pop(), "not a complete"),
        (lambda c: c["predictor"]["members"][0]["fitted"].update({"class": "wizards"}), "not a complete"),
        (lambda c: c["predictor"]["members"][0]["fitted"].update({"class": "FittedForeign"}), "not a complete"),
        (lambda c: c["predictor"]["blend"].update(temperatures=[0.0] * 3), "not a complete"),
        (lambda c: c["predictor"].update(temperature=0.0), "not a complete"),
        (lambda c: c["predictor"].update(temperature=float("nan")), "not a complete"),
        (lambda c: c["outcome"]["family_accuracy"].update(forests=1e40), "not a complete"),
        (lambda c: c["outcome"]["family_accuracy"].update(forests=10**400), "not a complete"),
        (lambda c: c["settings"].update(class_weight="x"), "not a complete"),
        (lambda c: c["settings"].update(class_weight=[["no such class", 1.0]]), "not a complete"),
        (lambda c: c["settings"].update(class_priors=[[0, 1.0]]), "not a complete"),
        (lambda c: c["outcome"].update(out_of_fold_accuracy="high"), "not a complete"),
        (lambda c: c["outcome"].update(n_iter=True), "not a complete"),
        (lambda c: c["predictor"]["placed"]["scales"].update(networks="odd"), "not a complete"),
        (lambda c: c["settings"].update(surprise=1), "not a complete"),
        (lambda c: c.update(classes=3), "not a complete"),
        (lambda c: c["predictor"]["placed"]["search"].update(k="many"), "not a complete"),
    ],
)
def test_foreign_newer_and_contradictory_folders_are_one_clear_error(copy, change, message):
    edit(copy, change, sign=True)
    with pytest.raises(ArtifactError, match=message) as error:
        SobolevClassifier.load(copy)
    assert "\n" not in str(error.value)


def forge(folder: Path, change) -> None:
    """Change arrays of a saved model and sign it anew."""
    from safetensors.numpy import load_file, save_file

    arrays = load_file(folder / WEIGHTS)
    change(arrays)
    save_file(arrays, folder / WEIGHTS)
    edit(folder, lambda c: c.update(weights_sha256=file_digest(folder / WEIGHTS)), sign=True)


P, PLACED, OUTCOME = "predictor.", "predictor.placed.", "outcome."
NETWORK, MAP, GRAPH = f"{P}members.0.fitted.networks.", f"{PLACED}maps.networks.", f"{PLACED}points.graphs.neighbors."


def full(name, value):
    return lambda a: a.update({name: np.full_like(a[name], value)})


def shorter(name):
    return lambda a: a.update({name: a[name][:-1].copy()})


FORGED = {
    "NaN weights": full(f"{NETWORK}weight1", np.nan),
    "weights whose products overflow": full(f"{NETWORK}weight2", 1e38),
    "points whose products overflow": full(f"{PLACED}points.points", 1e38),
    "probabilities above 1": full(f"{OUTCOME}distributions", 1e38),
    "out-of-fold probabilities above 1": full(f"{OUTCOME}out_of_fold_probabilities", 1e38),
    "factors of 0": full(f"{P}ratio", 0.0),
    "NaN scales": full(f"{MAP}shift", np.nan),
    "floats called integers": lambda a: a.update(
        {f"{PLACED}points.points": a[f"{PLACED}points.points"].view(np.int32)}
    ),
    "integers called floats": lambda a: a.update({f"{OUTCOME}labelled": a[f"{OUTCOME}labelled"].view(np.float64)}),
    "halves": lambda a: a.update({f"{NETWORK}bias2": a[f"{NETWORK}bias2"].astype(np.float16)}),
    "other shapes": lambda a: a.update({f"{NETWORK}weight1": a[f"{NETWORK}weight1"][..., :-1].copy()}),
    "fewer points": shorter(f"{PLACED}points.points"),
    "folds of other labels": shorter(f"{OUTCOME}folds"),
    "an embedding of other points": shorter(f"{OUTCOME}embedding"),
    "priors of other classes": shorter(f"{OUTCOME}class_prior"),
    "held-out labels of others": shorter(f"{OUTCOME}out_of_fold_probabilities"),
    "labels beyond the points": full(f"{OUTCOME}labelled", 1000),
    "classes beyond the classes": full(f"{OUTCOME}labelled_codes", 7),
    "edges beyond the points": full(f"{GRAPH}graph.indices", 1000),
    "edges of weight 0": full(f"{GRAPH}graph.weight", 0.0),
    "rows of edges that run backward": lambda a: a.update({f"{GRAPH}graph.indptr": a[f"{GRAPH}graph.indptr"][::-1]}),
    "negative probabilities": lambda a: a.update({f"{OUTCOME}distributions": -a[f"{OUTCOME}distributions"]}),
    "a missing array": lambda a: a.pop(f"{P}ratio"),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_arrays_are_refused_though_signed(copy, name):
    forge(copy, FORGED[name])
    with pytest.raises(ArtifactError, match="not a complete saved model") as error:
        SobolevClassifier.load(copy)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "change",
    [
        lambda c: networks(c).update(num_layers=10**6),
        lambda c: networks(c).update(num_layers=999),
        lambda c: networks(c).update(hidden_channels=99_999, alpha=99),
        lambda c: c["settings"].update(num_layers=10**6),
        lambda c: c["predictor"]["placed"]["points"].update(classes=10**9),
        lambda c: c.update(n_features_in=10**12),
        lambda c: c["predictor"]["placed"]["maps"]["networks"].update(num_features=10**12),
        lambda c: c["predictor"].update(temperature="hot"),
        lambda c: c["predictor"]["placed"]["search"].update(k=10**9),
        lambda c: c["predictor"]["placed"]["search"].update(bandwidth=-1.0),
        lambda c: c["predictor"]["placed"]["search"].update(metric="hamming"),
        lambda c: c["classes"].update(dtype="<U2000000"),
        lambda c: c["classes"].update(dtype="M8[s]"),
    ],
)
def test_forged_sizes_are_refused_before_anything_of_that_size_is_made(deep, tmp_path, change):
    shutil.copytree(deep, tmp_path / "model")
    edit(tmp_path / "model", change, sign=True)
    tracemalloc.start()
    with pytest.raises(ArtifactError, match="not a complete saved model"):
        SobolevClassifier.load(tmp_path / "model")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30e6


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", [CONFIG, WEIGHTS])
@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "large"])
def test_files_of_a_model_are_regular_and_not_too_large(copy, name, kind):
    (copy / name).unlink()
    if kind == "pipe":
        os.mkfifo(copy / name)
    elif kind == "device":
        (copy / name).symlink_to("/dev/zero")
    elif kind == "folder":
        (copy / name).mkdir()
    else:
        with open(copy / name, "wb") as file:
            file.truncate(2**31)  # takes no room on the disk
    tracemalloc.start()
    with pytest.raises(ArtifactError) as error:
        SobolevClassifier.load(copy)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "\n" not in str(error.value)
    assert peak < 100e6


def test_a_full_disk_is_one_line_and_leaves_nothing(saved, tmp_path, monkeypatch):
    from safetensors import SafetensorError

    def full(*arguments, **keywords):
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("safetensors.numpy.save_file", full)
    with pytest.raises(OSError, match="no space is left"):
        saved[1].save(tmp_path / "deep" / "model")
    assert os.listdir(tmp_path) == []


def test_the_config_of_one_model_is_not_read_with_the_weights_of_another(saved, copy, monkeypatch):
    def late(path, read=read_json):
        config = read(path)
        monkeypatch.undo()
        saved[1].save(copy)  # by another process, after the config was read
        return config

    forge(copy, full(f"{P}ratio", 1.0))
    monkeypatch.setattr("sobgnn.estimator.artifact.read_json", late)
    with pytest.raises(ArtifactError, match="If it was replaced while it was being read, load it again"):
        SobolevClassifier.load(copy)


def test_a_folder_that_is_not_there_or_empty_is_one_clear_error(tmp_path):
    for folder in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(ArtifactError, match=r"has no config.json"):
            SobolevClassifier.load(folder)


@pytest.mark.cuda
def test_a_model_fitted_on_a_gpu_loads_on_the_cpu(tmp_path):
    X, classifier = fit(device="cuda")
    classifier.save(tmp_path / "model")
    loaded = SobolevClassifier.load(tmp_path / "model")
    np.testing.assert_allclose(loaded.predict_proba(X), classifier.predict_proba(X), atol=1e-3)
