from __future__ import annotations

import io
import os
import zlib

import numpy as np
import pytest
from PIL import Image

from sobgnn.app.labeling import rows
from sobgnn.app.labeling.launch import open_page
from sobgnn.app.labeling.rows import LARGEST_SIDE, check_unchanged, open_source
from sobgnn.app.runs.source import picture_path, row_contents
from tests.app.labeling.conftest import Client
from tests.app.labeling.fake_model import Fake


def write(folder, text, name="data.csv"):
    path = folder / name
    path.write_text(text)
    return str(path)


def test_labels_may_be_missing_empty_or_of_one_class(tmp_path):
    for header, last, classes in (("id,a,b,other", "", []), ("id,a,b,team", "", []), ("id,a,b,team", "red", ["red"])):
        source = open_source(write(tmp_path, f"{header}\nx,1,2,\ny,2,3,\nz,3,1,{last}\n"), "team")
        assert list(source.table.classes) == classes
        assert source.table.codes.tolist() == [-1, -1, len(classes) - 1]
        assert [source.id_of(row) for row in range(3)] == ["x", "y", "z"]


def test_content_shows_columns_but_neither_label_nor_id(tmp_path):
    text = "some words " * 10
    source = open_source(write(tmp_path, f"id,a,note,label\nx,1,{text},red\ny,2,short,\nz,3,,blue\n"))
    names = [[part["name"] for part in source.content(row)] for row in range(3)]
    assert names == [["a", "note"], ["a", "note"], ["a"]]  # what is missing is not shown
    assert source.content(1)[1]["value"] == "short"
    assert [source.table.row_name(row) for row in range(3)] == ["x", "y", "z"]
    assert source.excerpt(0, most=20).endswith("…")


def test_fields_of_all_rows_come_in_one_order_with_texts_first(tmp_path):
    lines = [f"{i * i % 7},{'b' * (3 if i % 3 else 90)},{'some words ' * (9 if i else 1)}" for i in range(30)]
    source = open_source(write(tmp_path, "number,code,note\n" + "\n".join(lines) + "\n"))
    orders = {tuple(part["name"] for part in source.content(row)) for row in range(30)}
    assert orders == {("note", "number", "code")}


def test_a_number_of_the_id_column_is_called_by_its_name_and_a_row_without_ids_by_its_number(tmp_path):
    assert open_source(write(tmp_path, "id,a,b\n847530,1,2\n847531,2,3\n9,3,1\n")).table.row_name(0) == "id 847530"
    assert open_source(write(tmp_path, "a,b\n1,2\n2,3\n3,1\n", "b.csv")).table.row_name(1) == "row 1"


def test_a_long_text_is_cut_and_says_by_how_much(tmp_path):
    text = "word " * 6000
    source = open_source(write(tmp_path, f"a,note\n1,{text}\n2,short\n3,other\n"))
    part = source.content(0)[0]
    assert (len(part["value"]), part["more"]) == (20_000, 10_000)
    assert source.content(1)[1]["more"] == 0
    assert source.content(0, None)[0]["value"] == text


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
    assert source.read_picture(1) == ((photos / "b/1.png").read_bytes(), "image/png")
    assert [(part["name"], part["kind"]) for part in source.content(1)] == [("photo", "picture"), ("image", "text")]
    assert row_contents(source.table, [1]) == [{"image": "scan 1"}]
    assert picture_path(source.table, 1) == str(photos / "b/1.png")


def test_digits_are_pictures_without_labels():
    from PIL import Image

    source = open_source("digits")
    assert len(source.table.classes) == 10
    assert (source.table.codes == -1).all()
    assert source.content(0)[0]["kind"] == "picture"
    data, kind = source.read_picture(3)
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
    kinds = [source.read_picture(row)[1] for row in range(4)]
    assert kinds == ["image/png", "image/jpeg", "image/png", "image/png"]  # what browsers may not know becomes PNG
    assert source.content(0)[0]["kind"] == "picture"
    assert str(tmp_path) not in str(source.content(0))
    (folder / "cat/a.png").write_text("no picture")
    with pytest.raises(ValueError, match="not a readable picture"):
        source.read_picture(0)


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


def size(shown):
    return Image.open(io.BytesIO(shown[0])).size


@pytest.mark.parametrize(
    ("mode", "suffix", "kind"),
    [
        ("RGB", "jpg", "image/jpeg"),
        ("CMYK", "jpg", "image/jpeg"),
        ("RGB", "png", "image/png"),
        ("P", "png", "image/png"),
        ("1", "png", "image/png"),
        ("I;16", "png", "image/png"),
        ("CMYK", "tif", "image/png"),
        ("F", "tif", "image/png"),
    ],
)
def test_large_pictures_are_made_smaller(tmp_path, mode, suffix, kind):
    path = tmp_path / f"a.{suffix}"
    Image.new(mode, (4000, 2000)).save(path)
    shown = rows._read(path)
    assert shown[1] == kind
    assert size(shown) == (LARGEST_SIDE, LARGEST_SIDE // 2)


def test_pictures_are_upright(tmp_path):
    turned = Image.Exif()
    turned[0x0112] = 6
    for suffix in ("jpg", "png"):
        Image.new("RGB", (4000, 2000)).save(tmp_path / f"a.{suffix}", exif=turned)
        assert size(rows._read(tmp_path / f"a.{suffix}")) == (LARGEST_SIDE // 2, LARGEST_SIDE)


def test_sixteen_bits_are_shown_with_the_largest_value_white(tmp_path):
    values = np.zeros((2000, 2000), np.uint16)
    values[:1000] = 3000
    Image.fromarray(values).save(tmp_path / "a.png")
    drawn = np.asarray(Image.open(io.BytesIO(rows._read(tmp_path / "a.png")[0])))
    assert (drawn.max(), drawn.min()) == (255, 0)


def test_too_many_pixels_are_refused_with_their_number_but_a_jpeg_is_decoded_smaller(tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "MOST_PIXELS", 4_000_000)
    Image.new("RGB", (3200, 3200)).save(tmp_path / "a.png")
    Image.new("RGB", (3200, 3200)).save(tmp_path / "a.jpg")
    with pytest.raises(ValueError, match="3,200 × 3,200 pixels; at most 4 million"):
        rows._read(tmp_path / "a.png")
    assert size(rows._read(tmp_path / "a.jpg")) == (1600, 1600)


@pytest.mark.parametrize(("side", "reason"), [(12_000, "12,000 × 12,000 pixels"), (30_000, "too many pixels")])
def test_a_picture_of_too_many_pixels_is_never_decoded(tmp_path, side, reason):
    Image.new("L", (1, 1)).save(tmp_path / "a.png")
    content = bytearray((tmp_path / "a.png").read_bytes())
    content[16:24] = 2 * side.to_bytes(4, "big")
    content[29:33] = zlib.crc32(content[12:29]).to_bytes(4, "big")
    (tmp_path / "a.png").write_bytes(content)
    with pytest.raises(ValueError, match=reason):
        rows._read(tmp_path / "a.png")


def test_a_changed_picture_is_read_again(tmp_path):
    path = tmp_path / "a.png"
    for shape in ((1600, 800), (1600, 1600)):
        Image.new("RGB", (2000, 2000 * shape[1] // 1600)).save(path)
        assert size(rows._read(path)) == shape


def picture_table(folder):
    """Six pictures of which one is a pipe, one no picture, one cut off and one missing."""
    for number in range(6):
        Image.effect_noise((2000 if number == 2 else 20, 20), 50).save(folder / f"{number}.png")
    (folder / "0.png").unlink()
    os.mkfifo(folder / "0.png")
    (folder / "1.png").write_text("no picture")
    (folder / "2.png").write_bytes((folder / "2.png").read_bytes()[:900])
    names = [f"{number}.png" for number in (0, 1, 2, 9, 3, 4, 5, 3, 4, 5)]
    path = folder / "table.csv"
    path.write_text("photo,size\n" + "".join(f"{name},{number}\n" for number, name in enumerate(names)))
    return path


REASONS = ["not a regular file", "not a readable picture", "damaged", "no such file"]


def test_the_page_answers_with_the_reason(tmp_path):
    page = open_page(str(picture_table(tmp_path)), folder=tmp_path / "run", trainer=Fake).start()
    try:
        client = Client(page.url)
        for row, reason in enumerate(REASONS):
            status, _, body = client.get(f"picture/{row}")
            assert status == 404
            assert reason in body.decode()
        assert client.get("picture/4")[0] == 200
    finally:
        page.close()


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n"


@pytest.mark.parametrize("suffix", ["png", "jpg", "tif"])
def test_a_file_that_is_named_like_a_picture_never_starts_ghostscript(tmp_path, monkeypatch, suffix):
    from PIL import EpsImagePlugin

    called = []
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *given: called.append(given))
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(EPS)
    with pytest.raises(ValueError, match="not a readable picture"):
        rows._read(path)
    assert not called
