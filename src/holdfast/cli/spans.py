"""The type of all options that are durations."""

from __future__ import annotations

from datetime import timedelta

import click

from holdfast.model.times import parse_span


class SpanType(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.4
    """Reads a duration as a person writes it; anything else is a wrong argument."""

    name = "span"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        try:
            return parse_span(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


SPAN = SpanType()
