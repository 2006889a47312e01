"""The frozen backbone: what it computes, what it takes for images, how it behaves in a pipeline."""

import copy
import gc
import json
import pickle
import shutil
import tracemalloc

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from transformers import ViTMAEConfig, ViTMAEModel, ViTModel

from skfedhip import FedHiPClassifier
from skfedhip.feature_extraction import ViTMAETransformer, _backbone, _extraction, _preprocessing


def unmasked_tokens(model, pixels):
    """Tokens of a ViTMAEModel that masks nothing and leaves the patches in their order."""
    model.config.mask_ratio = 0.0
    n_patches = model.embeddings.patch_embeddings.num_patches
    noise = torch.arange(n_patches, dtype=torch.float32).expand(len(pixels), -1)
    with torch.inference_mode():
        return model(pixels, noise=noise).last_hidden_state.numpy()


def rgb_pixels(images):
    """Normalised pixels of images (n, 32, 32, 3) that need no resizing."""
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    return torch.from_numpy(((images / 255 - mean) / std).transpose(0, 3, 1, 2).astype(np.float32))


NO_DEVICES = ["nonsense", "", "meta", "privateuseone", "cuda:99", "cpu:-1", "mps:7"]


# What is computed.


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_features_are_those_of_the_unmasked_encoder(rgb_checkpoint, rgb_images, pooling):
    tokens = unmasked_tokens(ViTMAEModel.from_pretrained(rgb_checkpoint), rgb_pixels(rgb_images))
    expected = tokens[:, 0] if pooling == "cls" else tokens[:, 1:].mean(axis=1)
    features = ViTMAETransformer(rgb_checkpoint, pooling=pooling).transform(rgb_images)
    assert features.dtype == np.float32
    np.testing.assert_allclose(features, expected, atol=2e-5)
    assert np.abs(features - features[0]).max() > 0.1  # images do differ


def test_the_same_images_give_the_same_bits_in_any_batch_nearly(rgb_checkpoint, rgb_images):
    features = ViTMAETransformer(rgb_checkpoint).transform(rgb_images)
    np.testing.assert_array_equal(ViTMAETransformer(rgb_checkpoint).transform(rgb_images), features)
    for batch_size in (1, 2, 5):
        again = ViTMAETransformer(rgb_checkpoint, batch_size=batch_size).transform(rgb_images)
        np.testing.assert_allclose(again, features, atol=1e-5)


def test_no_random_number_is_drawn(rgb_checkpoint, rgb_images):
    torch.manual_seed(0)
    ViTMAETransformer(rgb_checkpoint).transform(rgb_images)
    drawn = torch.rand(1)
    torch.manual_seed(0)
    assert drawn == torch.rand(1)


@pytest.mark.parametrize(("layer", "depth"), [(0, 1), (1, 2), (-2, 2), (-1, 3)])
def test_layer_is_an_index_into_the_layers(rgb_checkpoint, rgb_images, layer, depth):
    whole = ViTModel.from_pretrained(rgb_checkpoint, add_pooling_layer=False).eval()
    whole.layers = whole.layers[:depth]
    with torch.inference_mode():
        expected = whole(rgb_pixels(rgb_images)).last_hidden_state[:, 0].numpy()
    features = ViTMAETransformer(rgb_checkpoint, layer=layer).transform(rgb_images)
    np.testing.assert_allclose(features, expected, atol=2e-5)


def test_another_image_size_interpolates_the_positions(rgb_checkpoint, rgb_images):
    encoder = ViTModel.from_pretrained(rgb_checkpoint, add_pooling_layer=False).eval()
    images = rgb_images.repeat(2, axis=1).repeat(2, axis=2)  # 64 x 64
    with torch.inference_mode():
        tokens = encoder(rgb_pixels(images), interpolate_pos_encoding=True).last_hidden_state
    features = ViTMAETransformer(rgb_checkpoint, image_size=64).transform(images)
    np.testing.assert_allclose(features, tokens[:, 0].numpy(), atol=2e-5)


def test_a_model_in_memory_is_read_and_left_as_it_is(rgb_model, rgb_checkpoint, rgb_images):
    rgb_model.train()
    before = {name: value.clone() for name, value in rgb_model.state_dict().items()}
    transformer = ViTMAETransformer(rgb_model)
    features = transformer.transform(rgb_images)  # its mean and deviation are ImageNet's too
    expected = ViTMAETransformer(rgb_checkpoint).transform(rgb_images)
    np.testing.assert_allclose(features, expected, atol=1e-6)
    np.testing.assert_array_equal(ViTMAETransformer(rgb_model.vit).transform(rgb_images), features)
    assert rgb_model.training
    for name, value in rgb_model.state_dict().items():
        assert torch.equal(value, before[name])
    assert clone(transformer).model is rgb_model
    revived = pickle.loads(pickle.dumps(transformer))
    np.testing.assert_array_equal(revived.transform(rgb_images), features)
    rgb_model.eval()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_is_near(rgb_checkpoint, rgb_images, dtype):
    features = ViTMAETransformer(rgb_checkpoint).transform(rgb_images)
    half = ViTMAETransformer(rgb_checkpoint, dtype=dtype).transform(rgb_images)
    assert half.dtype == np.float32
    assert 0 < np.abs(half - features).max() < 0.05


def test_a_batch_that_does_not_fit_is_halved(monkeypatch, rgb_checkpoint, rgb_images):
    expected = ViTMAETransformer(rgb_checkpoint).transform(rgb_images)
    sizes = []
    pooled = _extraction.Extraction._pooled

    def small_device(self, pixels):
        sizes.append(len(pixels))
        if len(pixels) > 1:
            raise torch.OutOfMemoryError("no memory")
        return pooled(self, pixels)

    monkeypatch.setattr(_extraction.Extraction, "_pooled", small_device)
    features = ViTMAETransformer(rgb_checkpoint).transform(rgb_images)
    np.testing.assert_allclose(features, expected, atol=1e-5)
    assert sizes[0] == len(rgb_images)
    monkeypatch.setattr(_extraction.Extraction, "_pooled", _raise_out_of_memory)
    with pytest.raises(torch.OutOfMemoryError):
        ViTMAETransformer(rgb_checkpoint).transform(rgb_images[:1])


def test_images_that_do_not_fit_on_the_device_are_halved(monkeypatch, rgb_checkpoint, photos):
    expected = ViTMAETransformer(rgb_checkpoint).transform(photos)
    sizes = []
    prepare = _preprocessing.Preprocessing.__call__

    def small_device(self, images, device):
        sizes.append(len(images))
        if len(images) > 2:
            raise torch.OutOfMemoryError("no memory")
        return prepare(self, images, device)

    monkeypatch.setattr(_preprocessing.Preprocessing, "__call__", small_device)
    features = ViTMAETransformer(rgb_checkpoint).transform(photos)
    np.testing.assert_allclose(features, expected, atol=1e-5)
    assert sizes == [6, 3, 1, 2, 3, 1, 2]


def test_large_images_are_read_a_few_at_a_time(monkeypatch, rgb_checkpoint, photos, tmp_path):
    """What the encoder sees at a time stays a whole batch."""
    paths = [tmp_path / f"{row}.png" for row in range(len(photos))]
    for path, photo in zip(paths, photos, strict=True):
        Image.fromarray(photo).save(path)
    expected = ViTMAETransformer(rgb_checkpoint).transform(photos)
    shapes = []
    prepare = _preprocessing.Preprocessing.__call__
    monkeypatch.setattr(_extraction, "_READ_BYTES", 2 * photos[0].nbytes)
    monkeypatch.setattr(
        _preprocessing.Preprocessing,
        "__call__",
        lambda self, images, device: shapes.append(len(images)) or prepare(self, images, device),
    )
    broken = [*paths[:3], None, *paths[3:]]
    for X, rows in ((photos, [*range(6)]), (broken, [0, 1, 2, 4, 5, 6])):
        shapes.clear()
        features = ViTMAETransformer(rgb_checkpoint, errors="nan").transform(X)
        np.testing.assert_allclose(features[rows], expected, atol=1e-6)
        assert shapes == [2, 2, 2]


def test_memory_does_not_grow_with_the_number_of_images(rgb_checkpoint, tmp_path):
    path = tmp_path / "photo.png"
    Image.new("RGB", (200, 200), "red").save(path)
    transformer = ViTMAETransformer(rgb_checkpoint, batch_size=4)
    transformer.transform([path] * 8)

    def peak(n):
        gc.collect()
        tracemalloc.start()
        features = transformer.transform([path] * n)
        top = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return top - features.nbytes

    assert peak(96) < peak(16) + 2 * 200 * 200 * 3


def _raise_out_of_memory(self, pixels):
    raise torch.OutOfMemoryError("no memory")


# What counts as an image.


def test_every_form_of_an_image_gives_the_same_features(grey_images, files):
    expected = ViTMAETransformer().transform(grey_images)
    colour = np.repeat(grey_images[..., None], 3, axis=-1)
    forms = {
        "integers": grey_images.astype(np.int64),
        "nested lists": grey_images.tolist(),
        "floats": grey_images / 255,
        "one channel last": grey_images[..., None],
        "one channel first": grey_images[:, None],
        "colour last": colour,
        "colour first": colour.transpose(0, 3, 1, 2),
        "tensor": torch.from_numpy(grey_images),
        "array of arrays": np.array([*grey_images, None], dtype=object)[:-1],
        "big-endian": (grey_images / 255).astype(">f8"),
        "floats a rounding error too large": grey_images / 255 * (1 + 1e-7),
        "paths": files,
        "array of paths": np.array(files),
        "series of paths": pd.Series(files),
        "frame of paths": pd.DataFrame({"file": files}),
        "pictures": [Image.open(file) for file in files],
        "colour pictures": [Image.open(file).convert("RGB") for file in files],
        "transparent pictures": [Image.open(file).convert("RGBA") for file in files],
    }
    for name, images in forms.items():
        features = ViTMAETransformer().transform(images)
        np.testing.assert_allclose(features, expected, atol=2e-6, err_msg=name)
    rows = grey_images.reshape(len(grey_images), -1)
    for shape in ((28, 28), (28, 28, 1), [1, 28, 28]):
        features = ViTMAETransformer(image_shape=shape).transform(rows)
        np.testing.assert_array_equal(features, expected)


def test_the_last_axis_is_taken_for_channels_where_it_can_be(rgb_checkpoint):
    images = np.random.default_rng(0).integers(0, 256, (2, 3, 40, 3), dtype=np.uint8)
    features = ViTMAETransformer(rgb_checkpoint).transform(images)
    pictures = [Image.fromarray(image) for image in images]
    np.testing.assert_array_equal(ViTMAETransformer(rgb_checkpoint).transform(pictures), features)


def test_grey_images_are_grey_colours(rgb_checkpoint, grey_images):
    colour = np.repeat(grey_images[..., None], 3, axis=-1)
    transformer = ViTMAETransformer(rgb_checkpoint)
    np.testing.assert_allclose(
        transformer.transform(grey_images), transformer.transform(colour), atol=1e-5
    )


def test_colour_turns_grey_as_in_pil(photos):
    pictures = [Image.fromarray(photo).convert("L") for photo in photos]
    features = ViTMAETransformer().transform(photos)
    np.testing.assert_array_equal(features, ViTMAETransformer().transform(pictures))


def test_pictures_of_different_shapes(rgb_checkpoint, photos):
    pictures = [Image.fromarray(photo[: 30 + row, row:]) for row, photo in enumerate(photos)]
    pictures[2] = pictures[2].convert("L")
    transformer = ViTMAETransformer(rgb_checkpoint)
    one_by_one = np.concatenate([transformer.transform([picture]) for picture in pictures])
    np.testing.assert_allclose(transformer.transform(pictures), one_by_one, atol=1e-5)


@pytest.mark.parametrize(
    ("X", "kind", "message"),
    [
        (np.zeros((3, 4)), ValueError, "pass image_shape"),
        (np.zeros((2, 5, 4, 4)), ValueError, r"X has shape \(2, 5, 4, 4\)"),
        (np.zeros((2, 3, 4, 4, 4)), ValueError, "X has shape"),
        (np.zeros((2, 0, 4)), ValueError, "X has shape"),
        (np.zeros(3), ValueError, "X has shape"),
        ([], ValueError, r"0 sample\(s\)"),
        ([np.zeros((3, 3)), np.zeros((3, 4))], ValueError, "different shapes"),
        (np.full((2, 28, 28), -1), ValueError, "from -1 to -1"),
        (np.full((2, 28, 28), 256), ValueError, "from 256 to 256"),
        (np.full((2, 28, 28), 17.0), ValueError, r"from 17 to 17 \(float32\).*floats from 0 to 1"),
        (
            np.full((2, 28, 28), np.nan),
            ValueError,
            "Image 0 of X has NaN or infinite pixels, and 1",
        ),
        (np.zeros((2, 28, 28), dtype=complex), TypeError, "complex"),
        (["a.png", 3], TypeError, "got int"),
        ("a.png", TypeError, "got one str"),
        (
            ["/no/such.png", "/nor/this.png"],
            ValueError,
            "Image 0 of X is missing.*such.png'.*1 more",
        ),
        ([None], ValueError, "Image 0 of X is missing"),
        (np.array([["a", "b"]], dtype=object), TypeError, "one column"),
        (torch.zeros(1, 28, 28, dtype=torch.bfloat16), TypeError, "can't be turned into an array"),
        ([torch.zeros(28, 28, requires_grad=True)], TypeError, "can't be turned into an array"),
    ],
)
def test_what_is_no_image_is_refused(X, kind, message):
    with pytest.raises(kind, match=message):
        ViTMAETransformer().fit_transform(X)


def test_image_shape_must_fit():
    with pytest.raises(ValueError, match="Rows of 5 numbers are no images"):
        ViTMAETransformer(image_shape=(2, 2)).transform(np.zeros((1, 5)))


def test_damaged_files_are_named_or_give_nan(files, grey_images, tmp_path):
    whole = ViTMAETransformer().transform(grey_images)
    half = tmp_path / "half.png"
    with open(files[4], "rb") as file:
        half.write_bytes(file.read()[:200])
    deep = tmp_path / "deep.png"
    Image.fromarray(np.zeros((28, 28), dtype=np.uint16)).save(deep)
    text = tmp_path / "text.png"
    text.write_text("no image")
    for bad, why in ((half, "can't be read"), (deep, "more than 8 bits"), (text, "can't be read")):
        with pytest.raises(ValueError, match=f"Image 2 of X .*{bad.name}.*{why}|{why}.*{bad.name}"):
            ViTMAETransformer().transform([*files[:2], str(bad)])
    paths = [files[0], half, deep, text, None, tmp_path / "none.png", np.nan, pd.NA, files[1]]
    features = ViTMAETransformer(errors="nan", batch_size=3).transform(paths)
    assert np.isnan(features[1:-1]).all()
    np.testing.assert_allclose(features[[0, -1]], whole[:2], atol=1e-6)
    pixels = grey_images / 255
    pixels[3, 5, 5] = np.nan
    features = ViTMAETransformer(errors="nan").transform(pixels)
    np.testing.assert_array_equal(np.isnan(features).any(axis=1), np.arange(12) == 3)
    assert np.isnan(ViTMAETransformer(errors="nan").transform([None, None])).all()


def test_listing_pictures_does_not_decode_them(files, monkeypatch):
    decoded = []
    load = Image.Image.tobytes
    monkeypatch.setattr(
        Image.Image, "tobytes", lambda self, *args: decoded.append(self) or load(self, *args)
    )
    pictures = [Image.open(file) for file in files]
    ViTMAETransformer().fit(pictures)
    assert decoded == []
    ViTMAETransformer().transform(pictures)
    assert len(decoded) == len(files)


# Where the weights come from.


@pytest.mark.parametrize("model", ["no/such-model", "/no/such/directory", "./nowhere", "a b"])
def test_a_model_that_is_nowhere(model, grey_images):
    with pytest.raises(OSError, match=r"There is no directory .* or model='vit-mae-tiny'"):
        ViTMAETransformer(model, local_files_only=True).fit(grey_images)


def test_a_directory_without_a_vit_mae(tmp_path, rgb_checkpoint, grey_images):
    def fit():
        ViTMAETransformer(tmp_path).fit(grey_images)

    with pytest.raises(ValueError, match=r"holds no ViT-MAE \(no config.json\)"):
        fit()
    (tmp_path / "config.json").write_text('{"model_type": "vit"}')
    with pytest.raises(ValueError, match="model_type 'vit'"):
        fit()
    for damaged in ("{", "[" * 100_000):
        (tmp_path / "config.json").write_text(damaged)
        with pytest.raises(ValueError, match=r"config.json' is damaged"):
            fit()
    shutil.copy(rgb_checkpoint / "config.json", tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"pickle")
    with pytest.raises(ValueError, match="pickled weights are never loaded"):
        fit()


def copied(checkpoint, directory, **changes):
    """A checkpoint with another ``config.json``; None takes a key out."""
    shutil.copytree(checkpoint, directory, dirs_exist_ok=True)
    config = {**json.loads((checkpoint / "config.json").read_text()), **changes}
    config = {key: value for key, value in config.items() if value is not None}
    (directory / "config.json").write_text(json.dumps(config))
    return directory


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"num_hidden_layers": 4}, "'layers.3.*' and 15 more are missing"),
        (
            {"intermediate_size": 40},
            r"has shape \(48,\) where \(40,\) is due, and 8 more are of other shapes",
        ),
        ({"hidden_act": "nonsense"}, "nonsense"),
    ],
)
def test_weights_that_do_not_fit_the_configuration(
    tmp_path, rgb_checkpoint, rgb_images, changes, reason
):
    transformer = ViTMAETransformer(copied(rgb_checkpoint, tmp_path, **changes))
    with pytest.raises(ValueError, match=rf"do not fit its config.json \(.*{reason}"):
        transformer.transform(rgb_images)


def test_damaged_weights(tmp_path, rgb_checkpoint, rgb_images):
    (copied(rgb_checkpoint, tmp_path) / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(ValueError, match="damaged"):
        ViTMAETransformer(tmp_path).transform(rgb_images)


def test_what_a_configuration_lacks_is_as_transformers_has_it(tmp_path, rgb_checkpoint, rgb_images):
    expected = ViTMAETransformer(rgb_checkpoint).transform(rgb_images)
    gaps = copied(rgb_checkpoint, tmp_path, num_channels=None, layer_norm_eps=None, qkv_bias=None)
    np.testing.assert_array_equal(ViTMAETransformer(gaps).transform(rgb_images), expected)


@pytest.mark.parametrize(
    "other",
    [
        {"return_dict": False},
        {"use_return_dict": False},
        {"dtype": "nonsense"},
        {"id2label": "none"},
        {"encoder_stride": "wide"},
    ],
)
def test_of_a_configuration_the_architecture_alone_counts(
    tmp_path, rgb_checkpoint, rgb_images, other
):
    expected = ViTMAETransformer(rgb_checkpoint).transform(rgb_images)
    found = ViTMAETransformer(copied(rgb_checkpoint, tmp_path, **other)).transform(rgb_images)
    np.testing.assert_array_equal(found, expected)


def test_features_that_are_not_finite_are_refused(rgb_model, rgb_images):
    large = copy.deepcopy(rgb_model)
    torch.nn.init.constant_(large.vit.embeddings.cls_token, 1e6)  # more than float16 can hold
    assert np.isfinite(ViTMAETransformer(large).transform(rgb_images)).all()
    transformer = ViTMAETransformer(large, dtype="float16", errors="nan", batch_size=2)
    with pytest.raises(ValueError, match="features of image 1 of X are not finite"):
        transformer.transform(
            np.where(np.arange(5)[:, None, None, None] == 0, np.nan, rgb_images / 255)
        )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"hidden_size": "wide"}, "hidden_size.*expected int, got str"),
        ({"hidden_size": 0}, "hidden_size is 0"),
        ({"num_hidden_layers": -1}, "num_hidden_layers is -1"),
        ({"patch_size": [8, 8]}, r"patch_size is \[8, 8\]"),
        ({"num_attention_heads": 7}, "heads don't divide its width"),
        ({"num_channels": 4}, "1 or 3 channels, got 4"),
    ],
)
def test_a_configuration_that_describes_no_vit_mae(
    tmp_path, rgb_checkpoint, rgb_images, changes, reason
):
    with pytest.raises(ValueError, match=reason):
        ViTMAETransformer(copied(rgb_checkpoint, tmp_path, **changes)).fit(rgb_images)


def test_a_size_that_is_no_multiple_of_the_patch(tmp_path, rgb_checkpoint, rgb_images):
    copied(rgb_checkpoint, tmp_path)
    (tmp_path / "preprocessor_config.json").write_text('{"size": 30}')
    with pytest.raises(ValueError, match=r"\(30, 30\) are no multiples of its patch size, 8; pass"):
        ViTMAETransformer(tmp_path).fit(rgb_images)
    ViTMAETransformer(tmp_path, image_size=(32, 40)).fit(rgb_images)


def test_weights_in_shards(tmp_path, rgb_model, rgb_checkpoint, rgb_images):
    expected = ViTMAETransformer(rgb_checkpoint).transform(rgb_images)
    rgb_model.save_pretrained(tmp_path, max_shard_size="20KB")
    shutil.copy(rgb_checkpoint / "preprocessor_config.json", tmp_path)
    shards = sorted(tmp_path.glob("model-*.safetensors"))
    assert len(shards) > 1
    np.testing.assert_array_equal(ViTMAETransformer(tmp_path).transform(rgb_images), expected)
    shards[0].unlink()
    with pytest.raises(ValueError, match=rf"names '{shards[0].name}', which is not there"):
        ViTMAETransformer(tmp_path).fit(rgb_images)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text("{}")
    with pytest.raises(ValueError, match="has no weight_map"):
        ViTMAETransformer(tmp_path).fit(rgb_images)
    index.write_text("[]")
    with pytest.raises(ValueError, match="is damaged: it holds list"):
        ViTMAETransformer(tmp_path).fit(rgb_images)
    index.unlink()
    with pytest.raises(ValueError, match=r"holds neither model.safetensors nor model.*index.json"):
        ViTMAETransformer(tmp_path).fit(rgb_images)


def test_names_that_are_no_model(tmp_path, rgb_checkpoint, grey_images):
    with pytest.raises(ValueError, match="model is an empty name"):
        ViTMAETransformer("").fit(grey_images)
    with pytest.raises(NotADirectoryError, match=r"model is a file, .*; pass the directory"):
        ViTMAETransformer(rgb_checkpoint / "model.safetensors").fit(grey_images)
    for name in ("a\0b", "long" * 2000, "~nobody-of-this-name/model"):
        with pytest.raises(OSError, match="There is no directory"):
            ViTMAETransformer(name, local_files_only=True).fit(grey_images)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"layer": 4}, "layer must be from -4 to 3, got 4"),
        ({"layer": -5}, "layer must be from -4 to 3, got -5"),
        ({"image_size": 30}, "multiples of the patch size, 7"),
        ({"image_size": (28, 28, 28)}, "multiples of the patch size"),
        ({"image_size": (28.0, "28")}, r"multiples of the patch size, 7, got \(28.0, '28'\)"),
        ({"image_size": (-7, 7)}, "multiples of the patch size"),
        ({"image_shape": (True, 784)}, r"must be whole numbers .* got \(True, 784\)"),
        *[({"device": name}, f"There is no device '{name}' here") for name in NO_DEVICES],
        ({"pooling": "max"}, "'pooling' parameter"),
        ({"batch_size": 0}, "'batch_size' parameter"),
    ],
)
def test_wrong_parameters(params, message, grey_images):
    for method in ("fit", "transform"):
        with pytest.raises(ValueError, match=message):
            getattr(ViTMAETransformer(**params), method)(grey_images)


def test_another_module_is_refused(grey_images):
    with pytest.raises(TypeError, match="got Linear"):
        ViTMAETransformer(torch.nn.Linear(2, 2)).fit(grey_images)


def test_a_module_without_weights_is_refused(grey_images):
    with torch.device("meta"):
        module = ViTMAEModel(ViTMAEConfig(image_size=32, hidden_size=24, num_attention_heads=3))
    with pytest.raises(ValueError, match="has shapes and no weights"):
        ViTMAETransformer(module).fit(grey_images)


def test_a_model_in_memory_is_copied_again_only_where_it_changed(
    monkeypatch, rgb_model, rgb_images
):
    model = copy.deepcopy(rgb_model)
    copies = []
    monkeypatch.setattr(_backbone, "_encoders", {})
    build = ViTModel.__init__
    monkeypatch.setattr(
        ViTModel, "__init__", lambda self, *a, **k: copies.append(1) or build(self, *a, **k)
    )
    transformer = ViTMAETransformer(model)
    torch.manual_seed(0)
    before = transformer.transform(rgb_images)
    drawn = torch.rand(1)
    torch.manual_seed(0)
    assert drawn == torch.rand(1)
    for again in (transformer, clone(transformer), pickle.loads(pickle.dumps(transformer))):
        np.testing.assert_array_equal(again.transform(rgb_images), before)
    assert len(copies) == 1
    for parameter in model.parameters():
        parameter.data.mul_(0.5)  # which no version counter sees
    changed = transformer.transform(rgb_images)
    assert len(copies) == 2
    assert np.abs(changed - before).max() > 0.01


def test_the_encoders_used_last_are_kept(monkeypatch):
    monkeypatch.setattr(_backbone, "_encoders", {})
    loaded = []
    for key in [0, 1, 2, 3, 0, 4, 0, 1]:
        _backbone._kept(key, lambda key=key: loaded.append(key) or key)
    assert loaded == [0, 1, 2, 3, 4, 1]
    assert [*_backbone._encoders] == [3, 4, 0, 1]


def test_a_checkpoint_that_changes_is_read_again(tmp_path, rgb_checkpoint, rgb_model, rgb_images):
    shutil.copytree(rgb_checkpoint, tmp_path, dirs_exist_ok=True)
    transformer = ViTMAETransformer(tmp_path)
    before = transformer.transform(rgb_images)
    state = {name: value * 0.5 for name, value in rgb_model.state_dict().items()}
    rgb_model.save_pretrained(tmp_path, state_dict=state)
    assert np.abs(transformer.transform(rgb_images) - before).max() > 0.01


# scikit-learn.


def test_names_clones_and_pickles_carry_no_weights(grey_images):
    transformer = ViTMAETransformer(pooling="mean")
    assert transformer.get_feature_names_out()[0] == "vitmaetransformer0"  # before any fit
    transformer.set_output(transform="pandas")
    frame = transformer.fit_transform(grey_images)
    assert list(frame) == list(transformer.get_feature_names_out())
    assert len(pickle.dumps(transformer)) < 1000
    state = {**vars(clone(transformer)), "_sklearn_output_config": None}
    assert state.keys() == {*transformer.get_params(), "_sklearn_output_config"}


def test_weights_are_loaded_once_a_process(monkeypatch, rgb_checkpoint, rgb_images):
    loads = []
    load = _backbone.Checkpoint._load
    monkeypatch.setattr(_backbone, "_encoders", {})
    monkeypatch.setattr(
        _backbone.Checkpoint, "_load", lambda self, depth: loads.append(depth) or load(self, depth)
    )
    transformer = ViTMAETransformer(rgb_checkpoint)
    for each in (transformer, clone(transformer), pickle.loads(pickle.dumps(transformer))):
        each.transform(rgb_images)
    assert loads == [3]


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_in_a_pipeline_and_a_grid_search(grey_images, n_jobs):
    y = np.arange(12) % 2
    pipeline = make_pipeline(ViTMAETransformer(), RidgeClassifier())
    search = GridSearchCV(pipeline, {"ridgeclassifier__alpha": [1, 10]}, cv=2, n_jobs=n_jobs)
    search.fit(grey_images, y)
    assert len(pickle.dumps(search)) < 1_000_000
    assert search.predict(grey_images).shape == (12,)
    scores = cross_val_score(pipeline, grey_images, y, cv=2, n_jobs=n_jobs)
    assert np.isfinite(scores).all()


def test_a_column_of_paths_beside_a_column_of_clients(files, grey_images):
    frame = pd.DataFrame({"image": files, "hospital": ["A", "B", "C"] * 4})
    y = np.arange(12) % 2
    columns = ColumnTransformer(
        [("features", ViTMAETransformer(), ["image"])],
        remainder="passthrough",
        verbose_feature_names_out=False,
    ).set_output(transform="pandas")
    model = make_pipeline(columns, FedHiPClassifier(group_column="hospital")).fit(frame, y)
    alone = FedHiPClassifier().fit(
        ViTMAETransformer().transform(grey_images), y, groups=frame["hospital"]
    )
    np.testing.assert_allclose(model[-1].personal_coef_, alone.personal_coef_, rtol=1e-3, atol=1e-5)
    assert model[-1].clients_.tolist() == ["A", "B", "C"]


# Progress.


def test_the_progress_bar_is_on_request(capsys, grey_images):
    ViTMAETransformer().transform(grey_images)
    assert capsys.readouterr() == ("", "")
    ViTMAETransformer(verbose=1).transform(grey_images)
    assert "12/12" in capsys.readouterr().err
