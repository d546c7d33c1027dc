"""The extension: ``FlaskHoldfast(jobs).init_app(site)``."""

from __future__ import annotations

import os
import sys

import click
from flask import Flask
from flask.cli import ScriptInfo

from holdfast.app import Holdfast
from holdfast.contrib.command_line import run_command
from holdfast.tasks.middleware import AttemptCall, AttemptManager, Middleware

NAME = "holdfast"
ENTRY = "holdfast.contrib.flask.entry:app"


class FlaskHoldfast(Middleware):
    """Joins an app and a Flask application.

    The setting ``HOLDFAST_URL`` of the application names the store. Handlers run inside the
    application's context, so that ``current_app`` and extensions such as Flask-SQLAlchemy work.
    ``flask holdfast`` runs every command of holdfast.
    """

    def __init__(self, jobs: Holdfast, site: Flask | None = None) -> None:
        self.jobs = jobs
        self._site: Flask | None = None
        jobs.middleware(self)
        if site is not None:
            self.init_app(site)

    def init_app(self, site: Flask) -> None:
        """Join an application; a later one takes the place of this one."""
        if url := site.config.get("HOLDFAST_URL"):
            self.jobs.url = str(url)
        site.extensions[NAME] = self
        site.cli.add_command(_commands())
        self._site = site

    def attempt(self, call: AttemptCall) -> AttemptManager:
        """Return the application's context, for the handler's own thread or task."""
        if self._site is None:
            raise RuntimeError("FlaskHoldfast has no application: call init_app(site)")
        return self._site.app_context()


def _commands() -> click.Command:
    @click.command(
        NAME,
        context_settings={"ignore_unknown_options": True, "help_option_names": []},
        add_help_option=False,
        help="Run a command of holdfast with the app of this site: see holdfast --help.",
    )
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    @click.pass_context
    def run(ctx: click.Context, arguments: tuple[str, ...]) -> None:
        info = ctx.ensure_object(ScriptInfo)
        jobs: Holdfast = info.load_app().extensions[NAME].jobs
        jobs.import_path = ENTRY
        named = {"HOLDFAST_APP": ENTRY, "HOLDFAST_URL": jobs.url, "FLASK_APP": _flask_app(info)}
        sys.exit(run_command(arguments, named, prog=f"flask {NAME}"))

    return run


def _flask_app(info: ScriptInfo) -> str:
    """Where a new process finds the site."""
    return info.app_import_path or os.environ.get("FLASK_APP", "")


__all__ = ["FlaskHoldfast"]
