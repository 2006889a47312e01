"""The architecture that is pretrained, and its initial weights."""

import numpy as np
import torch
from transformers import ViTMAEConfig, ViTMAEForPreTraining

from ._checks import whole_number


def small_vit_mae_config(image_size=28, num_channels=1, patch_size=7):
    """Configuration of a ViT-MAE that a CPU can pretrain: 4 layers, 192 wide, 1.8 M weights.

    Parameters
    ----------
    image_size : int, default=28
        Height and width of an image, a multiple of the patch size.
    num_channels : {1, 3}, default=1
        1 for grey images, 3 for colour.
    patch_size : int, default=7
        Height and width of a patch.

    Returns
    -------
    transformers.ViTMAEConfig
        Any of its attributes may be changed.

    Raises
    ------
    ValueError
        If an argument is no whole number above 0.

    Examples
    --------
    >>> from skfedhip.pretraining import small_vit_mae_config
    >>> small_vit_mae_config(image_size=32, num_channels=3, patch_size=8).hidden_size
    192
    """
    return ViTMAEConfig(
        image_size=whole_number("image_size", image_size, 1),
        num_channels=whole_number("num_channels", num_channels, 1),
        patch_size=whole_number("patch_size", patch_size, 1),
        hidden_size=192,
        num_hidden_layers=4,
        num_attention_heads=6,
        intermediate_size=768,
        decoder_hidden_size=96,
        decoder_num_hidden_layers=1,
        decoder_num_attention_heads=3,
        decoder_intermediate_size=384,
        mask_ratio=0.75,
    )


def new_model(config, seed):
    """A model with the initial values of the paper, position embeddings included."""
    config._attn_implementation = "eager"  # on few patches faster than sdpa, by a seventh
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = ViTMAEForPreTraining(config)
        embeddings, decoder = model.vit.embeddings, model.decoder
        # transformers leaves positions and tokens at zero when it builds from a configuration
        side = config.image_size // config.patch_size
        with torch.no_grad():
            embeddings.position_embeddings.copy_(_sin_cos_positions(side, config.hidden_size))
            decoder.decoder_pos_embed.copy_(_sin_cos_positions(side, config.decoder_hidden_size))
            torch.nn.init.normal_(embeddings.cls_token, std=config.initializer_range)
            torch.nn.init.normal_(decoder.mask_token, std=config.initializer_range)
            for module in model.modules():
                if isinstance(module, torch.nn.Linear):
                    torch.nn.init.xavier_uniform_(module.weight)
                    torch.nn.init.zeros_(module.bias)
            projection = embeddings.patch_embeddings.projection.weight
            torch.nn.init.xavier_uniform_(projection.view(len(projection), -1))
    return model


def _sin_cos_positions(side, width):
    """Fixed position embeddings (1, side * side + 1, width) of a grid; the class token's is 0."""
    frequencies = 10_000.0 ** (-np.arange(width // 4) / (width // 4))
    angles = np.arange(side)[:, None] * frequencies
    waves = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)  # (side, width / 2)
    grid = np.concatenate([np.repeat(waves, side, axis=0), np.tile(waves, (side, 1))], axis=1)
    positions = np.concatenate([np.zeros((1, width)), grid])
    return torch.from_numpy(positions[None].astype(np.float32))
