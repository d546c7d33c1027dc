"""The trace context of a job, where BullMQ's telemetry keeps it: ``opts.tm``, a JSON text.

So the spans of Node and of Python belong to one trace, whichever of them submits a job.
"""

from __future__ import annotations

import msgspec

from holdfast.model.job import Extra, extra_document, read_extra
from holdfast.model.validation import MAX_HEADERS

TRACE_HEADERS = ("traceparent", "tracestate", "baggage")
"""The headers of the W3C trace context, which BullMQ's telemetry carries."""


def carrier_of(extra: bytes | None) -> str | None:
    """Return the trace context in a job's headers as a carrier; None when they hold none.

    Encrypted headers stay secret: they hold none that is readable here.
    """
    if extra is None:
        return None
    try:
        headers = read_extra(extra).headers
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    found = {name: headers[name] for name in TRACE_HEADERS if name in headers}
    return msgspec.json.encode(found).decode() if found else None


def extra_in(carrier: object) -> bytes | None:
    """Return the plain fields of a job of a BullMQ client: its carrier as headers.

    Entries that are no texts, and a carrier that is no object or too large, are ignored.
    """
    if not isinstance(carrier, str) or len(carrier) > MAX_HEADERS:
        return None
    try:
        found = msgspec.json.decode(carrier)
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return None
    if not isinstance(found, dict):
        return None
    headers = {name: text for name, text in found.items() if isinstance(text, str)}
    return extra_document(Extra(headers=headers))
