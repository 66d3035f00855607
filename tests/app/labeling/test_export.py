from __future__ import annotations

import base64
import io
import json

import numpy as np
from PIL import Image

from sobgnn.app.labeling.export import export
from sobgnn.app.labeling.rows import open_source
from sobgnn.app.labeling.store import Store


def labeled(source, folder, names, codes):
    store = Store(folder)
    given = np.full(source.rows, -1)
    given[: len(codes)] = codes
    store.begin({"fingerprint": source.fingerprint}, names, given)
    store.close()
    return store


def task(source, folder):
    found = json.loads(export("label-studio", source, labeled(source, folder, ["cat"], [-1, 0])))
    assert len(found) == 1
    result = found[0]["annotations"][0]["result"][0]
    assert (result["from_name"], result["type"], result["value"]) == ("label", "choices", {"choices": ["cat"]})
    return found[0]["data"], result["to_name"]


def test_columns_called_as_the_tasks_own_fields_do_not_replace_them(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("key,id,text,number\n" + "".join(f"k{i},{i + 50},words of {i},{i}\n" for i in range(4)))
    data, shown = task(open_source(str(path), identity="key"), tmp_path / "run")
    assert shown == "text"
    assert (data["id"], data["id (column)"], data["text (column)"]) == ("k1", "51", "words of 1")
    assert "words of 1" in data["text"]
    assert "51" in data["text"]


def test_texts_are_not_cut(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("note,number\n" + "".join(f"{'word ' * 9000}end{i},{i}\n" for i in range(4)))
    data, _ = task(open_source(str(path)), tmp_path / "run")
    assert data["note"].endswith("end1")
    assert "end1" in data["text"]


def test_pictures_are_named_by_their_path(tmp_path):
    for number in range(4):
        Image.effect_noise((20, 20), 50).save(tmp_path / f"{number}.png")
    data, shown = task(open_source(str(tmp_path)), tmp_path / "run")
    assert shown == "image"
    assert data["image"] == str(tmp_path / "1.png")
    assert "text" not in data


def test_pictures_without_files_are_in_the_export(tmp_path):
    data, shown = task(open_source("digits"), tmp_path)
    head, _, content = data["image"].partition(",")
    assert (shown, head) == ("image", "data:image/png;base64")
    assert Image.open(io.BytesIO(base64.b64decode(content))).size == (64, 64)
