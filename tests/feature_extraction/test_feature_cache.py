"""What the cache keeps, that it costs no features, and that processes may share it."""

import os
import shutil
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from joblib import Memory
from PIL import Image
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from skfedhip.feature_extraction import (
    ViTMAETransformer,
    _backbone,
    _extraction,
    _feature_cache,
)
from skfedhip.feature_extraction._feature_cache import FeatureCache
from skfedhip.feature_extraction._images import as_images


def digest(number):
    return number.to_bytes(16, "big")


def features_of(numbers):
    """Features (n, 2) that tell which image they are of."""
    numbers = np.asarray(numbers, dtype=np.float32)
    return np.stack([numbers, -numbers], axis=1)


def complete(directory, numbers, computed=None, size=2):
    """Features of numbered images through a cache; the rows computed are listed."""
    out = np.full((len(numbers), 2), np.nan, dtype=np.float32)

    def compute(rows):
        for start in range(0, len(rows), size):
            part = rows[start : start + size]
            if computed is not None:
                computed.extend(part.tolist())
            yield part, features_of([numbers[row] for row in part])

    digests = [b"" if number < 0 else digest(number) for number in numbers]
    FeatureCache(directory, 2).complete(digests, out, compute)
    np.testing.assert_array_equal(out, features_of(numbers))


@pytest.fixture
def counted(monkeypatch):
    """How many images go through the encoder, as a list of batch sizes."""
    sizes = []
    pooled = _extraction.Extraction._pooled
    monkeypatch.setattr(
        _extraction.Extraction,
        "_pooled",
        lambda self, pixels: sizes.append(len(pixels)) or pooled(self, pixels),
    )
    return sizes


# What is known.


def test_the_cache_knows_images_by_content(tmp_path, grey_images, files, counted):
    plain = ViTMAETransformer().transform(grey_images)
    counted.clear()
    cached = ViTMAETransformer(cache=tmp_path / "cache")
    np.testing.assert_array_equal(cached.transform(grey_images), plain)
    np.testing.assert_array_equal(cached.transform(grey_images[::-2]), plain[::-2])
    assert sum(counted) == 12
    again = ViTMAETransformer(cache=str(tmp_path / "cache"))
    np.testing.assert_array_equal(again.transform(grey_images), plain)
    assert sum(counted) == 12
    ViTMAETransformer(cache=tmp_path / "cache", pooling="mean").transform(grey_images)
    assert sum(counted) == 24
    cached.transform(files)
    cached.transform(files[:3])
    assert sum(counted) == 36  # files are known by their bytes
    changed = grey_images.copy()
    changed[5, 0, 0] ^= 1
    cached.transform(changed)
    assert sum(counted) == 37


def test_looking_images_up_copies_one_at_a_time(grey_images):
    images = as_images(np.repeat(grey_images, 200, axis=0))
    tracemalloc.start()
    digests = images.digests(np.arange(len(images)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(set(digests)) == len(grey_images)
    assert peak < images.array.nbytes / 4


def test_weights_are_hashed_once_a_process(tmp_path, rgb_checkpoint, rgb_images):
    transformer = ViTMAETransformer(rgb_checkpoint, cache=tmp_path)
    transformer.transform(rgb_images)
    before = _backbone._digest_of.cache_info()
    transformer.transform(rgb_images)
    after = _backbone._digest_of.cache_info()
    assert (after.hits, after.misses) == (before.hits + 1, before.misses)


def test_a_grid_search_extracts_once(tmp_path, grey_images, counted):
    pipeline = make_pipeline(ViTMAETransformer(cache=tmp_path), RidgeClassifier())
    search = GridSearchCV(pipeline, {"ridgeclassifier__alpha": [1, 10, 100]}, cv=3)
    search.fit(grey_images, np.arange(12) % 2)
    assert sum(counted) == 12


def test_an_interrupted_run_leaves_a_cache_that_goes_on(tmp_path, grey_images, monkeypatch):
    pooled = _extraction.Extraction._pooled
    batches = []

    def interrupted(self, pixels):
        batches.append(len(pixels))
        if len(batches) == 4:
            raise KeyboardInterrupt
        return pooled(self, pixels)

    monkeypatch.setattr(_extraction.Extraction, "_pooled", interrupted)
    transformer = ViTMAETransformer(cache=tmp_path, batch_size=2)
    with pytest.raises(KeyboardInterrupt):
        transformer.transform(grey_images)
    assert not list(tmp_path.rglob("*.part"))
    features = transformer.transform(grey_images)
    assert sum(batches[4:]) == 12 - 4  # of three finished batches, two had come back
    np.testing.assert_allclose(features, ViTMAETransformer().transform(grey_images), atol=1e-5)


def test_strange_files_in_the_cache_are_passed_over(tmp_path, grey_images, counted):
    transformer = ViTMAETransformer(cache=tmp_path)
    features = transformer.transform(grey_images)
    (file,) = tmp_path.rglob("*.npy")
    file.write_bytes(file.read_bytes()[:-10])
    np.save(file.with_name("other.npy"), np.zeros(3))
    np.testing.assert_array_equal(transformer.transform(grey_images), features)
    assert sum(counted) == 24


def test_a_file_with_a_damaged_header_is_computed_anew(tmp_path):
    computed = []
    complete(tmp_path, [1, 2], computed)
    (file,) = tmp_path.glob("*.npy")
    file.write_bytes(file.read_bytes().replace(b"(2,), ", b"((((( "))
    complete(tmp_path, [1, 2], computed)
    assert computed == [0, 1, 0, 1]


def test_a_damaged_image_is_not_cached(tmp_path, files):
    transformer = ViTMAETransformer(cache=tmp_path / "cache", errors="nan")
    missing = tmp_path / "later.png"
    assert np.isnan(transformer.transform([files[0], missing])[1]).all()
    shutil.copy(files[1], missing)
    assert np.isfinite(transformer.transform([files[0], missing])).all()


def test_an_image_that_comes_twice_is_computed_once(tmp_path):
    computed = []
    complete(tmp_path, [3, 1, 3, -1, 1, -1, 2], computed)
    assert computed == [0, 1, 3, 5, 6]  # rows without a digest have nothing to be known by
    computed.clear()
    complete(tmp_path, [2, 4, 3, 4], computed)
    assert computed == [1]


def test_repeated_images_go_through_the_encoder_once(tmp_path, grey_images, counted):
    expected = ViTMAETransformer().transform(grey_images)
    counted.clear()
    twice = np.concatenate([grey_images, grey_images[::-1]])
    features = ViTMAETransformer(cache=tmp_path).transform(twice)
    assert sum(counted) == 12
    np.testing.assert_allclose(features, np.concatenate([expected, expected[::-1]]), atol=1e-6)


def test_pictures_in_memory_are_known_by_what_is_seen(tmp_path):
    """Two palettes or transparencies of the same indices are two images."""
    images = []
    for palette in ([0, 0, 0, 255, 255, 255], [255, 255, 255, 0, 0, 0]):
        image = Image.new("P", (28, 28))
        image.putdata(np.eye(28, dtype=np.uint8).ravel().tolist())
        image.putpalette(palette)
        images.append(image)
    images.append(images[0].copy())
    images[-1].info["transparency"] = 0
    plain = ViTMAETransformer().transform(images)
    assert np.abs(plain[0] - plain[1]).max() > 0.01
    assert np.abs(plain[0] - plain[2]).max() > 0.01
    cached = ViTMAETransformer(cache=tmp_path)
    for _ in range(2):
        np.testing.assert_allclose(cached.transform(images), plain, atol=1e-5)


# What can't be written.


def test_a_place_that_can_not_be_a_directory(tmp_path, grey_images, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr(
        _extraction.Extraction, "_pooled", lambda *args: pytest.fail("computed before it was seen")
    )
    for place in (tmp_path / "file", tmp_path / "file" / "below", str(tmp_path) + "/null\0byte"):
        with pytest.raises(OSError, match=r"The cache can't be at .*; pass another directory"):
            ViTMAETransformer(cache=place).transform(grey_images)
    with pytest.raises(ValueError, match="cache is an empty path"):
        ViTMAETransformer(cache="").fit(grey_images)


def full(*args, **kwargs):
    raise OSError(28, "No space left on device")


def test_a_full_disk_costs_the_cache_and_no_features(tmp_path, grey_images, monkeypatch):
    monkeypatch.setattr(_feature_cache, "_IMAGES_PER_FILE", 4)
    expected = ViTMAETransformer(batch_size=2).transform(grey_images)
    with monkeypatch.context() as patched:
        patched.setattr(np, "save", full)
        transformer = ViTMAETransformer(cache=tmp_path, batch_size=2)
        with pytest.warns(UserWarning, match=r"can't be kept in .*No space left") as warnings:
            features = transformer.transform(grey_images)
    np.testing.assert_array_equal(features, expected)
    assert len(warnings) == 1
    assert warnings[0].filename == __file__
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    np.testing.assert_array_equal(transformer.transform(grey_images), expected)


def test_an_interruption_is_not_replaced_by_a_failing_write(tmp_path, monkeypatch):
    def interrupted(rows):
        yield rows[:1], features_of([0])
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(KeyboardInterrupt):
        FeatureCache(tmp_path, 2).complete([digest(0), digest(1)], np.zeros((2, 2)), interrupted)


def test_a_memory_empties_the_features_too(tmp_path, grey_images):
    memory = Memory(str(tmp_path), verbose=0)
    ViTMAETransformer(cache=memory).transform(grey_images)
    assert len([*tmp_path.rglob("*.npy")]) == 1
    memory.clear(warn=False)
    assert [*tmp_path.rglob("*.npy")] == []
    ViTMAETransformer(cache=memory).transform(grey_images)
    assert len([*tmp_path.rglob("*.npy")]) == 1
    assert ViTMAETransformer(cache=Memory(None))._cache_directory() is None


# Files.


def test_small_files_are_merged(tmp_path, monkeypatch):
    monkeypatch.setattr(_feature_cache, "_IMAGES_PER_FILE", 40)
    for number in range(100):
        complete(tmp_path, [number, number + 1])  # each number but two comes twice
    files = [*tmp_path.glob("*")]
    assert len(files) < 2 * _feature_cache._SMALL_FILES
    assert {path.suffix for path in files} == {".npy"}
    computed = []
    complete(tmp_path, [*range(101)], computed)
    assert computed == []
    assert sum(len(np.load(path)) for path in files) == 101


def test_a_merge_that_fails_loses_nothing(tmp_path, monkeypatch):
    for number in range(_feature_cache._SMALL_FILES - 1):
        complete(tmp_path, [number])
    save, calls = np.save, []

    def save_once(*args, **kwargs):
        calls.append(args)
        return save(*args, **kwargs) if len(calls) == 1 else full()

    monkeypatch.setattr(np, "save", save_once)
    with pytest.warns(UserWarning, match="can't be kept"):
        complete(tmp_path, [99])
    computed = []
    complete(tmp_path, [*range(_feature_cache._SMALL_FILES - 1), 99], computed)
    assert computed == []


def test_a_file_that_another_process_merged_away_is_computed_anew(tmp_path):
    complete(tmp_path, [1, 2])
    cache = FeatureCache(tmp_path, 2)
    for path in tmp_path.glob("*.npy"):
        path.unlink()
    out = np.zeros((2, 2), dtype=np.float32)
    cache.complete([digest(1), digest(2)], out, lambda rows: [(rows, features_of([1, 2]))])
    np.testing.assert_array_equal(out, features_of([1, 2]))


def test_open_files_do_not_add_up(tmp_path, monkeypatch):
    monkeypatch.setattr(_feature_cache, "_SMALL_FILES", 1000)
    for number in range(30):
        complete(tmp_path, [number])
    before = len(os.listdir("/proc/self/fd"))
    cache = FeatureCache(tmp_path, 2)
    assert len(os.listdir("/proc/self/fd")) == before
    assert len(cache._known) == 30


WRITER = """
import sys
import numpy as np
from skfedhip.feature_extraction import _feature_cache
from skfedhip.feature_extraction._feature_cache import FeatureCache

directory, start = sys.argv[1], int(sys.argv[2])
_feature_cache._IMAGES_PER_FILE, _feature_cache._SMALL_FILES = 24, 4
for number in range(start, start + 60):
    numbers = np.array([number, number + 1], dtype=np.float32)
    out = np.zeros((2, 2), dtype=np.float32)
    FeatureCache(directory, 2).complete(
        [int(n).to_bytes(16, "big") for n in numbers],
        out,
        lambda rows: [(rows, np.stack([numbers, -numbers], axis=1)[rows])],
    )
    assert (out == np.stack([numbers, -numbers], axis=1)).all(), out
"""


def test_two_processes_fill_one_cache(tmp_path):
    """They write and merge the same files; whatever they leave is whole, right and complete."""
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, tmp_path, str(start)]) for start in (0, 30)
    ]
    assert [writer.wait(timeout=120) for writer in writers] == [0, 0]
    files = [*tmp_path.iterdir()]
    assert {path.suffix for path in files} == {".npy"}
    computed = []
    complete(tmp_path, [*range(91)], computed)
    assert computed == []
