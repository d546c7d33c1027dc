"""Where worker processes find the app: importing this module loads the Flask application."""

from __future__ import annotations

import os
import typing

if typing.TYPE_CHECKING:
    from holdfast.app import Holdfast


def _loaded() -> Holdfast:
    from flask.cli import ScriptInfo

    site = ScriptInfo(app_import_path=os.environ.get("FLASK_APP")).load_app()
    jobs: Holdfast = site.extensions["holdfast"].jobs
    jobs.import_path = f"{__name__}:app"
    return jobs


if "FLASK_APP" in os.environ:
    app = _loaded()
