"""The key ring: what seals, what opens, what is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from holdfast.encryption import KeyRing, sealed
from holdfast.encryption.envelope import must_be_open, unwrap
from holdfast.errors import PermanentError, ValidationError
from holdfast.store import GroupCommitStore, MemoryStore, open_store

if TYPE_CHECKING:
    from pathlib import Path


def test_what_is_sealed_opens_again(ring: KeyRing) -> None:
    sealed = ring.seal(b'{"iban": "DE00"}', "j1 payload")

    assert b"iban" not in sealed
    assert b'{"iban": "DE00"}' == ring.open(sealed, "j1 payload")


def test_sealing_twice_never_gives_the_same_bytes(ring: KeyRing) -> None:
    assert ring.seal(b"x", "a") != ring.seal(b"x", "a")


def test_envelope_is_json_that_any_language_can_carry(ring: KeyRing) -> None:
    assert {"$sealed", "key", "data"} == set(json.loads(ring.seal(b"\x00\xff", "a")))


def test_what_was_moved_to_another_job_does_not_open(ring: KeyRing) -> None:
    sealed = ring.seal(b"x", "j1 payload")

    assert sealed == ring.open(sealed, "j2 payload")
    assert sealed == ring.open(sealed, "j1 result")


def test_a_changed_byte_is_noticed(ring: KeyRing) -> None:
    sealed = bytearray(ring.seal(b"some text of length", "a"))
    middle = sealed.index(b'"data":"') + 30
    sealed[middle] = ord("A") if sealed[middle] != ord("A") else ord("B")

    assert bytes(sealed) == ring.open(bytes(sealed), "a")


def test_new_key_seals_and_old_keys_still_open() -> None:
    old, new = KeyRing.generate("2026-01"), KeyRing.generate("2026-07")
    before = KeyRing.parse(old).seal(b"x", "a")
    ring = KeyRing.parse(f"{new},{old}")

    sealed = ring.seal(b"x", "a")

    assert "2026-07" == unwrap(sealed)[0]
    assert b"x" == ring.open(before, "a")
    assert before == KeyRing.parse(new).open(before, "a")


def test_digest_stays_the_same_while_newer_keys_come() -> None:
    old, new = KeyRing.generate("2026-01"), KeyRing.generate("2026-07")

    digests = [KeyRing.parse(keys).digest("abc") for keys in (old, f"{old} {new}", f"{new},{old}")]

    assert 1 == len(set(digests))
    assert "abc" not in digests[0]
    assert "" == KeyRing.parse(old).digest("")


def test_what_is_still_sealed_is_refused_by_the_name_of_its_key(ring: KeyRing) -> None:
    with pytest.raises(PermanentError, match=r"payload is sealed with key 'k1'.*key ring") as told:
        must_be_open(ring.seal(b"x", "a"), "payload")

    assert "KEY_MISSING" == told.value.code
    must_be_open(b'{"key": "k1"}', "payload")
    must_be_open(None, "payload")


@pytest.mark.parametrize(
    "text", ["", "k1", "k1:abc", "k1:!!", "k 1:", "a/b:" + "A" * 43 + "=", ":" + "A" * 43 + "="]
)
def test_keys_that_are_none_are_refused_without_being_shown(text: str) -> None:
    with pytest.raises(ValidationError) as told:
        KeyRing.parse(text)

    assert "AAAA" not in str(told.value)


def test_two_keys_of_one_name_are_refused() -> None:
    with pytest.raises(ValidationError, match="once"):
        KeyRing.parse(f"{KeyRing.generate('a')} {KeyRing.generate('a')}")


def test_keys_file_must_be_private(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"# made in November\n{KeyRing.generate('b')}\n{KeyRing.generate('a')} # old\n")
    file.chmod(0o640)

    with pytest.raises(ValidationError, match="chmod 600"):
        KeyRing.from_file(file)

    file.chmod(0o600)
    assert ("b", "a") == KeyRing.from_file(file).ids


def test_ring_shows_names_only(ring: KeyRing) -> None:
    assert "KeyRing(k1)" == repr(ring)


def test_environment_names_the_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert KeyRing.from_environment() is None
    file = tmp_path / "keys"
    file.write_text(KeyRing.generate("from-file"))
    file.chmod(0o600)
    monkeypatch.setenv("HOLDFAST_ENCRYPTION_KEYS_FILE", str(file))
    assert ("from-file",) == KeyRing.from_environment().ids

    monkeypatch.setenv("HOLDFAST_ENCRYPTION_KEYS", KeyRing.generate("direct"))

    assert ("direct",) == KeyRing.from_environment().ids


def test_sealed_store_groups_commits_where_the_store_behind_it_does(
    ring: KeyRing, tmp_path: Path
) -> None:
    behind = open_store(f"sqlite:///{tmp_path}/jobs.db")

    assert isinstance(sealed(behind, ring), GroupCommitStore)
    assert not isinstance(sealed(MemoryStore(), ring), GroupCommitStore)
