"""Small copies of pictures in the report."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from PIL import Image

from sobgnn.runs.page.pictures import sheet, thumbnail


@pytest.fixture
def folder(tmp_path):
    for number, color in enumerate([(255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 0), (0, 255, 255)]):
        Image.new("RGB", (80, 40), color).save(tmp_path / f"{number}.png")
    return tmp_path


def opened(found):
    head, content = found["image"].split(",", 1)
    assert head == "data:image/jpeg;base64"
    return Image.open(io.BytesIO(base64.b64decode(content))).convert("RGB")


def test_each_picture_is_at_its_place_and_keeps_its_shape(folder):
    paths = [str(folder / f"{number}.png") for number in range(5)]
    found = sheet(paths)
    whole, side = opened(found), found["side"]
    assert found["columns"] == 3
    assert whole.size == (3 * side, 2 * side)
    for number, path in enumerate(paths):
        with Image.open(path) as own:
            color = np.array(own.getpixel((0, 0)))
        left, top = number % 3 * side, number // 3 * side
        assert np.abs(np.array(whole.getpixel((left + side // 2, top + side // 2))) - color).max() < 12
        # Twice as wide as high: gray above it.
        assert np.abs(np.array(whole.getpixel((left + side // 2, top + 4))) - 128).max() < 12


def test_small_pictures_get_no_frame(tmp_path):
    Image.new("RGB", (20, 10)).save(tmp_path / "small.png")
    assert sheet([str(tmp_path / "small.png")] * 4)["side"] == 20


def test_pictures_that_cannot_be_read_are_named(folder):
    (folder / "broken.png").write_bytes(b"no picture")
    paths = [str(folder / "0.png"), str(folder / "broken.png"), None, str(folder / "gone.png")]
    assert sheet(paths)["missing"] == [1, 2, 3]
    assert sheet(paths[1:]) is None
    assert thumbnail(paths[1], 20) is None
    assert thumbnail(paths[0], 20).size == (20, 10)


def test_pictures_shrink_until_the_sheet_is_small_enough(tmp_path):
    generator = np.random.default_rng(0)
    paths = []
    for number in range(30):
        paths.append(str(tmp_path / f"{number}.png"))
        Image.fromarray(generator.integers(0, 255, (64, 64, 3), dtype=np.uint8)).save(paths[-1])
    large = sheet(paths)
    size = len(base64.b64decode(large["image"].split(",", 1)[1]))
    small = sheet(paths, most_bytes=size // 2)
    assert small["side"] < large["side"] == 48
    assert len(base64.b64decode(small["image"].split(",", 1)[1])) <= size // 2
    assert opened(small).size == (6 * small["side"], 5 * small["side"])
    assert sheet(paths, most_bytes=1000) is None
