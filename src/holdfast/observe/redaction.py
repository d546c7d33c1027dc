"""Masks secrets in texts that people read: error texts, stack traces, logs.

``observe.secrets`` lists the spellings. Every pattern runs in time linear in the text.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property, lru_cache
from typing import Self

from msgspec.structs import replace

from holdfast.model.job import Failure, LogLine, Progress
from holdfast.observe.secrets import MASK, Spellings

_NEVER_SECRET = (bool, int, float, datetime, timedelta)
VARIABLE = "HOLDFAST_REDACT_NAMES"
REPEATED = 128
"""How many texts that come again and again, such as the frames of a trace, are masked once."""

LONGEST_SECRET = 4500
"""Characters of the longest secret that is recognised only with what follows it."""


class Redaction:
    """Masks values by the usual names, by further ``names``, and by a hook.

    A name also matches as a part: ``token`` masks ``access_token``, too. The hook receives each
    text after everything else was masked and returns the text that is stored or shown.
    """

    def __init__(self, *names: str, hook: Callable[[str], str] | None = None) -> None:
        self._names = names
        self._hook = hook

    @classmethod
    def from_environment(cls) -> Self:
        """Mask the names in $HOLDFAST_REDACT_NAMES, separated by commas, too."""
        given = os.environ.get(VARIABLE, "")
        return cls(*(name.strip() for name in given.split(",") if name.strip()))

    def text(self, text: str) -> str:
        """Return a text with its secrets masked."""
        text = self._spellings.mask(text)
        return text if self._hook is None else self._hook(text)

    def beginning(self, text: str, limit: int, name: str = "") -> str:
        """Return the masked beginning of the text of a field, of at most ``limit`` characters.

        Only a little more is read. Its end is left out: there, a secret may be cut in two and not
        be recognised.
        """
        if name and self._spellings.names(name):
            return MASK
        if len(text) < limit + LONGEST_SECRET:
            return self.text(text)[:limit]
        return self.text(text[: limit + LONGEST_SECRET])[:-LONGEST_SECRET][:limit]

    def fields(self, fields: Mapping[str, object]) -> dict[str, object]:
        """Return fields with the values of secret names masked, and texts redacted."""
        return {name: self._value(name, value) for name, value in fields.items()}

    def failure(self, failure: Failure) -> Failure:
        """Return a failure that may be stored and shown."""
        return replace(
            failure,
            message=self.text(failure.message),
            code=self._repeated(failure.code),
            stack_trace=self._trace(failure),
            context={n: str(self._value(n, v)) for n, v in failure.context.items()},
        )

    def line(self, line: LogLine) -> LogLine:
        """Return a log line that may be stored and shown."""
        fields = {name: str(self._value(name, value)) for name, value in line.fields.items()}
        return replace(line, message=self.text(line.message), fields=fields)

    def progress(self, progress: Progress) -> Progress:
        """Return progress that may be stored and shown."""
        return replace(progress, message=self.text(progress.message))

    def _trace(self, failure: Failure) -> str:
        """Mask the frames, which are the same for many failures, apart from the message."""
        trace, ends = failure.stack_trace, f"{failure.message}\n"
        if not trace.endswith(ends):
            return self.text(trace)
        last = trace.rfind("\n", 0, len(trace) - len(ends)) + 1
        text = self._repeated_mask(trace[:last]) + self._spellings.mask(trace[last:])
        return text if self._hook is None else self._hook(text)

    def _repeated(self, text: str) -> str:
        text = self._repeated_mask(text)
        return text if self._hook is None else self._hook(text)

    @cached_property
    def _repeated_mask(self) -> Callable[[str], str]:
        return lru_cache(REPEATED)(self._spellings.mask)

    @cached_property
    def _spellings(self) -> Spellings:
        return Spellings(self._names)

    def _value(self, name: str, value: object) -> object:
        if value is None or isinstance(value, _NEVER_SECRET):
            return value
        if self._spellings.names(name):
            return MASK
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Sequence) and not isinstance(value, bytes):
            return [self.text(str(item)) for item in value]
        return self.text(str(value))


_default = Redaction()


def redacted(text: object) -> str:
    """Return a text with the usual secrets masked."""
    return _default.text(str(text))
