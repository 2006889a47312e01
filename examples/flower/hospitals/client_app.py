"""A hospital sends statistics of its rows, and makes its own model at home."""

from skfedhip.datasets import make_federated_classification
from skfedhip.federation.flower import make_client_app

from .task import classifier

NAMES = ["north", "south", "west"]


def load_data(context):
    """This hospital's rows; a real one would read its own files here."""
    config = context.node_config
    name = config.get("client-id") or NAMES[config["partition-id"]]
    X, y, hospitals = make_federated_classification(n_clients=3, random_state=0)
    own = hospitals == NAMES.index(name)
    return X[own], y[own]


app = make_client_app(classifier, load_data)
