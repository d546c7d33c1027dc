"""holdfast in Flask: an extension, jobs in the application's context, and ``flask holdfast``."""

from __future__ import annotations

from holdfast.errors import MissingExtraError

try:
    from holdfast.contrib.flask.extension import FlaskHoldfast
except ModuleNotFoundError as error:
    if error.name != "flask":
        raise
    raise MissingExtraError("flask", "flask") from None

__all__ = ["FlaskHoldfast"]
