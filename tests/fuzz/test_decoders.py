"""No decoder raises an error that it does not document, for any input."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast import config
from holdfast.errors import StoreError, ValidationError
from holdfast.store import open_store
from holdfast.store.cursors import read_cursor, write_cursor
from holdfast.store.redis import bullmq
from holdfast.tasks.schedule import MissedRuns, cron_entry
from tests.fuzz.targets import SEEDS, TARGETS

EXAMPLES = 150


def _inputs(name: str) -> st.SearchStrategy[bytes]:
    """Return seeds with one piece replaced, or any bytes."""
    seeds = SEEDS.get(name, (b"a",))

    def mutated(seed: bytes, position: int, length: int, piece: bytes) -> bytes:
        at = position % (len(seed) + 1)
        return seed[:at] + piece + seed[at + length :]

    pieces = st.binary(max_size=6) | st.sampled_from(
        [b"\x00", b"\xed\xa0\x80", b"9" * 30, b"1e400", b"NaN", b'"', b"[" * 100, b"-", b"%", b"\n"]
    )
    positions = st.integers(0, 200), st.integers(0, 8)
    return st.binary(max_size=80) | st.builds(mutated, st.sampled_from(seeds), *positions, pieces)


@pytest.mark.req("A-3")
@pytest.mark.parametrize("name", TARGETS)
def test_decoder_raises_nothing_but_its_own_errors(name: str) -> None:
    @settings(max_examples=EXAMPLES, database=None)
    @given(_inputs(name))
    @example(b"")
    def check(data: bytes) -> None:
        TARGETS[name](data)

    for seed in SEEDS.get(name, ()):
        TARGETS[name](seed)
    check()


def test_every_seed_belongs_to_a_decoder() -> None:
    assert set(SEEDS) <= set(TARGETS)


@pytest.mark.parametrize("position", [2**63, -(2**63) - 1, 10**19 - 1])
def test_cursor_beyond_the_range_of_a_store_is_refused(position: int) -> None:
    with pytest.raises(ValidationError, match="cursor"):
        read_cursor(write_cursor("CREATED_ASC", position), "CREATED_ASC")


@pytest.mark.parametrize(
    "url",
    [
        "redis://:secret@[",
        "postgresql://u:secret@h\u2100/d",
        "redis://secret/0?timeout=" + "9" * 30,
        "sqlite:///secret?events_kept=" + "9" * 5000,
        "postgresql://secret/d?pool=" + "9" * 5000,
        "sqlite:///a%00secret",
    ],
)
def test_malformed_url_is_a_store_error(url: str) -> None:
    with pytest.raises(StoreError) as caught:
        open_store(url)

    assert "secret@" not in str(caught.value)


def test_folder_of_time_zones_is_refused() -> None:
    with pytest.raises(ValidationError, match="tz must be a known time zone"):
        cron_entry("n", "t", "@daily", "Europe", MissedRuns.ONE, None, {})


@pytest.mark.parametrize("delay", [1e308, 10**400, -5, float("nan")])
def test_delay_of_a_bullmq_job_is_clamped(delay: float) -> None:
    found = bullmq.backoff({"type": "fixed", "delay": delay})

    assert timedelta(0) <= found.delay(1) <= timedelta(days=36_525)


@pytest.mark.parametrize("text", [b"url = \xff", b"url = " + b"[" * 5000])
def test_unreadable_configuration_file_is_a_validation_error(tmp_path: Path, text: bytes) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_bytes(text)

    with pytest.raises(ValidationError, match="cannot be read"):
        config.load(environment={}, path=str(file))
