"""What may be a payload: the same verdict for every store."""

from __future__ import annotations

import gc
import json
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path, PurePosixPath, PureWindowsPath
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import Fault, PermanentError, ValidationError
from holdfast.model.acceptance import accept
from holdfast.model.job import Encoding
from holdfast.model.payload import (
    BYTES_KEY,
    MAX_DEPTH,
    MAX_RESULT,
    PayloadError,
    check_json,
    clean,
    decode_result,
    encode,
    encode_json,
    encode_result,
    is_model,
    json_text,
    payload_digest,
    result_text,
    size_fault,
    updated_payload,
)
from holdfast.model.policy import MEBIBYTE
from holdfast.model.submission import Submission

pytestmark = pytest.mark.req("M-12")


def _nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


def _refused(value: object) -> str:
    with pytest.raises(PayloadError) as caught:
        encode(value)
    return caught.value.code


def _raw(text: str | bytes) -> msgspec.Raw:
    return msgspec.Raw(text if isinstance(text, bytes) else text.encode())


@dataclass
class Address:
    street: str
    number: int | None = None


class Point(msgspec.Struct):
    x: float
    y: float | None = None


class Person:
    """What pydantic's models look like from outside."""

    def __init__(self, **fields: object) -> None:
        self.fields = fields

    @classmethod
    def model_validate(cls, fields: dict[str, object]) -> Person:
        return cls(**fields)

    def model_dump(self, mode: str) -> dict[str, object]:
        assert "json" == mode
        return self.fields


class Colour(Enum):
    RED = "red"


class Shout(str):
    __slots__ = ()


class Metres(float):
    pass


class Count(int):
    pass


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        ({}, "{}"),
        ([], "[]"),
        ("", '""'),
        (0, "0"),
        ({"a": [1, 2.5, True, None, "x"]}, '{"a":[1,2.5,true,null,"x"]}'),
        ((1, 2), "[1,2]"),
        (2**53 + 1, "9007199254740993"),
        (2**64, "18446744073709551616"),
        (-(2**100), "-1267650600228229401496703205376"),
        (1e300, "1e300"),
        ("é☃😀", '"é☃😀"'),
        ("\x01\x1f", '"\\u0001\\u001f"'),
        ("\\u0000", '"\\\\u0000"'),
        ("\\ud800", '"\\\\ud800"'),
        ({"\\u0000": 1}, '{"\\\\u0000":1}'),
        ({1: "a", 2.5: "b"}, '{"1":"a","2.5":"b"}'),
        (Address("Main", 3), '{"street":"Main","number":3}'),
        (Address("Main"), '{"street":"Main","number":null}'),
        (Point(1.0), '{"x":1.0,"y":null}'),
        (datetime(2026, 1, 15, tzinfo=UTC), '"2026-01-15T00:00:00Z"'),
        (timedelta(minutes=5), '"PT300S"'),
        (UUID(int=0), '"00000000-0000-0000-0000-000000000000"'),
        (Decimal("1.50"), '"1.50"'),
        (Colour.RED, '"red"'),
        (Path("/srv/a.txt"), '"/srv/a.txt"'),
        ([PurePosixPath("a"), PureWindowsPath("a/b")], '["a","a\\\\b"]'),
        ({Path("a"): 1}, '{"a":1}'),
        ({"b": b"ab"}, '{"b":"YWI="}'),
        (OrderedDict(z=1, a=2), '{"z":1,"a":2}'),
        (Person(name="Ann", born=None), '{"name":"Ann","born":null}'),
        ([Person(born=date(2000, 1, 2))], '[{"born":"2000-01-02"}]'),
        ([Shout("a"), Metres(2.5), Count(3)], '["a",2.5,3]'),
        ({"a": _raw('{"b": [1, null]}'), "c": None}, '{"a":{"b": [1, null]},"c":null}'),
        ([frozenset({None})], "[[null]]"),
    ],
)
def test_values_become_compact_json(value: object, text: str) -> None:
    assert (text.encode(), Encoding.JSON) == encode(value)


@pytest.mark.parametrize("value", [b"\x00\xff", bytearray(b"ab"), memoryview(b"abc")[1:]])
def test_bytes_stay_as_they_are(value: bytes) -> None:
    assert (bytes(value), Encoding.BYTES) == encode(value)


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (float("nan"), "NOT_FINITE"),
        (float("inf"), "NOT_FINITE"),
        ({"a": [None, {"b": float("-inf")}]}, "NOT_FINITE"),
        (Point(float("nan")), "NOT_FINITE"),
        ([Address("x"), (1, {float("inf")})], "NOT_FINITE"),
        (Person(height=float("nan")), "NOT_FINITE"),
        ([2**70, float("nan")], "NOT_FINITE"),
        ("a\x00b", "INVALID_TEXT"),
        ({"a\x00b": 1}, "INVALID_TEXT"),
        ([{"k": ["\\u0000", "\x00"]}], "INVALID_TEXT"),
        ("\ud800", "INVALID_TEXT"),
        ({"\udfff": 1}, "INVALID_TEXT"),
        (["\ud83d", "\ude00"], "INVALID_TEXT"),
        (Path("a\udcff"), "INVALID_TEXT"),
        (Path("a\x00b"), "INVALID_TEXT"),
        pytest.param(10**4300, "NUMBER_TOO_LONG", id="digits"),
        pytest.param({"a": -(10**4300)}, "NUMBER_TOO_LONG", id="negative"),
        (object(), "NOT_JSON"),
        ({"a": {1, 2}.__iter__}, "NOT_JSON"),
        ({None: 1}, "NOT_JSON"),
        ({(1, 2): 3}, "NOT_JSON"),
        ((n for n in range(3)), "NOT_JSON"),
        ({"a": _raw("not json")}, "NOT_JSON"),
        ({"a": _raw("NaN")}, "NOT_JSON"),
        ([None, _raw("1e400")], "NOT_FINITE"),
    ],
)
def test_values_some_store_would_refuse_or_change_are_refused(value: object, code: str) -> None:
    assert code == _refused(value)


@pytest.mark.parametrize(
    "text",
    [
        ' { "a" : 1 } ',
        "9" * 4300,
        "-" + "9" * 4300,
        "0." + "3" * 5000,
        '"' + "9" * 5000 + '"',
        '{"a": 1, "a": 2}',
        '"\\ud83d\\ude00"',
        '"\\uD83D\\uDE00"',
        '"\\\\u0000"',
        '"\\\\ud800"',
        '"\\u0001"',
        "[" * MAX_DEPTH + "]" * MAX_DEPTH,
        '["' + "[" * 500 + '\\"' + "{" * 500 + '"]',
        "9007199254740993",
        "1e-400",
    ],
    ids=lambda text: text[:20],
)
def test_json_text_is_kept_byte_for_byte(text: str) -> None:
    assert (text.encode(), Encoding.JSON) == encode(_raw(text))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("NaN", "NOT_FINITE"),
        ("[Infinity]", "NOT_FINITE"),
        ("[1.5, NaN]", "NOT_FINITE"),
        ("-Infinity", "NOT_FINITE"),
        ("1e400", "NOT_FINITE"),
        ('{"a": -1e400}', "NOT_FINITE"),
        ("9" * 4301, "NUMBER_TOO_LONG"),
        ("[-" + "9" * 4301 + "]", "NUMBER_TOO_LONG"),
        ('"\\u0000"', "INVALID_TEXT"),
        ('{"\\u0000": 1}', "INVALID_TEXT"),
        ('"\\ud800"', "INVALID_TEXT"),
        ('{"\\udc00": 1}', "INVALID_TEXT"),
        ('"\\ude00\\ud83d"', "INVALID_TEXT"),
        (b'"\xff"', "INVALID_TEXT"),
        (b'"\xed\xa0\x80"', "INVALID_TEXT"),
        ('"a\x00b"', "NOT_JSON"),
        ("\ufeff1", "NOT_JSON"),
        ("", "NOT_JSON"),
        ("{'a': 1}", "NOT_JSON"),
        ("[1,]", "NOT_JSON"),
        ("1 2", "NOT_JSON"),
        ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "TOO_DEEP"),
        ('{"a":' * (MAX_DEPTH + 1) + "1" + "}" * (MAX_DEPTH + 1), "TOO_DEEP"),
        ("[" * 100_000, "TOO_DEEP"),
        ("[]" * 100, "NOT_JSON"),
        ("]" * 100 + "[" * 100, "NOT_JSON"),
    ],
    ids=lambda text: str(text[:20]),
)
def test_json_text_some_store_would_refuse_or_change_is_refused(
    text: str | bytes, code: str
) -> None:
    assert code == _refused(_raw(text))


def test_nesting_is_allowed_to_the_limit_and_not_beyond() -> None:
    assert b"[" * MAX_DEPTH == encode_json(_nested(MAX_DEPTH))[:MAX_DEPTH]
    assert "TOO_DEEP" == _refused(_nested(MAX_DEPTH + 1))
    assert "TOO_DEEP" == _refused([*([None] * 9), _nested(900)])
    assert "TOO_DEEP" == _refused(_nested(100_000))


def test_a_value_that_contains_itself_is_too_deep() -> None:
    knot: list[object] = []
    knot.append(knot)

    assert "TOO_DEEP" == _refused(knot)


def test_width_is_not_depth() -> None:
    wide = [{"a": [n]} for n in range(5000)]

    assert wide == json.loads(encode_json(wide))


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 65 + b'"' + b'\\"' * 500_000,
        b"[" * 500_000,
        b"[]" * 500_000,
        b'["' * 500_000,
        b'"' * 999_999 + b"[" * 65,
        b"9" * 1_000_000,
    ],
    ids=["escaped quotes", "brackets", "pairs", "strings", "quotes", "digits"],
)
def test_no_text_takes_long_to_refuse(text: bytes) -> None:
    began = time.process_time()

    _refused(msgspec.Raw(text))

    assert time.process_time() - began < 1.0


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(
                st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=5
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=30,
)


@given(JSON)
def test_encoded_values_decode_to_the_same_value(value: object) -> None:
    data, encoding = encode(value)

    assert Encoding.JSON is encoding
    assert value == json.loads(data) == msgspec.json.decode(data)
    assert (data, encoding) == encode(msgspec.Raw(data))


@given(JSON)
def test_text_written_by_another_encoder_is_accepted_as_it_is(value: object) -> None:
    data = json.dumps(value, indent=1).encode()

    assert data == encode(msgspec.Raw(data))[0]


@given(st.binary() | st.text().map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_bytes_as_json_text_are_kept_or_refused_with_a_reason(data: bytes) -> None:
    try:
        kept, _ = encode(msgspec.Raw(data))
    except PayloadError as error:
        assert error.code in {"NOT_JSON", "INVALID_TEXT", "NOT_FINITE", "NUMBER_TOO_LONG"}  # noqa: PT017
    else:
        assert data == kept
        check_json(kept)


@pytest.mark.parametrize(
    ("size", "limit", "message"),
    [
        (
            round(12.3 * MEBIBYTE),
            10 * MEBIBYTE,
            "Job payload size 12.3 MB exceeds limit of 10.0 MB",
        ),
        (
            MEBIBYTE + 1,
            MEBIBYTE,
            "Job payload size 1048577 bytes exceeds limit of 1048576 bytes",
        ),
    ],
)
def test_a_payload_above_the_limit_has_the_message_of_the_contract(
    size: int, limit: int, message: str
) -> None:
    assert Fault("payload", "TOO_LARGE", message) == size_fault(size, limit)


@pytest.mark.parametrize("size", [0, MEBIBYTE - 1, MEBIBYTE])
def test_a_payload_up_to_the_limit_is_accepted(size: int) -> None:
    assert size_fault(size, MEBIBYTE) is None


@given(st.text(st.characters()), st.integers(1, 30))
def test_cleaned_text_can_be_stored_anywhere(text: str, limit: int) -> None:
    cleaned = clean(text, limit)

    assert len(cleaned) <= limit
    assert "\x00" not in cleaned
    assert cleaned == cleaned.encode().decode() == clean(cleaned, limit)


def test_clean_text_is_unchanged_and_long_text_shows_that_it_was_cut() -> None:
    assert "plain é☃😀" == clean("plain é☃😀")
    assert "abcd…" == clean("abcdefgh", 5)
    assert "abcde" == clean("abcde", 5)
    assert "a\ufffdb?" == clean("a\x00b\ud800")


@pytest.mark.parametrize("enabled", [True, False])
def test_no_garbage_is_collected_while_large_json_is_decoded(*, enabled: bool) -> None:
    data = b"[" + b"[]," * 200_000 + b"1]"
    seen: list[str] = []

    def note(phase: str, info: dict[str, int]) -> None:
        seen.append(phase)

    (gc.enable if enabled else gc.disable)()
    gc.callbacks.append(note)
    try:
        check_json(data)
        payload_digest(data, Encoding.JSON)
        after = gc.isenabled()
    finally:
        gc.callbacks.remove(note)
        gc.enable()

    assert enabled is after
    assert 4 >= len(seen)  # the first allocations after each may start one


@pytest.mark.parametrize(("items", "is_same"), [(1000, True), (MEBIBYTE, False)])
def test_json_up_to_a_mebibyte_is_compared_by_value(items: int, *, is_same: bool) -> None:
    numbers = b"0," * items + b"0"
    one, other = b'{"a":1,"b":[%s]}' % numbers, b'{"b":[%s], "a":1}' % numbers

    digests = [payload_digest(data, Encoding.JSON) for data in (one, one, other)]

    assert digests[0] == digests[1]
    assert is_same is (digests[0] == digests[2])


def test_large_json_is_compared_without_stopping_other_threads() -> None:
    data = b"[" + b"1.5," * (4 * MEBIBYTE) + b"1]"

    began = time.thread_time()
    payload_digest(data, Encoding.JSON)

    assert time.thread_time() - began < 0.2  # of hashing, without the lock; decoded it took 1 s


def test_a_model_is_recognised_by_its_methods() -> None:
    assert is_model(Person)
    assert not is_model(Address)


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (None, None),
        ({"a": [1]}, b'{"a":[1]}'),
        ("x" * (MAX_RESULT - 2), b'"' + b"x" * (MAX_RESULT - 2) + b'"'),
    ],
    ids=["nothing", "a value", "the longest"],
)
def test_result_is_stored_as_json(value: object, kept: bytes | None) -> None:
    assert kept == encode_result(value)


@pytest.mark.parametrize(
    ("value", "code"),
    [(float("nan"), "RESULT_INVALID"), ("x" * (MAX_RESULT - 1), "RESULT_TOO_LARGE")],
    ids=["no JSON", "too long"],
)
def test_result_that_cannot_be_stored_is_refused_permanently(value: object, code: str) -> None:
    with pytest.raises(PermanentError, match=r"^result ") as caught:
        encode_result(value)

    assert code == caught.value.code


@pytest.mark.req("M-12")
@pytest.mark.parametrize(
    "value", [None, 1, "AP8=", {"a": "AP8="}, b"", b"\x00\xff", bytearray(b"x")]
)
def test_result_comes_back_as_json_or_as_bytes(value: object) -> None:
    expected = bytes(value) if isinstance(value, bytearray) else value

    assert expected == decode_result(encode_result(value))


@pytest.mark.parametrize("data", [b"[1.10, 2]", '"é"'.encode(), b"1e9"])
def test_stored_json_is_sent_on_as_it_is(data: bytes) -> None:
    assert data == msgspec.json.encode(json_text(data)) == msgspec.json.encode(result_text(data))


@pytest.mark.parametrize("data", [b"[1", b'"\xff"', b"x", b""])
def test_stored_text_that_is_not_json_is_not_sent_on(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # of msgspec or of the codec
        json_text(data)


@pytest.mark.parametrize("value", [None, b"", b"\x00\xff"])
def test_stored_bytes_are_decoded_to_be_sent_on(value: object) -> None:
    assert value == result_text(encode_result(value))


@pytest.mark.parametrize("value", [{BYTES_KEY: 1}, {BYTES_KEY: "%"}, {BYTES_KEY: "", "b": 1}])
def test_object_that_only_looks_like_bytes_comes_back_as_it_is(value: object) -> None:
    assert value == decode_result(encode_result(value))


FILL = b'"' + b"a\\n" * 100_000 + b'"'
"""A string longer than a slice; with it the text around it is checked in slices."""


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b"[1,", "NOT_JSON"),
        (b"NaN", "NOT_JSON"),
        (b'"\\ud800"', "NOT_JSON"),
        (b'"\xff"', "INVALID_TEXT"),
        (b'"\\u0000"', "INVALID_TEXT"),
        (b'"\\\\\\u0000"', "INVALID_TEXT"),
        (b"1e999", "NOT_FINITE"),
        (b"-1.5E+309", "NOT_FINITE"),
        (b"9" * 299 + b"e99", "NOT_FINITE"),
        (b"1" * 4301, "NUMBER_TOO_LONG"),
        (b"-" + b"1" * 200_000, "NUMBER_TOO_LONG"),
        (b"[" * 64 + b"]" * 64, "TOO_DEEP"),
        (b"[" * 100_000 + b"]" * 100_000, "TOO_DEEP"),
    ],
)
@pytest.mark.parametrize("before", [b"", b'"\\"",' * 40_000, b"1," * 131_000, b"[[]]," * 60_000])
def test_large_json_is_refused_for_what_small_json_is_refused_for(
    text: bytes, code: str, before: bytes
) -> None:
    data = b"[%s%s,%s]" % (before, FILL, text)

    with pytest.raises(PayloadError) as caught:
        check_json(data)

    assert code == caught.value.code


@pytest.mark.parametrize(
    "text",
    [
        b'"\\\\u0000"',
        b'"\\ud83d\\ude00"',
        '"é"'.encode(),
        b"1e308, 1e-999, true, null",
        b"1" * 4300,
        b"[" * 63 + b"]" * 63,
        b'"' + b"[" * 100_000 + b'"',
        b"0." + b"1" * 200_000,
    ],
)
@pytest.mark.parametrize("before", [b"", b'"\\"",' * 40_000, b"1," * 131_000, b"[[]]," * 60_000])
def test_large_json_is_accepted_as_small_json_is(text: bytes, before: bytes) -> None:
    check_json(b"[%s%s,%s,%s]" % (before, FILL, text, FILL))


def test_large_json_is_checked_without_stopping_other_threads() -> None:
    data = b"[" + b"[]," * (5 << 20) + b"1]"
    pauses, done = [0.0], threading.Event()

    def watch() -> None:
        last = time.perf_counter()
        while not done.wait(0.001):
            now = time.perf_counter()
            pauses.append(now - last)
            last = now

    watcher = threading.Thread(target=watch)
    watcher.start()
    check_json(data)
    done.set()
    watcher.join()

    assert max(pauses) < 0.2  # decoding it takes 0.7 s; the machine may be busy


@pytest.mark.parametrize(
    ("before", "value", "stored"),
    [({"a": 1}, {"step": 2}, b'{"step":2}'), (b"\x00", bytearray(b"\xff"), b"\xff")],
)
def test_updated_payload_has_the_encoding_of_the_job(
    before: object, value: object, stored: bytes
) -> None:
    job = accept(
        Submission(type="t", payload=before), job_id="a", now=datetime(2026, 1, 1, tzinfo=UTC)
    )

    assert stored == updated_payload(job, value)


@pytest.mark.parametrize(
    ("before", "value", "message"),
    [
        ({"a": 1}, b"x", "must be JSON, as it was before"),
        (b"\x00", {"a": 1}, "must be bytes, as it was before"),
        ({"a": 1}, float("nan"), "must not hold NaN or Infinity"),
    ],
)
def test_payload_that_a_job_cannot_have_is_no_update(
    before: object, value: object, message: str
) -> None:
    job = accept(
        Submission(type="t", payload=before), job_id="a", now=datetime(2026, 1, 1, tzinfo=UTC)
    )

    with pytest.raises(ValidationError) as refused:
        updated_payload(job, value)

    assert [("payload", message)] == [(each.field, each.message) for each in refused.value.faults]
