from __future__ import annotations

import json
import shutil
import sys

import numpy as np
import polars as pl
import pytest
from PIL import Image

from sobgnn import TableEncoder
from sobgnn._system.files import json_digest
from sobgnn.cli import main
from sobgnn.tables import Encoding, batches, read_table
from sobgnn.tables.meaning import ImageModel, TextModel
from tests.encoders import WORDS, image_model, static_model, text_model

pytest.importorskip("transformers")
pytest.importorskip("tokenizers")

TEXTS = ["the old cat sat", "a red dog ran", "house", "", "the the new blue house " * 30]
# transformers looks for the packages of other frameworks as it is imported.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers")


def one_line(error):
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return text_model(tmp_path_factory.mktemp("model") / "tiny")


def frame(rows=40):
    rng = np.random.default_rng(0)
    codes = np.arange(rows) % 2
    words = [["old", "cat", "sat", "red"], ["new", "dog", "ran", "blue"]]
    notes = [" ".join(rng.choice([*words[code], "the", "house"], 6)) for code in codes]
    return pl.DataFrame({"note": notes, "size": rng.normal(size=rows), "label": [f"c{code}" for code in codes]})


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_vectors_are_those_of_the_network_pooled(tmp_path, pooling):
    import torch
    from transformers import BertConfig, BertModel

    folder = text_model(tmp_path / "m", pooling)
    network = BertModel(BertConfig.from_json_file(folder / "config.json"), add_pooling_layer=False).eval()
    from safetensors.torch import load_file

    network.load_state_dict(load_file(folder / "model.safetensors"))
    found = TextModel(folder).encode(TEXTS)
    for text, vector in zip(TEXTS, found, strict=True):
        words = text.replace("a ", "[UNK] ").split()
        ids = [2, *(WORDS.index(word) for word in words), 3]
        ids = [*ids[:39], 3] if len(ids) > 40 else ids
        with torch.inference_mode():
            states = network(input_ids=torch.tensor([ids])).last_hidden_state[0].numpy()
        wanted = {"mean": states.mean(axis=0), "cls": states[0], "max": states.max(axis=0)}[pooling]
        np.testing.assert_allclose(vector, wanted, atol=1e-5)


def test_a_dense_layer_is_applied(tmp_path):
    from safetensors.numpy import load_file

    plain = TextModel(text_model(tmp_path / "a")).encode(TEXTS)
    folder = text_model(tmp_path / "b", dense=True)
    held = load_file(folder / "2_Normalize" / "model.safetensors")
    wanted = np.tanh(plain @ held["linear.weight"].T + held["linear.bias"])
    np.testing.assert_allclose(TextModel(folder).encode(TEXTS), wanted, atol=1e-5)


def test_a_static_model_is_the_mean_of_its_words(tmp_path):
    from safetensors.numpy import load_file

    folder = static_model(tmp_path / "m")
    vectors = load_file(folder / "model.safetensors")["embeddings"]
    found = TextModel(folder).encode(["The old cat zzz", ""])
    np.testing.assert_allclose(found[0], vectors[[4, 5, 7]].mean(axis=0), atol=1e-6)
    assert not found[1].any()


@pytest.mark.parametrize("kind", ["dinov2", "vit", "clip_vision_model", "siglip_vision_model"])
def test_a_vision_model_sees_pictures(tmp_path, kind):
    model = ImageModel(image_model(tmp_path / "m", kind))
    pixels = np.random.default_rng(0).random((5, 16, 16, 3), dtype=np.float32)
    found = model.encode(pixels)
    assert found.shape == (5, 12)
    np.testing.assert_allclose(found[2:4], model.encode(pixels[2:4]), atol=1e-5)
    assert np.abs(found[0] - found[1]).max() > 1e-3


def pictures(place):
    rng = np.random.default_rng(0)
    for i in range(24):
        path = place / "ab"[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((rng.random((16, 16, 3)) * 60 + i % 2 * 150).astype(np.uint8)).save(path)
    return place


def test_a_saved_encoding_names_no_path_and_asks_for_the_same_model(tmp_path, model):
    frame().write_csv(tmp_path / "t.csv")
    table = read_table(tmp_path / "t.csv", text_model=model)
    assert table.encoding.encoder.outcomes_["note"] == "text model"
    table.encoding.save(tmp_path)
    held = (tmp_path / "table.json").read_text()
    assert str(model.parent) not in held
    assert str(tmp_path) not in held
    again = Encoding.load(tmp_path, text_model=model)
    np.testing.assert_allclose(next(batches(tmp_path / "t.csv", again)).X, table.X, atol=1e-5)
    for given, said in [
        ({}, r"fitted with the model 'tiny' \(digest \w{12}\), which is not saved .*: --text-model FOLDER"),
        ({"text_model": text_model(tmp_path / "other", seed=1)}, "but --text-model FOLDER .* gives 'other'"),
        ({"text_model": model, "image_model": image_model(tmp_path / "i")}, "--image-model is given, but there is no"),
        ({"text_model": tmp_path / "none"}, "There is no folder .* with a model"),
    ]:
        with pytest.raises(ValueError, match=said) as error:
            Encoding.load(tmp_path, **given)
        one_line(error)


def test_an_encoder_of_pictures_is_loaded_with_their_folder_and_model(tmp_path):
    place, folder = pictures(tmp_path / "p"), image_model(tmp_path / "m")
    names = sorted(path.relative_to(place).as_posix() for path in place.rglob("*.png"))
    table = {"image": names, "n": list(range(24))}
    encoder = TableEncoder(image_folder=place, image_model=folder)
    X = encoder.fit_transform(table)
    assert encoder.outcomes_["image"] == "pictures"
    encoder.save(tmp_path / "e")
    again = TableEncoder.load(tmp_path / "e", image_folder=place, image_model=folder)
    np.testing.assert_allclose(again.transform(table), X, atol=1e-5)
    with pytest.raises(ValueError, match=r"folder of the pictures is not saved .* image_folder=FOLDER"):
        TableEncoder.load(tmp_path / "e", image_model=folder).transform(table)
    with pytest.raises(ValueError, match="--image-model FOLDER"):
        TableEncoder.load(tmp_path / "e")


def test_half_a_model_and_other_forms_are_one_line(tmp_path, model, capfd):
    def harmed(name, change):
        folder = tmp_path / f"harmed-{len(list(tmp_path.iterdir()))}"
        shutil.copytree(model, folder)
        path = folder / name
        if change is None:
            path.unlink()
        elif isinstance(change, bytes):
            path.write_bytes(change)
        else:
            path.write_text(json.dumps(change(json.loads(path.read_text()))))
        return folder

    def without_last(path):
        from safetensors.numpy import load, save

        held = load(path.read_bytes())
        held.pop("encoder.layer.1.output.dense.weight")
        return save(held)

    cases = [
        ("model.safetensors", None, "has no model.safetensors, and weights in another form are not read"),
        ("model.safetensors", b"\0" * 100, "cannot be used"),
        ("model.safetensors", without_last(model / "model.safetensors"), "only half a model"),
        ("tokenizer.json", None, "has no tokenizer.json"),
        ("tokenizer.json", b"{}", "cannot be used"),
        ("config.json", None, "only half of one: it has no config.json"),
        ("config.json", b"[", "damaged"),
        ("config.json", lambda c: {**c, "model_type": "rag"}, "model of type 'rag'. Those that are read: albert"),
        ("config.json", lambda c: {**c, "hidden_size": 99}, "cannot be used|half a model"),
        ("config.json", lambda c: {**c, "hidden_act": "os.system"}, "cannot be used"),
        ("config.json", lambda c: {**c, "num_hidden_layers": 10**9}, "more layers than its weights: num_hidden_layers"),
        ("config.json", lambda c: {**c, "pad_token_id": 10**6}, "cannot be used"),
        ("modules.json", lambda m: [{"type": "subprocess.Popen", "path": ""}], "module 'Popen'"),
        ("modules.json", lambda m: [{**m[0]}, {**m[1], "path": "../../etc"}], "no file in it"),
        ("config_sentence_transformers.json", b'{"prompts": ["x"]}', "holds a model that cannot be used"),
        ("1_Pooling/config.json", lambda c: {"pooling_mode": "weightedmean"}, "Pooling must be one of"),
    ]
    for name, change, said in cases:
        folder = harmed(name, change)
        with pytest.raises(ValueError, match=said) as error:
            TextModel(folder).encode(["the cat"])
        assert len(one_line(error)) < 400
    assert capfd.readouterr().err == ""


def archive_of(folder):
    """A file that torch.export would unpickle."""
    (folder / "model.pt2").write_bytes(b"PK\x03\x04")
    return folder / "model.pt2"


def test_what_may_hold_code_is_not_opened_as_a_model(tmp_path):
    for name in ("m.pt", "m.pt2", "m.onnx", "m.bin", "m.pkl"):
        (tmp_path / name).write_bytes(b"PK\x03\x04")
        for model in (ImageModel, TextModel):
            with pytest.raises(ValueError, match=r"may hold code that runs when it is opened.*Pass a folder") as error:
                model(tmp_path / name)
            one_line(error)


# What a forged entry of table.json may name, by the names of today and of earlier versions.
NAMED = [
    lambda path, _: {"model": str(path)},
    lambda path, _: {"model": {"name": str(path), "digest": str(path)}},
    lambda path, _: {"model": {"name": str(path), "digest": "0" * 64, "path": str(path), "folder": str(path)}},
    lambda path, folder: {"model": None, "root": str(folder)},
]


@pytest.mark.parametrize("forge", NAMED)
def test_a_forged_run_opens_no_path_that_it_names(tmp_path, capsys, forge):
    place, archive = pictures(tmp_path / "p"), archive_of(tmp_path)
    assert main(["fit", str(place), "--out", str(tmp_path / "run")]) == 0
    content = json.loads((tmp_path / "run" / "table.json").read_text())
    content["encoding"]["encoder"]["settings"] |= {"image_model": str(archive), "text_model": str(tmp_path)}
    content["encoding"]["encoder"]["columns"][0] |= forge(archive, tmp_path)
    del content["sha256"]
    (tmp_path / "run" / "table.json").write_text(json.dumps({**content, "sha256": json_digest(content)}))
    opened = set()
    watched = [str(archive)]
    sys.addaudithook(lambda event, given: opened.add(str(given[0])) if watched and event == "open" else None)
    capsys.readouterr()
    code = main(["predict", str(tmp_path / "run"), str(place), "--out", str(tmp_path / "out.csv")])
    watched.clear()
    said = capsys.readouterr().err
    assert str(archive) not in opened
    if code:
        assert code == 2
        assert said.count("\n") == 1


def test_a_changed_run_is_noticed(tmp_path):
    frame().write_csv(tmp_path / "t.csv")
    read_table(tmp_path / "t.csv").encoding.save(tmp_path)
    content = json.loads((tmp_path / "table.json").read_text())
    arrays = (tmp_path / "table.npz").read_bytes()
    (tmp_path / "table.npz").write_bytes(arrays[:-1] + b"\1")
    with pytest.raises(ValueError, match=r"table.npz is truncated or was changed"):
        Encoding.load(tmp_path)
    (tmp_path / "table.npz").write_bytes(arrays)
    content["encoding"]["label"] = "size"
    (tmp_path / "table.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"table.json was changed after it was written"):
        Encoding.load(tmp_path)


@pytest.mark.parametrize("name", ["table.json", "table.npz", "model/config.json", "model/weights.safetensors", "model"])
def test_a_link_in_a_run_that_leads_out_of_it_is_not_followed(tmp_path, capsys, name):
    frame().write_csv(tmp_path / "t.csv")
    assert main(["fit", str(tmp_path / "t.csv"), "--out", str(tmp_path / "run")]) == 0
    shutil.move(tmp_path / "run" / name, tmp_path / "moved")
    (tmp_path / "run" / name).symlink_to(tmp_path / "moved")
    capsys.readouterr()
    assert main(["predict", str(tmp_path / "run"), str(tmp_path / "t.csv"), "--out", str(tmp_path / "o.csv")]) == 2
    assert "is a link to something outside its folder" in capsys.readouterr().err


@pytest.mark.trains
def test_a_run_by_meaning_predicts_with_its_model_and_says_what_is_missing(tmp_path, capsys, model):
    frame().write_csv(tmp_path / "t.csv")
    run, data, out = (str(tmp_path / name) for name in ("run", "t.csv", "o.csv"))
    assert main(["fit", data, "--out", run, "--text-model", str(model), "--text", "note"]) == 0
    assert main(["predict", run, data, "--out", out, "--text-model", str(model)]) == 0
    capsys.readouterr()
    assert main(["predict", run, data, "--out", out]) == 2
    said = capsys.readouterr().err
    assert "fitted with the model 'tiny'" in said
    assert said.count("\n") == 1
