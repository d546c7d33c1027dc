"""Random but directed sequences of calls on the store under test and the reference."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.conformance.conftest import SERVED
from tests.conformance.lockstep import Lockstep
from tests.conformance.stores import NAMES, PLACES

if TYPE_CHECKING:
    from holdfast.runtime.clock import ManualClock
    from holdfast.store import Store

ROUNDS = 8
"""How often the machine may be run, until everything that must happen has happened."""

EXAMPLES = int(os.environ.get("HOLDFAST_TEST_EXAMPLES", "40"))
"""In each round on SQLite; servers are slower, and memory is compared with itself: a quarter."""

MUST_HAPPEN = (
    "amended",
    "claim finds work",
    "deleted",
    "deletion refused",
    "dependency ends around a submission",
    "dependent inherits",
    "dependent runs",
    "dependents learn of an end",
    "heartbeat precedes the reaper",
    "heartbeat returns a cancel request",
    "heartbeat is refused",
    "lock refused",
    "known id comes again",
    "late amendment is refused",
    "late answer counts",
    "lease lapsed",
    "lifetime over",
    "note is refused",
    "operator acts",
    "paused",
    "promoted",
    "pruned",
    "repeated answer",
    "settled",
    "stale spawner is refused",
    "stale write is refused",
    "submission ABORTED",
    "submission ACCEPTED",
    "submission CONFLICT",
    "submission DUPLICATE",
    "submission MISSING",
    "submission finds an ended dependency",
)


def _settings(name: str) -> settings:
    return settings(
        max_examples=EXAMPLES if name == "sqlite" else max(1, EXAMPLES // 4),
        stateful_step_count=50,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", [pytest.param(n, marks=SERVED.get(n, ())) for n in NAMES])
@pytest.mark.req("M-2", "M-3", "M-4", "M-9", "S-3", "S-4", "S-5", "S-6", "S-12", "A-16")
def test_store_and_reference_live_the_same_life(name: str, request: pytest.FixtureRequest) -> None:
    def open_store(places: ExitStack, clock: ManualClock) -> Store:
        return places.enter_context(PLACES[name](request)).open(clock)

    class Machine(Lockstep):
        happened: ClassVar[Counter[str]] = Counter()
        runner = asyncio.Runner()
        exit_stack = ExitStack

    Machine.open_store = staticmethod(open_store)
    missing = list(MUST_HAPPEN)
    with Machine.runner:
        for number in range(ROUNDS):
            run_state_machine_as_test(seed(number)(Machine), settings=_settings(name))
            missing = [what for what in MUST_HAPPEN if not Machine.happened[what]]
            if not missing:
                break

    assert [] == missing, Machine.happened
