"""The server adds up what the hospitals send."""

from skfedhip.federation.flower import make_server_app

from .task import classifier

app = make_server_app(classifier)
