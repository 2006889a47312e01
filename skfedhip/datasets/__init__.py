"""Federations from ordinary data: partitions, a generator, image files, and lists of clients."""

from ._generate import make_federated_classification
from ._load import load_idx, split_clients, stack_clients
from ._partition import (
    partition_dirichlet,
    partition_dirichlet_labels,
    partition_iid,
    partition_shards,
)
from ._pictures import load_cifar, load_image_folder

__all__ = [
    "load_cifar",
    "load_idx",
    "load_image_folder",
    "make_federated_classification",
    "partition_dirichlet",
    "partition_dirichlet_labels",
    "partition_iid",
    "partition_shards",
    "split_clients",
    "stack_clients",
]
