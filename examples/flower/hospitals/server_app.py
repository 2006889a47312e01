"""The server adds up what the hospitals send."""

from skfedhip.federation.flower import make_server_app

from .task import classifier

# Clients with other classes or features are refused.
app = make_server_app(classifier, classes=range(5), n_features=20)
