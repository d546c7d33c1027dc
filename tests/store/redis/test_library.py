"""The frequent verbs are functions that the store loads into the server, again if need be."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest
from redis.asyncio import Redis

from holdfast.errors import StoreError
from holdfast.model import lifecycle
from holdfast.model.job import State
from holdfast.store import Change
from holdfast.store.redis import RedisStore
from holdfast.store.redis.scripts import library
from tests.servers import Valkey
from tests.store.redis.refusing import RefusingServer
from tests.wire.side import Side

pytestmark = pytest.mark.redis


def opened(server: Valkey) -> RedisStore:
    return RedisStore.from_url(f"{server.url}?prefix=f{uuid.uuid4().hex[:10]}")


async def calls(raw: Redis) -> set[str]:
    """Return which commands the server ran since its statistics were reset."""
    return {name.removeprefix("cmdstat_") for name in await raw.info("commandstats")}


async def test_job_uses_functions_from_submission_to_end() -> None:
    with Valkey() as server:
        async with opened(server) as store, Redis(port=server.port) as raw:
            side = Side(store)
            await side.add("t")
            await raw.config_resetstat()

            await side.add("t")
            for taken in await side.claim(2):
                ended = lifecycle.completed(taken, b"1", now=store.now())
                assert (await store.swap([Change(taken, ended)]))[0].written

            assert "fcall" in await calls(raw)
            assert "evalsha" not in await calls(raw)


async def test_server_that_lost_the_functions_gets_them_again() -> None:
    with Valkey() as server:
        async with opened(server) as store, Redis(port=server.port) as raw:
            side = Side(store)
            await side.add("t")
            await raw.function_flush("SYNC")

            await side.add("t")

            assert 2 == len(await side.claim(2))
            assert 1 == len(await raw.function_list(library().functions["add"][:-4]))


@pytest.mark.parametrize("place", ["created", "events"])
async def test_failed_call_leaves_no_state_to_the_next(valkey_server: Valkey, place: str) -> None:
    async with opened(valkey_server) as store, Redis(port=valkey_server.port) as raw:
        side = Side(store)
        key = f"{store.session.settings.prefix}:hf:{place}"
        await raw.set(key, "of another kind")
        with pytest.raises(StoreError, match="WRONGTYPE"):
            await side.add("broken")
        await raw.delete(key)

        job = await side.add("t")

        assert [job.id] == [taken.id for taken in await side.claim(5) if taken.type == "t"]
        page = await store.events(None, 100, timedelta(0))
        assert {"t"} == {event.type for event in page.events}


NO_FUNCTIONS = {
    "dragonfly": {"FCALL": "ERR unknown command `FCALL`", "FUNCTION": "ERR Unknown subcommand"},
    "garnet": {"FCALL": "ERR unknown command", "FUNCTION": "ERR unknown command"},
    "no right to load": {"FUNCTION": "NOPERM No permissions to access a key"},
    "unsupported": {"FCALL": "ERR this server has no functions"},
}


@pytest.mark.parametrize("product", NO_FUNCTIONS)
async def test_server_without_functions_runs_scripts_whatever_its_wording(product: str) -> None:
    with Valkey() as server:
        async with (
            RefusingServer(server.port, NO_FUNCTIONS[product]) as refusing,
            RedisStore.from_url(f"{refusing.url}?prefix=f") as store,
        ):
            side = Side(store)
            job = await side.add("t")
            (taken,) = await side.claim()
            done = await side.complete(taken)

    assert (job.id, State.COMPLETED) == (done.id, done.state)
    assert refusing.refused in (["FCALL"], ["FUNCTION"])


async def test_error_of_the_first_verb_itself_does_not_turn_functions_off() -> None:
    with Valkey() as server:
        async with opened(server) as store, Redis(port=server.port) as raw:
            key = f"{store.session.settings.prefix}:hf:created"
            await raw.set(key, "of another kind")
            with pytest.raises(StoreError, match="WRONGTYPE"):
                await Side(store).add("broken")
            await raw.delete(key)
            await raw.config_resetstat()

            await Side(store).add("t")

            assert "fcall" in await calls(raw)
