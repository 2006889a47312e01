"""How fast ViTMAETransformer is beside its encoder alone and beside one image at a time.

The encoder alone gets batches that are on the device already, as normalised floats. The loop sends
one image after another through transformers' image processor and the same encoder.
"""

import time
from dataclasses import dataclass
from tempfile import TemporaryDirectory

import numpy as np

from ._arguments import output_file, whole_number
from ._table import write_json

_RANDOM_BASE = "base-sized"
_LOOPED = 50


@dataclass(frozen=True)
class Rates:
    """Images per second, and where they stand beside the device's arithmetic.

    Attributes
    ----------
    transformer, encoder, loop : float
        Images per second of ViTMAETransformer, of its encoder alone, and of a loop over images.
    flops : float
        Floating-point operations of the encoder for one image.
    matrix_rate : float
        Operations per second of a large matrix product in the same precision.
    device : str
        Where all of it was computed.
    """

    transformer: float
    encoder: float
    loop: float
    flops: float
    matrix_rate: float
    device: str

    @property
    def of_matrix_rate(self):
        return self.transformer * self.flops / self.matrix_rate


def measure(model, device, n_images, repeats):
    """Rates on random images of the model's own size.

    Parameters
    ----------
    model : str
        Of ``ViTMAETransformer``, or "base-sized", random weights of vit-mae-base's shape.
    device : str
        Where, as torch names it; "auto" is a GPU if there is one.
    n_images : int
        How many images the batched ways are timed on.
    repeats : int
        Runs of each, taking turns, of which the best counts.

    Returns
    -------
    Rates
    """
    from ..feature_extraction._device import resolve_device

    device = str(resolve_device(device))
    if model != _RANDOM_BASE:
        return _measure(model, device, n_images, repeats)
    from transformers import ViTMAEConfig, ViTMAEModel

    with TemporaryDirectory() as directory:
        ViTMAEModel(ViTMAEConfig()).save_pretrained(directory)
        return _measure(directory, device, n_images, repeats)


def _measure(model, device, n_images, repeats):
    import torch

    from ..feature_extraction import ViTMAETransformer

    transformer = ViTMAETransformer(model, device=device)
    plan = transformer._plan()
    extraction = plan.extraction()
    channels, size = plan.checkpoint.config["num_channels"], plan.preprocessing.size
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (n_images, channels, *size), dtype=np.uint8)
    pixels = plan.preprocessing(list(images), plan.device).to(plan.dtype)
    batch = extraction.batch_size()

    def encoder():
        with torch.inference_mode():
            parts = [
                extraction.encoder(part).last_hidden_state[:, 0] for part in pixels.split(batch)
            ]
            return torch.cat(parts).float().cpu().numpy()

    ways = {"transformer": lambda: transformer.transform(images), "encoder": encoder}
    seconds = {name: [] for name in ways}
    for _ in range(repeats + 1):  # the first run warms up
        for name, way in ways.items():
            start = time.perf_counter()
            result = way()
            seconds[name].append(time.perf_counter() - start)
            if not np.isfinite(result).all():
                raise AssertionError(f"{name} gave features that are not finite: the race is void.")
    rates = {name: n_images / min(values[1:]) for name, values in seconds.items()}
    looped = images[:_LOOPED]
    loop = len(looped) / _seconds_one_by_one(plan, extraction, looped)
    arithmetic = {"flops": _flops(plan), "matrix_rate": _matrix_rate(plan)}
    return Rates(**rates, loop=loop, **arithmetic, device=device)


def _seconds_one_by_one(plan, extraction, images):
    """Time of the loop over images through transformers' processor."""
    import torch

    from ..feature_extraction._backbone import quiet_transformers

    prepared = plan.preprocessing
    with quiet_transformers():  # it notes that it resizes by PIL where torchvision is missing
        from transformers import ViTImageProcessor

        processor = ViTImageProcessor(
            size={"height": prepared.size[0], "width": prepared.size[1]},
            image_mean=list(prepared.mean),
            image_std=list(prepared.std),
        )
    start = time.perf_counter()
    for image in images:
        inputs = processor(image, input_data_format="channels_first", return_tensors="pt")
        with torch.inference_mode():
            pixels = inputs["pixel_values"].to(plan.device, plan.dtype)
            extraction.encoder(pixels).last_hidden_state[:, 0].float().cpu().numpy()
    return time.perf_counter() - start


def _flops(plan):
    """Operations of the encoder for one image: its matrix products."""
    config, size = plan.checkpoint.config, plan.preprocessing.size
    tokens = 1 + size[0] * size[1] // config["patch_size"] ** 2
    width, inner = config["hidden_size"], config["intermediate_size"]
    layer = 4 * width**2 + 2 * width * inner + 2 * tokens * width
    patches = config["num_channels"] * config["patch_size"] ** 2 * width
    return 2 * tokens * (plan.n_layers * layer + patches)


def _matrix_rate(plan):
    """Operations per second of a product of two square matrices, at its best of five."""
    import torch

    side = 8192 if plan.device.type == "cuda" else 2048
    matrix = torch.ones(side, side, device=plan.device, dtype=plan.dtype)
    seconds = []
    for _ in range(6):
        start = time.perf_counter()
        (matrix @ matrix)[0, 0].item()
        seconds.append(time.perf_counter() - start)
    return 2 * side**3 / min(seconds[1:])


def add_arguments(parser):
    """Command-line options of ``backbone``."""
    parser.add_argument(
        "--model",
        default="vit-mae-tiny",
        help=f"a model of ViTMAETransformer, or {_RANDOM_BASE} (default: %(default)s)",
    )
    parser.add_argument("--device", default="auto", help="as torch names it (default: %(default)s)")
    parser.add_argument(
        "--images", metavar="N", type=whole_number(1), default=4096, help="default: %(default)s"
    )
    parser.add_argument(
        "--repeats", metavar="N", type=whole_number(1), default=3, help="default: %(default)s"
    )
    parser.add_argument(
        "--json", metavar="FILE", type=output_file, help="write the rates to this file too"
    )


def run(args):
    """Measure and print."""
    rates = measure(args.model, args.device, args.images, args.repeats)
    ways = (("its encoder alone", rates.encoder), ("one image at a time", rates.loop))
    share = f"{100 * rates.of_matrix_rate:.0f} %"
    print(f"{args.model} on {rates.device}, images per second")
    print(f"  {'ViTMAETransformer':22}{rates.transformer:12,.1f}")
    for name, rate in ways:
        print(f"  {name:22}{rate:12,.1f}{rates.transformer / rate:10.2f}x")
    print(
        f"  {rates.flops / 1e9:.3f} GFLOP an image, {share} of a matrix product's "
        f"{rates.matrix_rate / 1e12:.3f} TFLOP/s"
    )
    if args.json is not None:
        write_json(args.json, {"backbone": vars(rates) | {"of_matrix_rate": rates.of_matrix_rate}})
