"""Every store accepts the same payloads, and returns an accepted one unchanged.

The table holds inputs on which the engines themselves would differ.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
import pytest

from holdfast import Holdfast, NotFoundError, State, ValidationError

if TYPE_CHECKING:
    from tests.app.conftest import Drain

pytestmark = pytest.mark.req("M-12")

ACCEPTED = ""
TEXTS = {
    "NUL as an escape": (rb'{"a":"\u0000"}', "INVALID_TEXT"),
    "NUL as an escape in a key": (rb'{"\u0000":1}', "INVALID_TEXT"),
    "NUL as it is": (b'{"a":"\x00"}', "NOT_JSON"),
    "half of a surrogate pair, escaped": (rb'{"a":"\ud800"}', "INVALID_TEXT"),
    "half of a surrogate pair in a key": (rb'{"\udc00":1}', "INVALID_TEXT"),
    "a surrogate as it is": (b'{"a":"\xed\xa0\x80"}', "INVALID_TEXT"),
    "a whole surrogate pair": (rb'{"a":"\ud83d\ude00"}', ACCEPTED),
    "NaN": (b'{"a":NaN}', "NOT_FINITE"),
    "minus Infinity": (b"[-Infinity]", "NOT_FINITE"),
    "a number beyond any float": (b'{"a":1e400}', "NOT_FINITE"),
    "the largest float": (b"[1.7976931348623157e308]", ACCEPTED),
    "an integer that Node rounds": (b'{"a":9007199254740993}', ACCEPTED),
    "an integer of 4300 digits": (b'{"a":' + b"7" * 4300 + b"}", ACCEPTED),
    "an integer of 5000 digits": (b'{"a":' + b"7" * 5000 + b"}", "NUMBER_TOO_LONG"),
    "the same key twice": (b'{"a":1,"a":2}', ACCEPTED),
    "64 levels": (b"[" * 64 + b"]" * 64, ACCEPTED),
    "65 levels": (b"[" * 65 + b"]" * 65, "TOO_DEEP"),
    "5000 levels": (b"[" * 5000 + b"]" * 5000, "TOO_DEEP"),
    "100000 levels": (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "TOO_DEEP"),
    "numbers in every spelling": (b"[1.0,1.10,1E5,-0,0.1e1]", ACCEPTED),
    "spaces that a store might drop": (b' { "b" : 1 ,\n "a" : 2 } ', ACCEPTED),
    "text beyond the basic plane": ('"\U0001f600 \u202e \ufeff"'.encode(), ACCEPTED),
    "bytes that are not UTF-8": (b'"\xff\xfe"', "INVALID_TEXT"),
    "nothing at all": (b"", "NOT_JSON"),
    "half a text": (b'{"a":', "NOT_JSON"),
    "a mebibyte": (b'"' + b"x" * (2**20 - 2) + b'"', ACCEPTED),
    "a byte more than a mebibyte": (b'"' + b"x" * (2**20 - 1) + b'"', "TOO_LARGE"),
}
VALUES = {
    "a NUL": ({"a": "\x00"}, "INVALID_TEXT"),
    "half of a surrogate pair": ({"a": "\ud800"}, "INVALID_TEXT"),
    "NaN": ({"a": float("nan")}, "NOT_FINITE"),
    "an integer that Node rounds": ({"a": 2**53 + 1}, ACCEPTED),
    "a very long integer": ({"a": 10**5000}, "NUMBER_TOO_LONG"),
    "any byte": (bytes(range(256)), ACCEPTED),
    "no byte": (b"", ACCEPTED),
    "nothing": (None, ACCEPTED),
}
UNUSUAL = {
    "NUL": "\x00",
    "NUL within": "a\x00b",
    "surrogate": "\ud800",
    "long": "x" * 5000,
    "empty": "",
    "dots": "../..",
    "percent": "%",
    "quotes": "'\"",
    "braces": "{a}",
    "colons": "a:b",
    "line": "a\r\nb",
}


async def _verdict(app: Holdfast, payload: object) -> tuple[str, str]:
    try:
        handle = await app.submit("echo", payload)
    except ValidationError as error:
        (fault,) = error.faults
        return fault.code, ""
    return ACCEPTED, handle.job_id


@pytest.mark.parametrize("name", TEXTS)
async def test_text_is_accepted_alike_everywhere_and_returned_byte_for_byte(
    app: Holdfast, name: str
) -> None:
    text, expected = TEXTS[name]

    verdict, job_id = await _verdict(app, msgspec.Raw(text))

    assert expected == verdict
    if verdict == ACCEPTED:
        (stored,) = await app.store.get([job_id])
        assert stored is not None
        assert text == stored.payload


@pytest.mark.parametrize("name", VALUES)
async def test_value_is_accepted_alike_everywhere_and_returned_equal(
    app: Holdfast, name: str
) -> None:
    value, expected = VALUES[name]

    verdict, job_id = await _verdict(app, value)

    assert expected == verdict
    if verdict == ACCEPTED:
        (stored,) = await app.store.get([job_id])
        assert stored is not None
        kept = stored.payload
        assert value == (kept if isinstance(value, bytes) else json.loads(kept))


async def test_hostile_text_of_a_failure_is_stored_and_does_not_break_settling(
    app: Holdfast, drain: Drain
) -> None:
    @app.task("echo", max_attempts=1)
    async def echo(payload: str) -> None:
        raise ValueError(payload.encode().decode("unicode_escape"))

    handles = [
        await app.submit("echo", r"a\x00b"),
        await app.submit("echo", r"\ud800 broken"),
        await app.submit("echo", r"\udfff\x1b[31m\u202e"),
    ]
    await drain()

    jobs = await app.store.get([handle.job_id for handle in handles])
    assert [State.DEAD_LETTER] * 3 == [job.state for job in jobs if job]
    messages = [job.failure.message for job in jobs if job and job.failure]
    assert ["a\ufffdb", "? broken", "?\x1b[31m\u202e"] == messages


@pytest.mark.parametrize("text", UNUSUAL.values(), ids=UNUSUAL)
async def test_arbitrary_text_as_an_id_finds_no_job(app: Holdfast, text: str) -> None:
    with pytest.raises(NotFoundError):
        await app.get(text)

    assert [None] == await app.store.get([text])
    assert [[]] == await app.store.history([text])


@pytest.mark.parametrize("text", UNUSUAL.values(), ids=UNUSUAL)
async def test_arbitrary_text_in_a_filter_finds_nothing_or_is_refused(
    app: Holdfast, text: str
) -> None:
    await app.submit("echo", None)
    found = []
    for search in ({"types": [text]}, {"queues": [text]}, {"tags": {text: text}}):
        try:
            page = await app.search(**search)
        except ValidationError:
            continue
        found += page.jobs

    assert [] == found
