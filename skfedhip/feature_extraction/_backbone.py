"""Find the checkpoint of a ViT-MAE and load its encoder, once a process."""

import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

import torch
from huggingface_hub import snapshot_download
from safetensors import SafetensorError
from transformers import ViTConfig, ViTMAEForPreTraining, ViTMAEModel, ViTModel
from transformers.utils import logging as transformers_logging

from ._preprocessing import Preprocessing

EMBEDDED = {"vit-mae-tiny": Path(__file__).parent / "checkpoints" / "vit-mae-tiny"}
"""Checkpoints that ship inside the package, by name."""

_FILES = ("config.json", "preprocessor_config.json", "*.safetensors", "*.safetensors.index.json")
_KEPT_ENCODERS = 4

_encoders = {}  # the weights of one process, shared by all transformers that ask for them
_lock = threading.Lock()
_quiet = threading.RLock()  # the levels below are the process's, not a thread's


@dataclass(frozen=True)
class Checkpoint:
    """A directory that holds a ViT-MAE; its weights are read when first asked for.

    Attributes
    ----------
    directory : Path
        Where the files are, links resolved.
    config : dict
        The checkpoint's ``config.json``.
    preprocessing : Preprocessing
        How its images are brought into shape.
    """

    directory: Path
    config: dict
    preprocessing: Preprocessing

    @property
    def _stamp(self):
        """Name, size and time of each file: another one once a file is written anew."""
        files = sorted(file for kind in _FILES for file in self.directory.glob(kind))
        return tuple((str(f), f.stat().st_size, f.stat().st_mtime_ns) for f in files)

    def digest(self):
        """Hexadecimal digest of the weights, computed once a process."""
        return _digest_of(tuple(part for part in self._stamp if part[0].endswith(".safetensors")))

    def encoder(self, n_layers, dtype, device):
        """First layers of the encoder, from memory if this process has loaded them before.

        Parameters
        ----------
        n_layers : int
            How many.
        dtype : torch.dtype
            Of the weights.
        device : torch.device
            Where to compute.

        Returns
        -------
        ViTModel
            In evaluation mode; it masks nothing.
        """
        key = (self._stamp, n_layers, dtype, device)
        with _lock:
            if key not in _encoders:
                while len(_encoders) >= _KEPT_ENCODERS:
                    del _encoders[next(iter(_encoders))]
                _encoders[key] = self._load(n_layers).to(device=device, dtype=dtype).eval()
            return _encoders[key]

    def _load(self, n_layers):
        def refuse(reason):
            raise ValueError(
                f"The weights in {str(self.directory)!r} are damaged or do not fit its "
                f"config.json ({reason}); save the model anew."
            ) from None

        try:
            with quiet_transformers():
                encoder, report = ViTModel.from_pretrained(
                    self.directory,
                    config=_encoder_config(self.config, n_layers),
                    add_pooling_layer=False,
                    attn_implementation="sdpa",
                    use_safetensors=True,
                    local_files_only=True,
                    trust_remote_code=False,
                    output_loading_info=True,
                )
        except (RuntimeError, OSError, SafetensorError) as error:
            refuse(str(error).splitlines()[0].rstrip("."))
        if missing := sorted(report["missing_keys"]):
            refuse(f"{missing[0]!r} and {len(missing) - 1} more are missing")
        return encoder


@lru_cache(maxsize=_KEPT_ENCODERS)
def _digest_of(stamp):
    """Hexadecimal digest of the files that a stamp names."""
    digest = blake2b(digest_size=16)
    for path, _, _ in stamp:
        with open(path, "rb") as stream:
            while chunk := stream.read(1 << 24):
                digest.update(chunk)
    return digest.hexdigest()


@dataclass(frozen=True)
class ModuleCheckpoint:
    """A ViT-MAE in memory, with the attributes and methods of :class:`Checkpoint`."""

    module: torch.nn.Module

    @property
    def config(self):
        return self.module.config.to_dict()

    @property
    def preprocessing(self):
        return Preprocessing.from_processor({}, self.config)

    def digest(self):
        digest = blake2b(digest_size=16)
        for name, tensor in self._weights().items():
            digest.update(name.encode())
            digest.update(tensor.detach().float().cpu().contiguous().numpy().data)
        return digest.hexdigest()

    def encoder(self, n_layers, dtype, device):
        encoder = ViTModel(_encoder_config(self.config, n_layers), add_pooling_layer=False)
        weights = self._weights()
        encoder.load_state_dict({name: weights[name] for name in encoder.state_dict()})
        return encoder.to(device=device, dtype=dtype).eval()

    def _weights(self):
        return getattr(self.module, "vit", self.module).state_dict()


def module_checkpoint(module):
    """Wrap a model in memory; TypeError unless it is a ViT-MAE of transformers."""
    if not isinstance(module, ViTMAEModel | ViTMAEForPreTraining):
        raise TypeError(
            "model must be a ViTMAEModel or ViTMAEForPreTraining of transformers, or name a "
            f"checkpoint, got {type(module).__name__}."
        )
    return ModuleCheckpoint(module)


def find_checkpoint(model, revision=None, local_files_only=False):
    """Read the configuration of a checkpoint.

    Parameters
    ----------
    model : str or path-like
        An embedded checkpoint's name, a directory, or a model's name on the Hugging Face hub.
    revision : str or None
        Branch, tag or commit on the hub.
    local_files_only : bool
        Whether to stay away from the network.

    Returns
    -------
    Checkpoint

    Raises
    ------
    OSError
        If there is no such checkpoint, or the hub can't be reached.
    ValueError
        If the directory holds no ViT-MAE in safetensors.
    """
    directory = EMBEDDED.get(str(model)) or Path(model).expanduser()
    if not directory.is_dir():
        directory = _from_hub(str(model), revision, local_files_only)
    config = _read_json(directory / "config.json")
    if config is None or config.get("model_type") != "vit_mae":
        found = "no config.json" if config is None else f"model_type {config.get('model_type')!r}"
        raise ValueError(
            f"{str(directory)!r} holds no ViT-MAE ({found}); save one there with save_pretrained."
        )
    if not any(directory.glob("*.safetensors")):
        raise ValueError(
            f"{str(directory)!r} holds no *.safetensors; save the model with save_pretrained, "
            "since pickled weights are never loaded."
        )
    processor = _read_json(directory / "preprocessor_config.json") or {}
    return Checkpoint(directory.resolve(), config, Preprocessing.from_processor(processor, config))


def _read_json(path):
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ValueError(f"{str(path)!r} is damaged: {error}.") from None
    return content if isinstance(content, dict) else None


def _from_hub(name, revision, local_files_only):
    """Directory of a hub model; one that was downloaded before needs no network."""
    reason = "it was not downloaded before"
    for offline in (True,) if local_files_only else (True, False):
        try:
            directory = Path(
                snapshot_download(
                    name, revision=revision, allow_patterns=_FILES, local_files_only=offline
                )
            )
        except (OSError, ValueError) as error:  # the hub's own errors derive from these two
            reason = f"{type(error).__name__}" if not offline else reason
            continue
        if any(directory.glob("*.safetensors")):
            return directory
        reason = "it holds no *.safetensors"
    raise OSError(
        f"There is no directory {name!r}, and no model of this name can be had from the Hugging "
        f"Face hub ({reason}); pass the directory of a checkpoint on this machine, or "
        "model='vit-mae-tiny', which ships with skfedhip."
    ) from None


def _encoder_config(config, n_layers):
    names = ViTConfig().to_dict().keys() & config.keys()
    kept = {name: config[name] for name in names if name not in ("model_type", "architectures")}
    config = ViTConfig(**{**kept, "num_hidden_layers": n_layers})
    config._attn_implementation = "sdpa"
    return config


@contextmanager
def quiet_transformers():
    """Without the bars and the notes on unused weights: what matters is checked and raised."""
    with _quiet:
        level = transformers_logging.get_verbosity()
        bars = transformers_logging.is_progress_bar_enabled()
        transformers_logging.set_verbosity_error()
        transformers_logging.disable_progress_bar()
        try:
            yield
        finally:
            transformers_logging.set_verbosity(level)
            if bars:
                transformers_logging.enable_progress_bar()
