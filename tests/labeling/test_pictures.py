from __future__ import annotations

import io
import os
import threading
import zlib

import numpy as np
import pytest
from PIL import Image

from sobgnn.labeling import pictures
from sobgnn.labeling.launch import open_page
from sobgnn.labeling.pictures import LARGEST_SIDE, Pictures
from sobgnn.labeling.source import open_source, png
from tests.labeling.conftest import FAKE, Client


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
    shown = Pictures().read(path)
    assert shown[1] == kind
    assert size(shown) == (LARGEST_SIDE, LARGEST_SIDE // 2)


def test_pictures_are_upright(tmp_path):
    turned = Image.Exif()
    turned[0x0112] = 6
    for suffix in ("jpg", "png"):
        Image.new("RGB", (4000, 2000)).save(tmp_path / f"a.{suffix}", exif=turned)
        assert size(Pictures().read(tmp_path / f"a.{suffix}")) == (LARGEST_SIDE // 2, LARGEST_SIDE)


def test_sixteen_bits_are_shown_with_the_largest_value_white(tmp_path):
    values = np.zeros((2000, 2000), np.uint16)
    values[:1000] = 3000
    Image.fromarray(values).save(tmp_path / "a.png")
    drawn = np.asarray(Image.open(io.BytesIO(Pictures().read(tmp_path / "a.png")[0])))
    assert (drawn.max(), drawn.min()) == (255, 0)


def test_too_many_pixels_are_refused_with_their_number_but_a_jpeg_is_decoded_smaller(tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "MOST_PIXELS", 4_000_000)
    Image.new("RGB", (3200, 3200)).save(tmp_path / "a.png")
    Image.new("RGB", (3200, 3200)).save(tmp_path / "a.jpg")
    with pytest.raises(ValueError, match="3,200 × 3,200 pixels; at most 4 million"):
        Pictures().read(tmp_path / "a.png")
    assert size(Pictures().read(tmp_path / "a.jpg")) == (1600, 1600)


@pytest.mark.parametrize(("side", "reason"), [(12_000, "12,000 × 12,000 pixels"), (30_000, "too many pixels")])
def test_a_picture_of_too_many_pixels_is_never_decoded(tmp_path, side, reason):
    content = bytearray(png(np.zeros((1, 1), np.uint8)))
    content[16:24] = 2 * side.to_bytes(4, "big")
    content[29:33] = zlib.crc32(content[12:29]).to_bytes(4, "big")
    (tmp_path / "a.png").write_bytes(content)
    with pytest.raises(ValueError, match=reason):
        Pictures().read(tmp_path / "a.png")


def test_one_large_picture_is_decoded_at_a_time_and_none_twice(tmp_path, monkeypatch):
    real, at_once, most = pictures._smaller, [], []

    def watched(image):
        at_once.append(image)
        most.append(len(at_once))
        made = real(image)
        at_once.pop()
        return made

    monkeypatch.setattr(pictures, "_smaller", watched)
    for number in range(3):
        Image.new("RGB", (2000, 2000), (number, 0, 0)).save(tmp_path / f"{number}.png")
    reader = Pictures()
    threads = [threading.Thread(target=reader.read, args=(tmp_path / f"{i % 3}.png",)) for i in range(9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1, 1, 1]


def test_a_changed_picture_is_read_again_and_few_are_kept(tmp_path, monkeypatch):
    path, reader = tmp_path / "a.png", Pictures()
    Image.new("RGB", (2000, 1000)).save(path)
    assert size(reader.read(path)) == (1600, 800)
    Image.new("RGB", (2000, 2000)).save(path)
    assert size(reader.read(path)) == (1600, 1600)
    monkeypatch.setattr(pictures, "KEPT", 10)
    Image.new("RGB", (1000, 2000)).save(path)
    reader.read(path)
    assert len(reader._kept) == 1


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


def test_what_cannot_be_shown_has_a_reason_and_a_pipe_blocks_nothing(tmp_path):
    source = open_source(str(picture_table(tmp_path)))
    for row, reason in enumerate(REASONS):
        with pytest.raises(ValueError, match=reason):
            source.read_picture(row)
        assert source.picture(row) is None
    assert source.picture(4) is not None


def test_the_page_answers_with_the_reason(tmp_path):
    page = open_page(str(picture_table(tmp_path)), folder=tmp_path / "run", command=FAKE).start()
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
        Pictures().read(path)
    assert not called
