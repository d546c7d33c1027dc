"""The command line: one file per group of commands, loaded when a command is used."""

from __future__ import annotations

from holdfast.cli.commands import cli, main, run

__all__ = ["cli", "main", "run"]
