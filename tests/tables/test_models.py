from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3

import numpy as np
import polars as pl
import pytest

from sobgnn import SobolevClassifier, TableEncoder
from sobgnn.cli import main
from sobgnn.tables import kept, models, read_table
from sobgnn.tables.columns.text import TextColumn
from sobgnn.tables.meaning import TextModel
from sobgnn.tables.models import AskedModel, at_hand, distill, find, find_text_model, same_model
from tests.encoders import WORDS, image_model, static_model, text_model

pytest.importorskip("transformers")

HUB_NAME = "sentence-transformers/all-MiniLM-L6-v2"


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A hub cache, a folder for vectors, and installed packages, all empty."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.setenv("SOBGNN_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    (tmp_path / "site-packages").mkdir()
    monkeypatch.setattr(models, "_package_folders", lambda: [tmp_path / "site-packages"])
    return tmp_path


def in_hub(place, name=HUB_NAME, make=text_model, **options):
    """A model in the hub's local cache."""
    folder, revision = place / "hub" / "hub" / f"models--{name.replace('/', '--')}", "0" * 40
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(revision)
    return make(folder / "snapshots" / revision, **options)


def table(rows=30):
    rng = np.random.default_rng(0)
    return {"note": [" ".join(rng.choice(WORDS[4:], 6)) for _ in range(rows)], "n": rng.normal(size=rows).tolist()}


def test_words_alone_are_used_and_said_where_no_model_is_at_hand():
    encoder = TableEncoder().fit(table())
    assert encoder.outcomes_["note"] == "text"
    assert "--text-model all-MiniLM-L6-v2 fetches a model" in encoder.advice_
    assert TableEncoder(text_model="none").fit(table()).advice_ == ""
    assert TableEncoder(text_model=None).fit({"n": [1.0, 2.0, 4.0]}).advice_ == ""


@pytest.mark.parametrize("where", ["hub", "package"])
def test_a_model_at_hand_is_used_beside_the_words(place, where):
    folder = in_hub(place) if where == "hub" else text_model(place / "site-packages" / "tiny_model" / "model")
    name = HUB_NAME if where == "hub" else "tiny-model"
    encoder = TableEncoder()
    X = encoder.fit_transform(table())
    assert encoder.outcomes_["note"] == "text model"
    assert encoder.advice_ == ""
    words = TextColumn.fit(pl.Series("note", table()["note"]), "words").basis.shape[1]
    width = encoder.slices_["note"].stop
    assert width == words + 16
    assert encoder.notes_ == [f"Text, by words and meaning ({name}): note ({width} features)."]
    # Words have 30 % of the variance, meaning 70 %, and both the weight of a text column.
    parts = X[:, :words].var(axis=0).sum(), X[:, words:width].var(axis=0).sum()
    np.testing.assert_allclose(parts, (3, 7), rtol=1e-3)
    explicit = TableEncoder(text_model=folder).fit_transform(table())
    np.testing.assert_allclose(explicit, X, atol=1e-5)
    encoder.save(place / "encoder")
    np.testing.assert_allclose(TableEncoder.load(place / "encoder").transform(table()), X, atol=1e-5)


def test_a_language_model_without_pooling_is_not_taken_for_one_of_sentences(place):
    folder = in_hub(place)
    (folder / "modules.json").unlink()
    assert find_text_model("auto") is None
    assert find_text_model(folder) is not None


def test_names_are_looked_for_here_and_fetched_only_where_they_are_typed(place, monkeypatch):
    folder = in_hub(place)
    assert find("all-MiniLM-L6-v2").folder == find(HUB_NAME).folder == folder
    monkeypatch.setattr(models, "fetch", lambda name: pytest.fail("the network"))
    package = text_model(place / "site-packages" / "our_bge_small" / "model")
    assert find("BGE-small").folder == find("BAAI/bge-small").folder == package
    TableEncoder().fit(table())
    assert same_model(TextModel(folder).record, find_text_model).folder == folder


@pytest.mark.parametrize("name", ["all-mpnet-base-v2", "nobody/nothing"])
def test_offline_is_one_line(name, capsys):
    with pytest.raises(ValueError, match=r"no model .* on this machine, and the hub cannot be reached\. Run") as error:
        find_text_model(name)
    assert "\n" not in str(error.value)
    assert main(["models", "fetch", name]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_many_texts_go_by_their_words_unless_a_fast_model_is_at_hand(place, monkeypatch):
    in_hub(place)
    monkeypatch.setattr(models, "_MOST_CHARACTERS", 100)
    monkeypatch.setattr(models, "_has_cuda", lambda: False)
    asked = AskedModel("auto")
    assert asked.of(50).name == HUB_NAME
    assert asked.of(500) is None
    assert f"`sobgnn models distill {HUB_NAME}`" in asked.advice
    static_model(place / "cache" / "models" / "tiny-static")
    assert AskedModel("auto").of(500).name == "tiny-static"
    assert AskedModel("auto").of(50).name == HUB_NAME


def test_texts_are_encoded_once(place, monkeypatch):
    folder, calls = text_model(place / "m"), []
    model = TextModel(folder)
    monkeypatch.setattr(kept, "_AT_ONCE", 2)
    texts = ["the cat", "a dog", "the cat", "blue"]
    first = model.encode(texts)
    again = TextModel(folder)
    monkeypatch.setattr(again, "_network_vectors", lambda new: calls.append(list(new)) or first[:1])
    np.testing.assert_array_equal(again.encode(texts), first)
    assert not calls
    said = []
    again.progress = said.append
    again.encode(["new", "the cat"])
    assert calls == [["new"]]
    assert said == ["meaning of 0 of 1 texts", "meaning of 1 of 1 texts, 0 s left"]
    other = TextModel(text_model(place / "o", seed=1))
    assert np.abs(other.encode(texts) - first).max() > 1e-3


@pytest.mark.parametrize("harm", [b"", b"\0" * 50, None])
def test_vectors_that_are_damaged_or_cannot_be_kept_are_made_again(place, harm):
    folder = text_model(place / "m")
    first = TextModel(folder).encode(["the cat"])
    (file,) = (place / "cache" / "vectors").iterdir()
    if harm is None:
        shutil.rmtree(place / "cache")
        (place / "cache").write_text("a file where a folder should be")
    else:
        file.write_bytes(harm)
    np.testing.assert_allclose(TextModel(folder).encode(["the cat"]), first, atol=1e-6)


def test_kept_vectors_have_a_bound(place, monkeypatch):
    monkeypatch.setattr(kept, "_MOST_BYTES", 5 * (4 * 16 + 16))
    monkeypatch.setattr(kept, "_MOST_MODELS", 2)
    for seed in range(3):
        TextModel(text_model(place / f"m{seed}", seed=seed)).encode([f"the cat {i}" for i in range(9)])
    files = list((place / "cache" / "vectors").iterdir())
    assert len(files) == 2
    for file in files:
        with contextlib.closing(sqlite3.connect(file)) as base:
            assert base.execute("SELECT count(*) FROM vectors").fetchone() == (5,)


def test_a_distilled_model_is_static_and_of_the_same_words(place):
    found = distill(str(text_model(place / "tiny")))
    model = TextModel(found.folder)
    assert model.static
    vectors = model.encode(["cat", "dog", "cat", "the"])
    np.testing.assert_array_equal(vectors[0], vectors[2])
    assert np.abs(vectors[0] - vectors[1]).max() > 1e-3
    assert [each.place for each in at_hand()] == ["distilled"]
    # Frequent words, which come first in a vocabulary, weigh less.
    assert np.linalg.norm(vectors[3]) < 2 * np.linalg.norm(vectors[0])
    with pytest.raises(ValueError, match="static already"):
        distill(str(found.folder))


def test_models_are_listed_with_their_places(place, capsys):
    folder = in_hub(place)
    assert main(["models", "list"]) == 0
    said = capsys.readouterr().out
    assert f"{HUB_NAME:<42}hub cache (used for texts by default)" in said
    assert str(folder).replace("\n", "") in said.replace("\n", "")
    assert "`sobgnn models fetch potion-base-8M`" in said


@pytest.mark.trains
def test_a_fit_says_which_model_it_used_and_predict_finds_it_by_its_digest(place, capsys):
    rows = table(40)
    pl.DataFrame({**rows, "label": ["a", "b"] * 20}).write_csv(place / "t.csv")
    data, run, out = (str(place / name) for name in ("t.csv", "run", "o.csv"))
    assert main(["fit", data, "--out", str(place / "by-words")]) == 0
    assert "Next: Texts go by their words." in capsys.readouterr().out
    folder = in_hub(place)
    assert main(["fit", data, "--out", run]) == 0
    said = capsys.readouterr().out
    assert f"Text, by words and meaning ({HUB_NAME})" in said
    assert "Texts go by their words" not in said
    assert main(["predict", run, data, "--out", out]) == 0
    assert main(["predict", run, data, "--out", out, "--text-model", "none"]) == 0
    shutil.rmtree(folder)
    capsys.readouterr()
    assert main(["predict", run, data, "--out", out]) == 2
    assert f"fitted with the model '{HUB_NAME}'" in capsys.readouterr().err
    assert "models--" not in json.dumps(json.loads((place / "run" / "table.json").read_text()))


def test_a_models_vectors_stand_beside_pixels_and_gradients(place):
    from tests.tables.test_meaning import pictures

    folder = pictures(place / "p")
    plain, both = read_table(folder), read_table(folder, image_model=image_model(place / "m"))
    width = plain.X.shape[1]
    assert both.X.shape[1] == width + 12
    seen, meaning = both.X[:, :width], both.X[:, width:]
    np.testing.assert_allclose(seen.var(axis=0).sum(), meaning.var(axis=0).sum(), rtol=1e-3)


def test_the_labeling_page_says_how_far_encoding_is_and_what_would_help(place):
    pytest.importorskip("uvicorn")
    from sobgnn.app.labeling import open_page
    from tests.app.labeling.fake_model import Fake

    pl.DataFrame(table()).write_csv(place / "t.csv")
    said = []
    for name, model in (("words", None), ("meaning", in_hub)):
        if model is not None:
            model(place)
        page = open_page(str(place / "t.csv"), folder=place / name, trainer=Fake, progress=said.append)
        advice, notes = page.labeling.source.table.encoding.advice, page.labeling.source.table.notes
        page.close()
        assert ("fetches a model" in advice) == (not said) == (model is None)
    assert said[-1] == "meaning of 30 of 30 texts, 0 s left"
    assert any("by words and meaning" in note for note in notes)


@pytest.mark.trains
def test_a_saved_classifier_of_frames_finds_its_model_by_its_digest(place):
    folder, rows = in_hub(place), table(40)
    labels = np.array(["a", "b"] * 20, dtype=object)
    fitted = SobolevClassifier(families=["linear"]).fit(pl.DataFrame(rows), labels)
    fitted.save(place / "model")
    np.testing.assert_allclose(
        SobolevClassifier.load(place / "model").predict_proba(pl.DataFrame(rows)),
        fitted.predict_proba(pl.DataFrame(rows)), atol=1e-5,
    )  # fmt: skip
    shutil.rmtree(folder)
    with pytest.raises(ValueError, match=rf"^It was fitted with the model '{HUB_NAME}' .*text_model=FOLDER"):
        SobolevClassifier.load(place / "model").predict(pl.DataFrame(rows))
