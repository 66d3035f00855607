from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from sobgnn.labeling.source import check_unchanged, open_source
from sobgnn.runs.content import picture_path, row_content


def write(folder, text, name="data.csv"):
    path = folder / name
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("header", ["id,a,b,team", "id,a,b,other"])
def test_labels_may_be_empty_or_missing(tmp_path, header):
    source = open_source(write(tmp_path, f"{header}\nx,1,2,\ny,2,3,\nz,3,1,\n"), "team")
    assert list(source.table.classes) == []
    assert source.table.codes.tolist() == [-1, -1, -1]
    assert [source.id_of(row) for row in range(3)] == ["x", "y", "z"]


def test_columns_are_read_as_text_where_that_is_asked_for(tmp_path):
    path = write(tmp_path, "a,b\n" + "".join(f"{row},{'uv'[row % 2]} {'xy'[row // 2 % 2]}\n" for row in range(12)))
    assert open_source(path).table.encoding.encoder.outcomes_["b"] == "categories"
    assert open_source(path, text=["b"]).table.encoding.encoder.outcomes_["b"] == "short text"


def test_one_class_is_enough_to_begin_with(tmp_path):
    source = open_source(write(tmp_path, "a,b,team\n1,2,red\n2,3,\n3,1,red\n"), "team")
    assert list(source.table.classes) == ["red"]
    assert source.table.codes.tolist() == [0, -1, 0]


def test_content_shows_columns_but_neither_label_nor_id(tmp_path):
    text = "some words " * 10
    source = open_source(write(tmp_path, f"id,a,note,label\nx,1,{text},red\ny,2,short,\nz,3,,blue\n"))
    names = [[part["name"] for part in source.content(row)] for row in range(3)]
    assert names == [["note", "a"], ["a", "note"], ["a"]]  # a long text comes first, what is missing not at all
    assert source.content(1)[1]["value"] == "short"
    assert source.excerpt(0, most=20).endswith("…")


def test_a_long_text_is_cut_and_says_by_how_much(tmp_path):
    text = "word " * 6000
    source = open_source(write(tmp_path, f"a,note\n1,{text}\n2,short\n3,other\n"))
    part = source.content(0)[0]
    assert (len(part["value"]), part["more"]) == (20_000, 10_000)
    assert source.content(1)[1]["more"] == 0
    assert source.content(0, None)[0]["value"] == text


def test_a_changed_file_has_another_fingerprint(tmp_path):
    first = open_source(write(tmp_path, "a,b\n1,2\n2,3\n3,1\n")).fingerprint
    assert open_source(write(tmp_path, "a,b\n1,2\n2,3\n3,1\n", "b.csv")).fingerprint == first
    assert open_source(write(tmp_path, "a,b\n1,2\n2,3\n3,7\n", "c.csv")).fingerprint != first


@pytest.fixture
def photos(tmp_path):
    from PIL import Image

    for number in range(4):
        place = tmp_path / "photos" / "ab"[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), 50 * number).save(place / f"{number}.png")
    return tmp_path / "photos"


def test_a_changed_picture_has_another_fingerprint(photos):
    from PIL import Image

    names = ["a/0.png", "b/1.png", "a/2.png", "b/3.png"]
    write(photos, "image,photo\n" + "".join(f"scan {i},{name}\n" for i, name in enumerate(names)))
    places = [str(photos), str(photos / "data.csv")]
    first = [open_source(place).fingerprint for place in places]
    assert [open_source(place).fingerprint for place in places] == first
    Image.new("L", (8, 8), 7).save(photos / "a/0.png")
    assert not set(first) & {open_source(place).fingerprint for place in places}


def test_a_column_called_image_is_not_taken_for_the_pictures_beside_it(photos):
    names = ["a/0.png", "b/1.png", "a/2.png", "b/3.png"]
    path = write(photos, "photo,image\n" + "".join(f"{name},scan {i}\n" for i, name in enumerate(names)))
    source = open_source(path)
    assert source.picture(1) == ((photos / "b/1.png").read_bytes(), "image/png")
    assert [(part["name"], part["kind"]) for part in source.content(1)] == [("photo", "picture"), ("image", "text")]
    assert row_content(source.table, 1) == {"image": "scan 1"}
    assert picture_path(source.table, 1) == str(photos / "b/1.png")


def test_digits_are_pictures_without_labels():
    from PIL import Image

    source = open_source("digits")
    assert len(source.table.classes) == 10
    assert (source.table.codes == -1).all()
    assert source.content(0)[0]["kind"] == "picture"
    data, kind = source.picture(3)
    assert kind == "image/png"
    drawn = np.asarray(Image.open(io.BytesIO(data)))
    assert drawn.shape == (64, 64)
    values = source.table.X[3].reshape(8, 8)
    np.testing.assert_allclose(drawn[::8, ::8], 255 * values / values.max(), atol=1)


def test_a_folder_of_pictures_is_shown_and_nothing_beside_it(tmp_path):
    from PIL import Image

    folder = tmp_path / "pictures"
    generator = np.random.default_rng(0)
    for name in ("cat/a.png", "cat/b.jpg", "dog/c.bmp", "unlabeled/d.png"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(generator.integers(0, 255, (40, 30, 3), dtype=np.uint8)).save(folder / name)
    source = open_source(str(folder))
    assert list(source.table.classes) == ["cat", "dog"]
    kinds = [source.picture(row)[1] for row in range(4)]
    assert kinds == ["image/png", "image/jpeg", "image/png", "image/png"]  # what browsers may not know becomes PNG
    assert source.content(0)[0]["kind"] == "picture"
    assert str(tmp_path) not in str(source.content(0))
    (folder / "cat/a.png").write_text("no picture")
    assert source.picture(0) is None


def test_a_file_or_a_picture_that_changed_since_it_was_read_is_noticed(tmp_path):
    for number in range(4):
        Image.new("L", (8, 8), 60 * number).save(tmp_path / f"{number}.png")
    path = tmp_path / "table.csv"
    path.write_text("photo,size\n" + "".join(f"{i}.png,{i * i}\n" for i in range(4)))
    source = open_source(str(path))
    check_unchanged(source)
    for changed in (path, tmp_path / "2.png"):
        before = changed.read_bytes()
        changed.write_bytes(before + b"\n")
        with pytest.raises(ValueError, match="has changed since it was opened here"):
            check_unchanged(source)
        changed.write_bytes(before)
        check_unchanged(source)
    path.unlink()
    with pytest.raises(ValueError, match="has changed since it was opened here"):
        check_unchanged(source)
    check_unchanged(open_source("digits"))
