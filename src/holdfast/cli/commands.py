"""The commands and where each is defined; loads only the one that is used.

``holdfast --help`` imports nothing but click: it answers in a tenth of a second.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click

from holdfast.cli.errors import INTERRUPTED, OK, discard_output
from holdfast.runtime.exit import exit_despite_threads
from holdfast.runtime.version import __version__

SECTIONS = {
    "Run jobs": {
        "worker": ("worker", "Run the jobs of an app."),
        "dev": ("worker", "Run an app while you develop it: worker, dashboard, reload."),
        "demo": ("demo", "Run a short demonstration."),
    },
    "Serve": {
        "serve": ("serve", "Serve the HTTP API and the dashboard."),
        "keys": ("keys", "Create, list or revoke API keys."),
    },
    "Jobs": {
        "submit": ("submit", "Submit a job."),
        "jobs": ("jobs", "List jobs."),
        "job": ("jobs", "Show one job."),
        "graph": ("graph", "Show the workflow around a job."),
        "explain": ("jobs", "Explain why a job is not running."),
        "cancel": ("manage", "Cancel jobs, by id or by filter."),
        "retry": ("manage", "Retry failed jobs, by id or by filter."),
        "update": ("manage", "Change tags or priority of jobs."),
        "release": ("manage", "Release held jobs."),
        "delete": ("manage", "Delete finished jobs, by id or by filter."),
    },
    "Operate": {
        "stats": ("system", "Show counts, rates and latencies."),
        "series": ("oversight", "Show counts and latencies over time."),
        "top": ("top", "Watch queues, jobs and workers live."),
        "queues": ("queues", "List queues, pause, resume or age one."),
        "limits": ("limits", "List limits; set or lift one."),
        "workers": ("workers", "List live workers; drain one."),
        "schedules": ("schedules", "List schedules; create, change, pause or run one."),
        "operations": ("operations", "List operations on many jobs; start, watch or cancel one."),
        "failures": ("jobs", "List failed jobs and count their causes."),
        "failure-groups": ("oversight", "List failures by type, code and message."),
        "events": ("system", "Show the event stream."),
        "verify": ("verify", "Check every job against its audit records."),
        "torture": ("torture", "Kill workers and prove that no job is lost."),
        "webhooks": ("webhooks", "List webhooks; add one, show deliveries."),
        "doctor": ("doctor", "Report problems and what to do about them."),
        "migrate": ("migrate", "Create or upgrade the store's schema."),
        "copy": ("copy", "Copy everything to another store."),
        "celery": ("celery", "Check code written for Celery."),
        "config": ("system", "Show the settings and their sources."),
    },
}
_PLACES = {name: place for section in SECTIONS.values() for name, (place, _) in section.items()}


class Commands(click.Group):
    """A group that imports a command's module when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_PLACES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _PLACES:
            return None
        module = importlib.import_module(f"holdfast.cli.{_PLACES[cmd_name]}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, help_) for name, (_, help_) in commands.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib

            close = difflib.get_close_matches(args[0], _PLACES, 1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise click.UsageError(error.message + hint, ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; an error of holdfast becomes a message and an exit code."""
        from holdfast.cli.errors import reported

        with reported():
            return super().invoke(ctx)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="holdfast")
def cli() -> None:
    """A durable job queue: one job model, one set of promises, four stores.

    The store is --url, $HOLDFAST_URL, url in holdfast.toml, or sqlite:///holdfast.db.
    Exit codes: 0 done; 1 not found, refused or failed; 2 wrong usage; 3 store not
    reachable; 4 timed out; 130 interrupted.
    """


def main() -> None:
    """Run the command line and exit with its code."""
    code = run()
    exit_despite_threads()
    sys.exit(code)


def run() -> int:
    """Run the command that ``sys.argv`` names and return its exit code; the process goes on."""
    try:
        code = cli.main(prog_name="holdfast", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except BrokenPipeError:
        discard_output()
        code = OK
    return code if isinstance(code, int) else OK
