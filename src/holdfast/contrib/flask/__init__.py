"""holdfast in Flask: an extension, jobs in the application's context, and ``flask holdfast``."""

from __future__ import annotations

from holdfast.contrib.flask.extension import FlaskHoldfast

__all__ = ["FlaskHoldfast"]
