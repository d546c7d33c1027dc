"""Finding the app a command is about, with errors that name the fix."""

from __future__ import annotations

import os
import sys
import traceback

from holdfast import config
from holdfast.app import Holdfast
from holdfast.cli.app_options import OPTIONS
from holdfast.cli.errors import USAGE, CommandError
from holdfast.config import Settings
from holdfast.errors import HoldfastError
from holdfast.observe.redaction import redacted
from holdfast.operations.environment import as_text, variable
from holdfast.worker.loading import load_app


def find_app(settings: Settings) -> tuple[str, Holdfast]:
    """Load the app that the settings name, over the store they name; raise CommandError."""
    path = settings["app"]
    if not isinstance(path, str):
        raise CommandError(
            "name the app: holdfast worker MODULE:APP, or app in holdfast.toml", USAGE
        )
    if os.getcwd() not in sys.path:  # noqa: PTH109  # compared with texts
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
    for key in config.PASSED_ON:
        if settings.source(key) != "default":
            os.environ[variable(key)] = as_text(settings[key])
    try:
        app = load_app(path)
    except HoldfastError:
        raise
    except Exception as error:  # noqa: BLE001  # whatever a user's module raises
        raise CommandError(
            f"importing {path!r} failed: {redacted(_last_line(error))}", USAGE
        ) from None
    if settings.source("url") == "flag" and app.url != settings["url"]:
        raise CommandError(
            f"{path} names its own store, {redacted(app.url)}, which --url cannot change:"
            " write Holdfast() there to use --url or $HOLDFAST_URL",
            USAGE,
        )
    _check_flags(path, app, settings)
    return path, app


def _check_flags(path: str, app: Holdfast, settings: Settings) -> None:
    """Refuse flags for settings that the code of the app gives itself."""
    given, profiles = config.for_app(settings), app.registry.profiles
    kept = {
        "limits": app.limits == given.limits,
        "retention": app.retention == given.retention,
        "webhooks": app.webhook_settings == given.webhooks,
        "profiles": all(profiles[queue] == each for queue, each in given.profiles.items()),
    }
    for key, (flag, *_) in OPTIONS.items():
        if settings.source(key) == "flag" and not kept[key.partition(".")[0]]:
            raise CommandError(
                f"{path} gives its own {key.partition('.')[0]}, which {flag} cannot change:"
                " remove them there to use flags, variables or holdfast.toml",
                USAGE,
            )


def _last_line(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, SyntaxError):  # names its place itself
        frames.clear()
    where = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"
