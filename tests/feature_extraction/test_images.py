"""What counts as an image, and how files and PIL images become pixels."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from skfedhip.feature_extraction import ViTMAETransformer
from skfedhip.feature_extraction._images import ArrayImages, as_images, read_all

RED, GREEN, BLUE = (255, 0, 0), (0, 255, 0), (0, 0, 255)
ORIENTATION = 0x0112


def pixels(item, n_channels=3):
    """Pixels (c, h, w) of one picture."""
    return read_all([item], n_channels)[0]


def as_file(image, path, **options):
    image.save(path, **options)
    return path


# What X is.


class BytesPath:
    """A path that is neither str nor Path, and names itself in bytes."""

    def __init__(self, path):
        self.path = path

    def __fspath__(self):
        return os.fsencode(self.path)


@pytest.fixture
def picture(grey_images):
    return Image.fromarray(grey_images[0])


@pytest.fixture
def file(tmp_path, picture):
    return as_file(picture, tmp_path / "grey.png")


def forms_of_a_column(items):
    """The same items as a list, an array, a column, a Series and nested lists."""
    array = np.empty(len(items), dtype=object)
    array[:] = items
    return [
        items,
        tuple(items),
        array,
        array[:, None],
        pd.Series(array),
        pd.DataFrame({"image": array}),
    ]


def test_paths_in_bytes_name_a_model_and_a_cache(tmp_path, rgb_checkpoint, rgb_images):
    expected = ViTMAETransformer(rgb_checkpoint).transform(rgb_images)
    transformer = ViTMAETransformer(BytesPath(rgb_checkpoint), cache=BytesPath(tmp_path))
    np.testing.assert_array_equal(transformer.transform(rgb_images), expected)
    assert list(tmp_path.rglob("*.npy"))


def test_pictures_and_missing_ones_in_any_order_and_container(picture, file, grey_images):
    items = [None, picture, file, str(file), BytesPath(file), np.nan, pd.NA, np.float32("nan")]
    for order in (items, items[::-1]):
        rows = [row for row, item in enumerate(order) if not isinstance(item, float | None)]
        rows = [row for row in rows if order[row] is not pd.NA and order[row] is not items[-1]]
        assert len(rows) == 4
        for X in forms_of_a_column(order):
            images = as_images(X)
            read, problems = images.read(np.arange(len(order)), 1)
            assert sorted(problems) == [row for row in range(8) if row not in rows]
            assert set(problems.values()) == {"is missing"}
            for image in read:
                np.testing.assert_array_equal(image, grey_images[:1])
    nested = as_images([[str(file)], [None]])
    assert nested.items == [str(file), None]


@pytest.mark.parametrize(
    "X",
    [
        pd.Series([np.nan, np.nan]),
        pd.DataFrame({"image": [np.nan, np.nan]}),
        pd.DataFrame({"image": pd.array([None, None], dtype="string")}),
        np.full(2, np.nan),
        [np.nan, np.nan],
    ],
)
def test_a_column_of_missing_images_only(X):
    assert np.isnan(ViTMAETransformer(errors="nan").transform(X)).all()
    with pytest.raises(ValueError, match="Image 0 of X is missing, and 1 more"):
        ViTMAETransformer().transform(X)


def test_numbers_in_any_container(grey_images):
    rows = grey_images.reshape(12, -1)
    expected = as_images(grey_images).array
    gaps = pd.DataFrame(rows / 255).astype(object)
    gaps.iloc[3, 5] = pd.NA
    objects = np.empty(12, dtype=object)
    objects[:] = list(grey_images)
    for X in (
        pd.DataFrame(rows).astype("UInt8"),
        pd.DataFrame(rows).astype(object),
        rows.astype(object),
        [list(row) for row in rows],
    ):
        np.testing.assert_array_equal(as_images(X, (28, 28)).array, expected)
    for X in (
        list(grey_images),
        [torch.from_numpy(image) for image in grey_images],
        pd.Series(list(grey_images)),
        pd.DataFrame({"image": list(grey_images)}),
        objects,
        grey_images.astype(object),
    ):
        np.testing.assert_array_equal(as_images(X).array, expected)
    read, problems = as_images(gaps, [28, 28]).read(np.arange(12), 1)
    assert problems == {3: "has NaN or infinite pixels"}
    np.testing.assert_allclose(np.stack(read) * 255, np.delete(expected, 3, axis=0), atol=1e-4)


PICTURE = Image.new("L", (3, 3))
ARRAY = np.zeros((3, 3), dtype=np.uint8)
MASKED = np.ma.masked_array(ARRAY, mask=ARRAY == 0)


@pytest.mark.parametrize(
    ("X", "kind", "message"),
    [
        ([PICTURE, ARRAY], TypeError, "got Image, ndarray; convert"),
        ([ARRAY, PICTURE], TypeError, "got Image, ndarray; convert"),
        ([ARRAY, None], TypeError, "got NoneType, ndarray; convert"),
        ([None, 3], TypeError, "got NoneType, int; convert"),
        ([b"a.png"], TypeError, "dtype |S5"),
        ([ARRAY, ARRAY / 2], ValueError, "some of floats"),
        ([{}, {}], TypeError, "got dict"),
        ([[[{}, 1], [1, 1]]], TypeError, r"got shape \(1, 2, 2\) with dict"),
        (np.array([["a", "b"]]), TypeError, "one column of paths and PIL images, got shape"),
        (pd.DataFrame({"left": [ARRAY], "right": [ARRAY]}), TypeError, "with ndarray"),
        ([[1.0, 1j]], TypeError, "dtype complex"),
        (np.array([[1.0, 1j]], dtype=object), TypeError, "with complex"),
        (MASKED[None], TypeError, "masked"),
        ([MASKED, MASKED], TypeError, "masked"),
        (np.array(["2020-01-01"], dtype="M8[D]"), TypeError, "dtype datetime64"),
        (None, TypeError, "got one NoneType"),
        (PICTURE, TypeError, "got one Image"),
        (BytesPath("a"), TypeError, "got one BytesPath"),
        ({"image": ARRAY}, TypeError, "got one dict"),
        (np.zeros((0, 1), dtype=object), ValueError, r"0 sample\(s\)"),
        (pd.DataFrame({"image": [1.0, np.nan]}), ValueError, "X has shape|rows of numbers"),
    ],
)
def test_what_is_no_sequence_of_images(X, kind, message):
    with pytest.raises(kind, match=message):
        as_images(X)


@pytest.mark.parametrize("kind", [str, Path])
def test_a_folder_in_the_place_of_its_images(kind, tmp_path):
    with pytest.raises(TypeError, match=r"got the folder .*; list its files, or load it by"):
        as_images(kind(tmp_path))
    with pytest.raises(TypeError, match="got one"):
        as_images(kind(tmp_path / "a.png"))


@pytest.mark.parametrize(
    ("X", "shape", "message"),
    [
        (np.zeros((2, 9)), (3, "3"), "must be whole numbers"),
        (np.zeros((2, 9)), (3.0, 3), "must be whole numbers"),
        (np.zeros((2, 9)), (9,), "must be whole numbers"),
        (np.zeros((2, 9)), (-3, -3), "must be whole numbers"),
        (np.zeros((2, 9)), (3, 3, 1, 1), "must be whole numbers"),
        (np.zeros((2, 3, 3)), (9, 1), r"shape \(2, 3, 3\), and image_shape=\(9, 1\)"),
        ([PICTURE], (3, 3), "holds paths or PIL images"),
    ],
)
def test_an_image_shape_that_can_not_be_meant(X, shape, message):
    with pytest.raises(ValueError, match=message):
        as_images(X, shape)


def test_pixels_out_of_range_are_named_by_row():
    whole = np.zeros((5, 2, 2), dtype=np.int64)
    whole[3, 1, 1], whole[4, 0, 0] = 256, -1
    with pytest.raises(ValueError, match=r"Image 3 of X has pixels from 0 to 256 \(int64\)"):
        read_all(whole, 1)
    floats = np.zeros((5, 2, 2))
    floats[1, 0, 0], floats[2, 0, 0] = np.nan, -0.5
    with pytest.raises(ValueError, match=r"Image 2 of X has pixels from -0.5 to 0"):
        as_images(floats).read(np.arange(5), 1)
    with pytest.raises(ValueError, match="Image 4 of X"):
        as_images(whole).read(np.array([0, 4, 3]), 1)


# How files and PIL images are read; with a path and in memory, for grey models and for colour.


@pytest.fixture(params=["path", "memory"])
def given(request, tmp_path):
    """A picture as a user hands it over."""
    opened = []

    def give(image, form="png", **options):
        path = as_file(image, tmp_path / f"image.{form}", **options)
        if request.param == "path":
            return path
        opened.append(Image.open(path))
        return opened[-1]

    yield give
    for image in opened:
        image.close()


def test_pictures_are_turned_upright(given, photos):
    upright = Image.fromarray(photos[0])
    exif = Image.Exif()
    exif[ORIENTATION] = 6  # the camera was turned: a viewer has to rotate by 270 degrees
    turned = given(upright.transpose(Image.Transpose.ROTATE_90), exif=exif)
    np.testing.assert_array_equal(pixels(turned), photos[0].transpose(2, 0, 1))
    np.testing.assert_array_equal(pixels(turned, 1)[0], np.asarray(upright.convert("L")))


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "RGB", "L"])
def test_transparent_pixels_are_white(given, mode):
    image = Image.new("RGBA", (2, 1), (0, 0, 0, 255))
    image.putpixel((1, 0), (0, 0, 0, 0))  # transparent black
    options = {}
    if mode in ("P", "RGB", "L"):
        image = Image.new(mode, (2, 1), RED if mode == "RGB" else 0)
        black = {"P": 1, "RGB": (1, 2, 3), "L": 7}[mode]
        if mode == "P":
            image.putpalette([*RED, 0, 0, 0])
        image.putpixel((1, 0), black)
        options = {"transparency": black}
    else:
        image = image.convert(mode)
    opaque = {"P": RED, "RGB": RED}.get(mode, (0, 0, 0))
    got = np.broadcast_to(pixels(given(image, **options)), (3, 1, 2))
    np.testing.assert_array_equal(got[:, 0, 0], opaque)
    np.testing.assert_array_equal(got[:, 0, 1], 255)
    assert pixels(given(image, **options), 1)[0, 0, 1] == 255


def test_half_transparent_pixels_are_half_white(given):
    image = Image.new("RGBA", (1, 1), (100, 0, 200, 51))
    np.testing.assert_allclose(pixels(given(image)).ravel(), [224, 204, 244], atol=1)


def test_the_first_frame_of_an_animation(given):
    frames = [Image.new("RGB", (2, 2), colour) for colour in (RED, GREEN, BLUE)]
    item = given(frames[0], "gif", save_all=True, append_images=frames[1:])
    np.testing.assert_array_equal(pixels(item)[:, 0, 0], RED)
    if isinstance(item, Image.Image):
        item.seek(2)
        np.testing.assert_array_equal(pixels(item)[:, 0, 0], BLUE)


@pytest.mark.parametrize("mode", ["CMYK", "YCbCr", "HSV", "LAB", "RGBX", "1", "P"])
def test_other_modes_are_converted(photos, mode):
    image = Image.fromarray(photos[0])
    image = image.convert("RGB").convert(mode) if mode != "LAB" else Image.new("LAB", (60, 45))
    expected = np.asarray(image.convert("RGB")).transpose(2, 0, 1)
    np.testing.assert_array_equal(np.broadcast_to(pixels(image), expected.shape), expected)
    assert pixels(image, 1).shape == (1, 45, 60)


def test_pictures_that_can_not_be_read(given, tmp_path):
    whole = Image.new("RGB", (50, 50), RED)
    damaged = tmp_path / "damaged.png"
    as_file(whole, damaged)
    damaged.write_bytes(damaged.read_bytes()[:60])
    items = [
        (Image.new("L", (0, 5)), r"can't be read: it has no pixels \(width and height \(0, 5\)\)"),
        (Image.new("I;16", (3, 3)), r"can't be read: it has more than 8 bits a channel"),
        (given(Image.new("I;16", (3, 3))), "can't be read.*: it has more than 8 bits a channel"),
        (str(damaged), "can't be read from '.*damaged.png': "),
        (str(tmp_path), "can't be read from '.*': .*directory"),
        ("null\0byte.png", r"is missing: there is no file 'null\\x00byte.png'"),
        ("long" * 2000, "is missing: there is no file 'long"),
        ("", "is missing: there is no file ''"),
    ]
    for cache in (None, tmp_path / "cache"):
        for item, reason in items:
            with pytest.raises(ValueError, match=f"^Image 1 of X {reason}"):
                ViTMAETransformer(cache=cache).transform([PICTURE, item])
        X = [*(item for item, _ in items), PICTURE]
        features = ViTMAETransformer(cache=cache, errors="nan").transform(X)
        np.testing.assert_array_equal(np.isnan(features).any(axis=1), [True] * len(items) + [False])


def test_a_damaged_picture_in_memory(tmp_path):
    path = as_file(Image.new("RGB", (50, 50), RED), tmp_path / "damaged.png")
    path.write_bytes(path.read_bytes()[:60])
    with Image.open(path) as damaged:
        for cache in (None, tmp_path / "cache"):
            with pytest.raises(ValueError, match=r"^Image 0 of X can't be read: "):
                ViTMAETransformer(cache=cache).transform([damaged])


def test_damaged_exif_data_leave_a_picture_as_it_is(given):
    item = given(Image.new("RGB", (4, 4), RED), exif=b"Exif\0\0no TIFF header")
    np.testing.assert_array_equal(pixels(item)[:, 0, 0], RED)


# How much is read at a time.


def test_images_are_read_up_to_a_number_of_bytes(photos, tmp_path):
    each = photos[0].nbytes
    rows = np.array([4, 2, 0, 5])
    paths = [as_file(Image.fromarray(p), tmp_path / f"{n}.png") for n, p in enumerate(photos)]
    for images in (as_images(photos), as_images(paths)):
        for max_bytes, n in ((1, 1), (each, 1), (each + 1, 2), (2 * each, 2), (100 * each, 4)):
            read, problems = images.read(rows, 3, max_bytes)
            assert (len(read), problems) == (n, {})
            for row, image in zip(rows, read, strict=False):
                np.testing.assert_array_equal(image, photos[row].transpose(2, 0, 1))
    assert isinstance(as_images(photos), ArrayImages)
