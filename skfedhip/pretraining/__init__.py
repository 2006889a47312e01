"""Pretrain a small ViT-MAE on unlabelled images: ``python -m skfedhip.pretraining``.

The encoder sees a quarter of an image's patches, a small decoder draws the others, and their
squared error is minimised (He et al., "Masked Autoencoders Are Scalable Vision Learners",
CVPR 2022). No labels are used.
"""

from ._model import small_vit_mae_config
from ._pretrain import pretrain_vit_mae

__all__ = ["pretrain_vit_mae", "small_vit_mae_config"]
