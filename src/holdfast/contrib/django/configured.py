"""The app of a Django project, as its settings configure it."""

from __future__ import annotations

from holdfast.app import Holdfast
from holdfast.contrib.django.configuration import read_settings, store_url
from holdfast.contrib.django.connections import ConnectionCare


class DjangoHoldfast(Holdfast):
    """An app whose store is read from Django's settings at every use.

    A test run changes the databases of the settings after the tasks are registered.
    """

    import_path: str = "holdfast.contrib.django.entry:app"

    @property
    def url(self) -> str:
        """The URL of the store."""
        return self._given_url or store_url()

    @url.setter
    def url(self, value: str) -> None:
        self._given_url = value


def _configured() -> DjangoHoldfast:
    given = read_settings()
    app = DjangoHoldfast(queues=given.queues, version=given.version)
    app.url = ""
    app.middleware(ConnectionCare())
    return app


app = _configured()
