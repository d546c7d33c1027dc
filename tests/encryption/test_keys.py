"""The key ring: what encrypts, what decrypts, what is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from holdfast.encryption import KeyRing, encrypted
from holdfast.encryption.envelope import require_decrypted, unwrap
from holdfast.errors import PermanentError, ValidationError
from holdfast.store import MemoryStore, open_store

if TYPE_CHECKING:
    from pathlib import Path


def test_encrypted_data_decrypts_again(ring: KeyRing) -> None:
    ciphertext = ring.encrypt(b'{"iban": "DE00"}', "j1 payload")

    assert b"iban" not in ciphertext
    assert b'{"iban": "DE00"}' == ring.decrypt(ciphertext, "j1 payload")


def test_encrypting_twice_never_gives_the_same_bytes(ring: KeyRing) -> None:
    assert ring.encrypt(b"x", "a") != ring.encrypt(b"x", "a")


def test_envelope_is_json_that_any_language_can_carry(ring: KeyRing) -> None:
    assert {"$sealed", "key", "data"} == set(json.loads(ring.encrypt(b"\x00\xff", "a")))


def test_ciphertext_moved_to_another_job_does_not_decrypt(ring: KeyRing) -> None:
    ciphertext = ring.encrypt(b"x", "j1 payload")

    assert ciphertext == ring.decrypt(ciphertext, "j2 payload")
    assert ciphertext == ring.decrypt(ciphertext, "j1 result")


def test_changed_ciphertext_does_not_decrypt(ring: KeyRing) -> None:
    ciphertext = bytearray(ring.encrypt(b"some text of length", "a"))
    middle = ciphertext.index(b'"data":"') + 30
    ciphertext[middle] = ord("A") if ciphertext[middle] != ord("A") else ord("B")

    assert bytes(ciphertext) == ring.decrypt(bytes(ciphertext), "a")


def test_new_key_encrypts_and_old_keys_still_decrypt() -> None:
    old, new = KeyRing.generate("2026-01"), KeyRing.generate("2026-07")
    before = KeyRing.parse(old).encrypt(b"x", "a")
    ring = KeyRing.parse(f"{new},{old}")

    ciphertext = ring.encrypt(b"x", "a")

    assert "2026-07" == unwrap(ciphertext)[0]
    assert b"x" == ring.decrypt(before, "a")
    assert before == KeyRing.parse(new).decrypt(before, "a")


def test_digest_stays_the_same_when_newer_keys_are_added() -> None:
    old, new = KeyRing.generate("2026-01"), KeyRing.generate("2026-07")

    digests = [KeyRing.parse(keys).digest("xyz") for keys in (old, f"{old} {new}", f"{new},{old}")]

    assert 1 == len(set(digests))
    assert "xyz" not in digests[0]
    assert "" == KeyRing.parse(old).digest("")


def test_data_still_encrypted_is_refused_with_the_name_of_its_key(ring: KeyRing) -> None:
    with pytest.raises(
        PermanentError, match=r"payload is encrypted with key 'k1'.*key ring"
    ) as caught:
        require_decrypted(ring.encrypt(b"x", "a"), "payload")

    assert "KEY_MISSING" == caught.value.code
    require_decrypted(b'{"key": "k1"}', "payload")
    require_decrypted(None, "payload")


@pytest.mark.parametrize(
    "text", ["", "k1", "k1:abc", "k1:!!", "k 1:", "a/b:" + "A" * 43 + "=", ":" + "A" * 43 + "="]
)
def test_invalid_keys_are_refused_without_being_shown(text: str) -> None:
    with pytest.raises(ValidationError) as caught:
        KeyRing.parse(text)

    assert "AAAA" not in str(caught.value)


def test_two_keys_with_one_id_are_refused() -> None:
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


def test_repr_shows_ids_only(ring: KeyRing) -> None:
    assert "KeyRing(k1)" == repr(ring)


def test_keys_come_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert KeyRing.from_environment() is None
    file = tmp_path / "keys"
    file.write_text(KeyRing.generate("from-file"))
    file.chmod(0o600)
    monkeypatch.setenv("HOLDFAST_ENCRYPTION_KEYS_FILE", str(file))
    assert ("from-file",) == KeyRing.from_environment().ids

    monkeypatch.setenv("HOLDFAST_ENCRYPTION_KEYS", KeyRing.generate("direct"))

    assert ("direct",) == KeyRing.from_environment().ids


def test_encrypted_store_has_the_capabilities_of_the_store_behind_it(
    ring: KeyRing, tmp_path: Path
) -> None:
    behind = open_store(f"sqlite:///{tmp_path}/jobs.db")

    assert behind.capabilities.groups_commits
    expected = replace(behind.capabilities, encrypts=True)
    assert expected == encrypted(behind, ring).capabilities
    assert not encrypted(MemoryStore(), ring).capabilities.groups_commits
