"""A process that has not the keys of its store: it finds out when it starts, not job by job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast
from holdfast.encryption import KeyRing, require_keys
from holdfast.errors import StoreError
from holdfast.model.job import State
from holdfast.worker import Worker
from tests.cli.conftest import Place as Folder
from tests.cli.conftest import place as folder

if TYPE_CHECKING:
    from tests.conformance.stores import Place

__all__ = ["folder"]

OLD, NEW = KeyRing.generate("2026-01"), KeyRing.generate("2026-07")
SEALED = {"$sealed": "v1", "key": "2026-01", "data": "AAAA"}
ADVICE = "set $HOLDFAST_ENCRYPTION_KEYS or $HOLDFAST_ENCRYPTION_KEYS_FILE"


async def _starts(place: Place, keys: str) -> None:
    async with Holdfast(store=place.open(), keys=KeyRing.parse(keys)) as app:
        await require_keys(app.store)


@pytest.mark.parametrize(
    "keys", [None, NEW, KeyRing.generate("2026-01")], ids=["no key", "other key", "same name"]
)
async def test_worker_without_the_key_claims_nothing_and_ends(
    shared_place: Place, keys: str | None
) -> None:
    async with Holdfast(shared_place.url, keys=KeyRing.parse(OLD)) as app:
        job = await app.submit("greet", "x")
        other = Holdfast(shared_place.url, keys=keys and KeyRing.parse(keys))
        other.task("greet")(_unreached)

        with pytest.raises(StoreError, match="encrypted with key '2026-01'") as caught:
            await Worker(other).run(burst=True)

        assert ADVICE in str(caught.value)
        assert State.SCHEDULED is (await app.get(job.job_id)).state


async def _unreached(payload: str) -> None:
    raise AssertionError(f"ran with {payload!r}")


async def test_payload_that_looks_encrypted_stops_no_worker(place: Place) -> None:
    app = Holdfast(store=place.open())
    async with app:
        await app.submit("greet", SEALED)

        await require_keys(app.store)


async def test_keys_are_rotated_and_the_old_one_is_removed(place: Place) -> None:
    for keys in (OLD, f"{OLD},{NEW}", f"{NEW},{OLD}", f"{OLD},{NEW}", NEW):
        await _starts(place, keys)

    with pytest.raises(StoreError, match="encrypted with key '2026-07'"):
        await _starts(place, OLD)


@pytest.mark.slow
@pytest.mark.parametrize("how", [(), ("--no-supervisor",), ("--processes", "2")])
def test_worker_command_names_what_to_set(folder: Folder, how: tuple[str, ...]) -> None:
    folder.process("submit", "greet", '"x"', HOLDFAST_ENCRYPTION_KEYS=OLD)

    ended = folder.process("worker", "jobs_here", "--burst", *how)

    assert 3 == ended.returncode
    assert ADVICE in ended.stderr
    assert "Traceback" not in ended.stderr


def test_commands_that_need_contents_name_what_to_set(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_ENCRYPTION_KEYS", OLD)
    job = folder.submit("greet", '"x"')
    monkeypatch.delenv("HOLDFAST_ENCRYPTION_KEYS")

    for command in (
        ("job", job, "--payload"),
        ("job", job, "--logs"),
        ("job", job, "--failure"),
        ("submit", "greet", '"y"'),
    ):
        ended = folder.run(*command)
        assert 3 == ended.exit_code, command
        assert ADVICE in ended.stderr
    assert 0 == folder.run("job", job).exit_code
    assert 1 == len(folder.json("jobs")["jobs"])
