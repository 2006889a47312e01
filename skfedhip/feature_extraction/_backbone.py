"""Find the checkpoint of a ViT-MAE and load its encoder, once a process."""

import json
import os
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import blake2b
from pathlib import Path

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import (
    PretrainedConfig,
    ViTConfig,
    ViTMAEConfig,
    ViTMAEForPreTraining,
    ViTMAEModel,
    ViTModel,
)
from transformers.utils import logging as transformers_logging

from ._preprocessing import Preprocessing

EMBEDDED = {"vit-mae-tiny": Path(__file__).parent / "checkpoints" / "vit-mae-tiny"}
"""Checkpoints that ship inside the package, by name."""

_WEIGHTS = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_FILES = ("config.json", "preprocessor_config.json", "*.safetensors", "*.safetensors.index.json")
_SIZES = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "image_size",
    "patch_size",
)
_ARCHITECTURE = ViTMAEConfig().to_dict().keys() - PretrainedConfig().to_dict().keys()
"""What of a ``config.json`` is read: the rest says how transformers answers, and may break it."""

_KEPT_ENCODERS = 4

_encoders = {}  # of one process, shared by all transformers that ask for them; the latest is last
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
        return _kept(key, lambda: self._load(n_layers).to(device=device, dtype=dtype).eval())

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
                    ignore_mismatched_sizes=True,  # so that they are reported, below
                )
        except (RuntimeError, OSError, KeyError, ValueError, SafetensorError) as error:
            refuse(str(error).partition("\n")[0].rstrip("."))
        if missing := sorted(report["missing_keys"]):
            refuse(f"{missing[0]!r} and {len(missing) - 1} more are missing")
        if others := sorted(report["mismatched_keys"]):
            name, found, wanted = others[0]
            refuse(
                f"{name!r} has shape {tuple(found)} where {tuple(wanted)} is due, and "
                f"{len(others) - 1} more are of other shapes"
            )
        return encoder


def _kept(key, load):
    """An encoder that this process has loaded before, else a new one in place of the oldest."""
    with _lock:
        encoder = _encoders.pop(key, None)
        if encoder is None:
            while len(_encoders) >= _KEPT_ENCODERS:
                del _encoders[next(iter(_encoders))]
            encoder = load()
        _encoders[key] = encoder
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
    """A ViT-MAE in memory as it is now, with the attributes and methods of :class:`Checkpoint`."""

    module: torch.nn.Module

    @property
    def config(self):
        return self.module.config.to_dict()

    @property
    def preprocessing(self):
        return Preprocessing.from_processor({}, self.config)

    def digest(self):
        return self._digest

    @cached_property
    def _digest(self):
        digest = blake2b(digest_size=16)
        for name, tensor in self._weights().items():
            digest.update(name.encode())
            digest.update(tensor.detach().float().cpu().contiguous().numpy().data)
        return digest.hexdigest()

    def encoder(self, n_layers, dtype, device):
        config = _encoder_config(self.config, n_layers)

        def load():
            with torch.random.fork_rng(devices=[]):  # its first weights are drawn, and replaced
                encoder = ViTModel(config, add_pooling_layer=False)
            weights = self._weights()
            encoder.load_state_dict({name: weights[name] for name in encoder.state_dict()})
            return encoder.to(device=device, dtype=dtype).eval()

        # by content: a model in memory may be trained on between two calls
        return _kept((self.digest(), config.to_json_string(), dtype, device), load)

    def _weights(self):
        return getattr(self.module, "vit", self.module).state_dict()


def module_checkpoint(module):
    """Wrap a model in memory; TypeError unless it is a ViT-MAE of transformers."""
    if not isinstance(module, ViTMAEModel | ViTMAEForPreTraining):
        raise TypeError(
            "model must be a ViTMAEModel or ViTMAEForPreTraining of transformers, or name a "
            f"checkpoint, got {type(module).__name__}."
        )
    if any(parameter.is_meta for parameter in module.parameters()):
        raise ValueError("model has shapes and no weights (device 'meta'); load them first.")
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
    directory = _directory_of(os.fsdecode(model), revision, local_files_only)
    found = _read_json(directory / "config.json")
    if found is None or found.get("model_type") != "vit_mae":
        kind = "no config.json" if found is None else f"model_type {found.get('model_type')!r}"
        raise ValueError(
            f"{str(directory)!r} holds no ViT-MAE ({kind}); save one there with save_pretrained."
        )
    _check_weights(directory)
    config = _configuration(found, directory)
    processor = _read_json(directory / "preprocessor_config.json") or {}
    return Checkpoint(directory.resolve(), config, Preprocessing.from_processor(processor, config))


def _directory_of(model, revision, local_files_only):
    if not model:
        raise ValueError("model is an empty name; pass 'vit-mae-tiny' or a directory.")
    directory = EMBEDDED.get(model) or Path(os.path.expanduser(model))
    if os.path.isfile(directory):
        raise NotADirectoryError(f"model is a file, {model!r}; pass the directory that holds it.")
    if os.path.isdir(directory):
        return directory
    return _from_hub(model, revision, local_files_only)


def _configuration(found, directory):
    """A ``config.json`` with transformers' defaults for what it lacks, checked."""
    try:
        config = ViTMAEConfig(**{n: found[n] for n in _ARCHITECTURE & found.keys()}).to_dict()
    except (StrictDataclassError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
    else:
        wrong = [n for n in _SIZES if not isinstance(config[n], int) or config[n] < 1]
        if not wrong and config["hidden_size"] % config["num_attention_heads"] == 0:
            return config
        reason = f"{wrong[0]} is {config[wrong[0]]!r}" if wrong else "heads don't divide its width"
    raise ValueError(f"{str(directory / 'config.json')!r} describes no ViT-MAE: {reason}.")


def _check_weights(directory):
    """ValueError unless there are whole safetensors, or all that their index names."""
    if (directory / _WEIGHTS).is_file():
        return
    index = _read_json(directory / _INDEX)
    if index is None:
        raise ValueError(
            f"{str(directory)!r} holds neither {_WEIGHTS} nor {_INDEX}; save the model with "
            "save_pretrained, since pickled weights are never loaded."
        )
    shards = index.get("weight_map")
    if not isinstance(shards, dict):
        raise ValueError(f"{str(directory / _INDEX)!r} has no weight_map; save the model anew.")
    if lost := sorted({name for name in shards.values() if not (directory / name).is_file()}):
        raise ValueError(
            f"{str(directory / _INDEX)!r} names {lost[0]!r}, which is not there; save the model "
            "anew."
        )


def _read_json(path):
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{str(path)!r} is damaged: {error}.") from None
    if not isinstance(content, dict):
        raise ValueError(f"{str(path)!r} is damaged: it holds {type(content).__name__}, no object.")
    return content


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
    names = _ARCHITECTURE & ViTConfig().to_dict().keys()
    kept = {name: config[name] for name in names}
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
