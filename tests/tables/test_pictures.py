from __future__ import annotations

import os
import shutil

import numpy as np
import pytest
from PIL import Image

from sobgnn.app.labeling.rows import open_source
from sobgnn.app.runs import predict as run_predict
from sobgnn.tables import Encoding, batches, read_table
from sobgnn.tables.columns.picture import oriented_gradients, see
from sobgnn.tables.pictures import find_pictures, folder_labels, open_picture


def stripes(path, vertical, shade, side=40):
    """A picture of stripes with a little noise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(shade)
    bars = np.where(np.arange(side) // 4 % 2, 200, 40)
    pixels = np.broadcast_to(bars[None, :] if vertical else bars[:, None], (side, side)) + rng.integers(
        0, 30, (side, side)
    )
    Image.fromarray(np.repeat(pixels.astype(np.uint8)[:, :, None], 3, axis=2)).save(path)
    return path


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "pictures"
    for number in range(6):
        stripes(place / "across" / f"{number}.png", False, number)
        stripes(place / "upright" / f"{number}.png", True, number + 50)
    stripes(place / "unlabelled" / "x.png", True, 99)
    stripes(place / "loose.png", False, 98)
    (place / "across" / "notes.txt").write_text("no picture")
    (place / "across" / "broken.png").write_bytes(b"\x89PNG broken")
    return place


def test_subfolders_are_classes_and_file_names_are_ids(folder):
    table = read_table(folder)
    assert table.classes == ["across", "upright"]
    assert np.bincount(table.codes + 1).tolist() == [3, 6, 6]
    assert table.ids[0] == "across/0.png"
    assert table.content(0) == {"image": str(folder / "across/0.png")}
    assert np.isfinite(table.X).all()
    assert any("1 picture cannot be read" in note for note in table.notes)
    said = "Folders whose pictures count as unlabeled: unlabelled (1 picture). If one is a class, rename it."
    assert said in table.notes
    broken = table.ids.tolist().index("across/broken.png")
    assert not table.X[broken].any()
    assert table.codes[broken] == -1
    assert "Labels of pictures that cannot be read, not used: 1." in table.notes
    X, near = table.X.astype(float), []
    known = np.flatnonzero(table.codes >= 0)
    for row in known:
        distance = ((X[known] - X[row]) ** 2).sum(axis=1)
        near.append(table.codes[known[np.argsort(distance)[1]]] == table.codes[row])
    assert all(near)


def test_another_folder_is_encoded_alike(folder, tmp_path):
    table = read_table(folder)
    table.encoding.save(tmp_path)
    encoding = Encoding.load(tmp_path)
    copied = tmp_path / "new"
    stripes(copied / "a.png", True, 50)  # the same picture as upright/0.png
    (batch,) = batches(copied, encoding)
    np.testing.assert_allclose(batch.X[0], table.X[table.ids.tolist().index("upright/0.png")], atol=1e-5)
    assert batch.ids.tolist() == ["a.png"]


def test_a_table_can_name_pictures_and_labels(folder):
    names = [f"across/{i}.png" for i in range(5)] + [f"upright/{i}.png" for i in range(5)]
    lines = [f"{name},{i},{'' if i % 5 == 4 else name[0]}" for i, name in enumerate(names)]
    (folder / "labels.csv").write_text("file,weight,label\n" + "\n".join(lines))
    table = read_table(folder / "labels.csv")
    assert table.codes.tolist() == [0, 0, 0, 0, -1, 1, 1, 1, 1, -1]
    assert table.encoding.encoder.outcomes_["file"] == "pictures"
    assert table.ids[0] == "across/0.png"
    assert table.content(3) == {"file": str(folder / "across/3.png"), "weight": "3"}
    parts = [batch.X for batch in batches(folder / "labels.csv", table.encoding)]
    np.testing.assert_allclose(np.concatenate(parts), table.X, atol=1e-6)


def test_a_folder_without_pictures_is_refused_and_what_it_holds_instead_is_said(tmp_path):
    with pytest.raises(ValueError, match=r"folder without pictures\. Give a CSV"):
        read_table(tmp_path)
    (tmp_path / "a.svg").write_text("<svg/>")
    with pytest.raises(ValueError, match=r"without pictures that can be read\. Left out, 1 file of a kind .*: \.svg"):
        read_table(tmp_path)


@pytest.mark.parametrize("option", ["label", "identity", "drop", "text"])
def test_a_folder_has_no_columns_to_name(folder, option):
    with pytest.raises(ValueError, match=r"--(label|id|drop|text) names a column of a table, but .*pictures' is no"):
        read_table(folder, **{option: "kind" if option in ("label", "identity") else ["kind"]})


@pytest.mark.parametrize(("inside", "classes"), [("across", 0), (".", 1)])
def test_subfolders_of_two_classes_are_needed_to_fit_but_not_to_label(folder, inside, classes):
    shutil.rmtree(folder / "upright")
    with pytest.raises(ValueError, match=f"subfolders of .* at least two are needed, but got {classes}"):
        read_table(folder / inside)
    assert len(read_table(folder / inside, need_labels=False).classes) == classes


def test_folders_that_mean_unlabelled():
    names = ["Unlabeled/a.png", "unknown/b.png", "cat/deep/c.png", "d.png"]
    assert folder_labels(names) == [None, None, "cat", None]


def test_gradients_point_where_the_picture_changes():
    ramp = np.broadcast_to(np.arange(32, dtype=np.float32)[None, None, :], (1, 32, 32))
    across = oriented_gradients(ramp).reshape(8, 8, 9)
    down = oriented_gradients(ramp.transpose(0, 2, 1)).reshape(8, 8, 9)
    assert (across.argmax(axis=2) == 0).all()  # a gradient along x has the angle 0
    assert set(down.argmax(axis=2).ravel()) <= {4, 5}  # along y, 90 degrees of 180 in nine parts
    np.testing.assert_allclose(oriented_gradients(3 * ramp), oriented_gradients(ramp), rtol=1e-3)


def test_what_cannot_be_seen_is_said_and_not_raised(tmp_path):
    for name, data in [("a.png", b""), ("b.jpg", b"\xff\xd8\xff"), ("c.gif", b"GIF89a")]:
        (tmp_path / name).write_bytes(data)
    Image.new("RGBA", (3, 5), (255, 0, 0, 0)).save(tmp_path / "d.png")
    Image.new("I;16", (4, 4), 300).save(tmp_path / "e.png")
    Image.new("P", (4, 4)).save(tmp_path / "f.gif")
    features, broken = see([tmp_path / n for n in ("a.png", "b.jpg", "c.gif", "d.png", "e.png", "f.gif", "none.png")])
    assert broken.tolist() == [True, True, True, False, False, False, True]
    assert np.isfinite(features).all()


def test_pictures_that_cannot_be_read_are_counted_and_far(folder, tmp_path):
    table = read_table(folder)
    new = tmp_path / "new"
    new.mkdir()
    for i in range(4):
        stripes(new / f"{i}.png", i % 2, 200)
    (new / "broken.png").write_text("junk")
    (batch,) = batches(new, table.encoding)
    assert batch.unread == {"image": 1}
    assert batch.beyond.tolist() == [False, False, False, False, True]
    for i in range(4):
        (new / f"{i}.png").write_text("junk")
    with pytest.raises(ValueError, match=r"5 of the first 5 pictures cannot be read, such as .* the file is damaged"):
        list(batches(new, table.encoding))
    with pytest.raises(ValueError, match=r"5 of 5 pictures cannot be read, such as .* the file is damaged"):
        read_table(new, need_labels=False)


def test_a_name_that_is_not_utf_8_is_left_out_and_said(folder):
    try:
        open(os.fsencode(folder / "across") + b"/caf\xe9.png", "wb").close()
    except OSError:
        pytest.skip("the file system takes only names that are UTF-8")
    table = read_table(folder)
    assert len(table.codes) == 15
    assert r"Left out, 1 picture whose name is not UTF-8, such as 'across/caf\xe9.png'. Rename it." in table.notes
    assert next(batches(folder, table.encoding)).X.shape[0] == 15


def test_a_folder_of_other_things_is_not_taken_for_one_of_pictures(folder):
    (folder.parent / "elsewhere").mkdir()
    for number in range(15):
        (folder / "across" / f"{number}.json").touch()  # of a picture's name, or not
        (folder.parent / "elsewhere" / f"{number}.txt").touch()
    assert len(read_table(folder).codes) == 15
    with pytest.raises(ValueError, match=r"holds 15 pictures, such as 'pictures/.*', among 25 other files\. Name the"):
        read_table(folder.parent)


def test_folders_behind_links_are_read_once(folder):
    names = find_pictures(folder)[0]
    (folder / "zoo").symlink_to(folder / "across")
    (folder / "loop").symlink_to(folder)
    assert len(find_pictures(folder)[0]) == len(names)


def test_links_out_of_a_folder_of_pictures_are_left_out_and_said(folder, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    stripes(tmp_path / "elsewhere" / "secret.png", True, 7)
    names = find_pictures(folder)[0]
    (folder / "across" / "secret.png").symlink_to(tmp_path / "elsewhere" / "secret.png")
    (folder / "aside").symlink_to(tmp_path / "elsewhere")
    assert find_pictures(folder)[0] == names
    table = read_table(folder)
    said = "Left out, 2 links to outside the folder ('across/secret.png'): copy what they lead to into it."
    assert said in table.notes
    assert next(batches(folder, table.encoding)).said == (said,)


def test_a_table_does_not_open_pictures_behind_links_out_of_its_folder(folder, tmp_path):
    stripes(tmp_path / "secret.png", True, 7)
    (folder / "link.png").symlink_to(tmp_path / "secret.png")
    names = [f"{kind}/{i}.png" for kind in ("across", "upright") for i in range(6)]
    rows = [f"{name},{name[0]}\n" for name in [*names, "link.png"]]
    (folder / "t.csv").write_text("file,label\n" + "".join(rows))
    table = read_table(folder / "t.csv")
    assert not table.X[12].any()
    assert "file" not in table.content(12)
    assert table.content(0)["file"] == str(folder / "across/0.png")
    reason = table.encoding.pictures.reason("link.png")
    assert "link to a file outside" in reason
    link = open_source(str(folder / "t.csv"))
    with pytest.raises(ValueError, match="link to something outside"):
        link.read_picture(12)
    assert link.read_picture(0)[1] == "image/png"


def test_names_of_pictures_that_are_not_there_are_an_error(tmp_path):
    (tmp_path / "t.csv").write_text("file,label\n" + "".join(f"im{i}.png,{'ab'[i % 2]}\n" for i in range(20)))
    with pytest.raises(ValueError, match=r"Column 'file' names pictures that do not exist, such as 'im0.png'.*--drop"):
        read_table(tmp_path / "t.csv")


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_what_is_transparent_is_white_and_an_opaque_picture_keeps_its_bits(tmp_path, mode):
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 200, (32, 32, 4), dtype=np.uint8)
    pixels[:, :, 3] = 255
    if mode == "P":
        pixels[:, :, :3] = 90  # few colors, which a palette keeps
    kind = "LA" if mode == "LA" else "RGBA"
    Image.fromarray(pixels).convert(kind).save(tmp_path / "opaque.png")
    Image.open(tmp_path / "opaque.png").convert("RGB").save(tmp_path / "plain.png")
    pixels[:16, :, 3] = 0
    made = Image.fromarray(pixels).convert(kind)
    if mode == "P":
        made = made.quantize(8)
    made.save(tmp_path / "half.png")
    held, broken = see([tmp_path / f"{name}.png" for name in ("opaque", "plain", "half")])
    assert not broken.any()
    np.testing.assert_array_equal(held[0], held[1])
    half = held[2, :3072].reshape(32, 32, 3)
    assert (half[:16] == 1).all()
    assert (half[16:] < 1).all()


def test_pictures_of_kinds_that_are_not_read_are_counted_and_macosx_is_no_class(folder):
    stripes(folder / "__MACOSX" / "across" / "0.png", True, 3)
    for name in ("a.heic", "b.HEIC", "c.avif"):
        (folder / "across" / name).write_bytes(b"?")
    table = read_table(folder)
    assert table.classes == ["across", "upright"]
    said = "Left out, 3 files of kinds that are not read: .heic, .avif. Convert them to PNG or JPEG."
    assert said in table.notes
    batch = next(batches(folder, table.encoding))
    assert batch.said == (said,)
    assert run_predict._as_one([batch, batch]).said == (said,)


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n"


@pytest.mark.parametrize("suffix", ["png", "jpg", "tif"])
def test_a_file_that_is_named_like_a_picture_never_starts_ghostscript(tmp_path, monkeypatch, suffix):
    from PIL import EpsImagePlugin

    called = []
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *given: called.append(given))
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(EPS)
    assert open_picture(path, 32) is None
    assert not called
