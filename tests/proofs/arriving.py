"""A model of submission: racing idempotency keys, and dependencies that end meanwhile.

Two clients submit under one key, and a third uses the same key for another type. Replies get
lost and submissions are repeated. A parent runs and ends at any moment of its child's
submission. The rules are those of the reference store.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from holdfast.model import lifecycle
from holdfast.model.acceptance import accept
from holdfast.model.dependencies import verdict
from holdfast.model.job import TERMINAL, Failure, FailureCategory, Job, State
from holdfast.model.submission import Parent, Submission
from holdfast.store import Added, AddStatus
from holdfast.store.memory.tables import AddPlan, Tables, is_verdict_due
from tests.proofs import walking

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.proofs.walking import Walk

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CLIENTS = ("a", "b", "other")
TYPES = {"a": "mail", "b": "mail", "other": "bill"}
PERMANENT = Failure(category=FailureCategory.PERMANENT, message="")


def _judged(tables: Tables, job: Job) -> Added:
    return AddPlan(tables, NOW).judge(job)


@dataclass(frozen=True)
class Rules:
    """The rules that submission depends on; each mutant breaks one of them."""

    judge: Callable[[Tables, Job], Added] = _judged
    judged_and_written_at_once: bool = True
    linked_at_once: bool = True
    """Whether the dependency is read in the transaction that writes its dependent."""
    told_at_once: bool = True
    """Whether dependents are notified in the transaction that ends their dependency."""
    swept: bool = True
    """Whether a sweep looks for dependents, or only the process that ended the dependency."""
    has_dependents: Callable[[Job, dict[str, State | None]], bool] = is_verdict_due
    scope: Callable[[str], str] = lambda client: TYPES[client]


class World(msgspec.Struct, frozen=True):
    """One state of the model."""

    parent: Job
    child: Job | None = None
    edge: State | None = None
    """The end of the parent, as recorded with the child."""
    seen: State | None = None
    """The parent's state as read before the child is written."""
    news: bool = False
    """Whether dependents are still to be notified of the parent's end."""
    stored: tuple[str, ...] = ()
    """Clients whose job is stored."""
    looked: tuple[str, ...] = ()
    """Clients whose job was checked, but is not written."""
    told: tuple[tuple[str, str], ...] = ()
    """The responses to clients: their own id, the id of another, or a refusal."""
    wrong: str = ""

    @property
    def key(self) -> object:
        child = self.child and self.child.state
        told = tuple(sorted(self.told))
        keys = (tuple(sorted(self.stored)), tuple(sorted(self.looked)), told)
        return (self.parent.state, child, self.edge, self.seen, self.news, keys)

    @property
    def is_end(self) -> bool:
        answered = len(self.told) == len(CLIENTS)
        over = self.parent.state in TERMINAL
        return (
            answered and over and self.child is not None and self.child.state is not State.PENDING
        )


def walk(rules: Rules) -> Walk:
    """Visit every state under these rules."""
    parent = accept(Submission(type="parent"), job_id="parent", now=NOW)
    return walking.walk(World(replace(parent, trail=())), lambda world: _moves(world, rules))


def _moves(world: World, rules: Rules) -> Iterator[tuple[str, World]]:
    yield from _parent(world, rules)
    yield from _child(world, rules)
    for client in CLIENTS:
        for name, after in _client(world, client, rules):
            yield name, replace(after, wrong=_wrong(after))


def _parent(world: World, rules: Rules) -> Iterator[tuple[str, World]]:
    job = world.parent
    if job.state is State.SCHEDULED:
        running = lifecycle.claimed(job, token="t", worker="w", now=NOW)
        yield "the parent is claimed", replace(world, parent=running)
    if job.state is State.RUNNING:
        for ended in (
            lifecycle.completed(job, None, now=NOW),
            lifecycle.after_failure(job, PERMANENT, now=NOW),
        ):
            known = ended.state if world.child is not None and rules.told_at_once else world.edge
            after = replace(world, parent=ended, edge=known, news=True)
            yield f"the parent is {ended.state}", after
    if world.news:
        if not rules.told_at_once and world.child is not None:
            yield "dependents are told", replace(world, edge=job.state, news=False)
        yield "who ended the parent dies", replace(world, news=False)


def _child(world: World, rules: Rules) -> Iterator[tuple[str, World]]:
    state = world.parent.state
    if world.child is None:
        if rules.linked_at_once:
            yield "the child is written", _linked(world, state)
        elif world.seen is None:
            yield "the parent is looked at", replace(world, seen=state)
        else:
            yield "the child is written", _linked(world, world.seen)
    elif world.child.state is State.PENDING and (rules.swept or world.news):
        yield from _judged_child(world, world.child, rules)


def _judged_child(world: World, child: Job, rules: Rules) -> Iterator[tuple[str, World]]:
    if not rules.has_dependents(child, {"parent": world.edge}):
        return
    state = world.parent.state
    decision = verdict(child.dependency_kind, [("parent", world.edge or state)])
    child = lifecycle.dependency_ended(child, decision, now=NOW)
    early = child.state is State.SCHEDULED and state is not State.COMPLETED
    wrong = f"the child starts while its dependency is {state}" if early else ""
    yield "the child is judged", replace(world, child=child, wrong=wrong)


def _linked(world: World, state: State) -> World:
    asked = Submission(type="child", depends_on=["parent"])
    child = accept(asked, job_id="child", now=NOW, parents={"parent": Parent(2, 0)})
    edge = state if state in TERMINAL else None
    return replace(world, child=replace(child, trail=()), edge=edge, seen=None)


def _client(world: World, client: str, rules: Rules) -> Iterator[tuple[str, World]]:
    if any(name == client for name, _ in world.told):
        return
    if client in world.looked:
        written = replace(
            world,
            stored=(*world.stored, client),
            looked=tuple(c for c in world.looked if c != client),
        )
        yield from _replies(written, client, client)
        return
    answer = rules.judge(_tables(world, rules), _keyed(client, rules))
    fresh = answer.status is AddStatus.ACCEPTED and client not in world.stored
    if fresh and not rules.judged_and_written_at_once:
        yield f"{client} is judged", replace(world, looked=(*world.looked, client))
    elif fresh:
        yield from _replies(replace(world, stored=(*world.stored, client)), client, client)
    elif answer.status in (AddStatus.ACCEPTED, AddStatus.DUPLICATE):
        yield from _replies(world, client, answer.job_id)
    else:
        yield from _replies(world, client, f"refused: {answer.status}")


def _replies(world: World, client: str, said: str) -> Iterator[tuple[str, World]]:
    yield f"{client} is answered {said}", replace(world, told=(*world.told, (client, said)))
    yield f"the answer to {client} is lost", world


def _keyed(client: str, rules: Rules) -> Job:
    asked = Submission(type=TYPES[client], idempotency_key="k")
    job = accept(asked, job_id=client, now=NOW)
    assert job.dedupe is not None
    return replace(job, dedupe=replace(job.dedupe, scope=rules.scope(client)))


def _tables(world: World, rules: Rules) -> Tables:
    tables = Tables()
    for client in world.stored:
        job = _keyed(client, rules)
        assert job.dedupe is not None
        tables.jobs[job.id] = job
        tables.keys.setdefault((job.dedupe.scope, job.dedupe.key), (job.dedupe, job.id))
    return tables


def _wrong(world: World) -> str:
    mails = [client for client in world.stored if TYPES[client] == "mail"]
    if len(mails) > 1:
        return "two jobs for one key"
    for client, said in world.told:
        if said.startswith("refused"):
            return f"{client} was refused for its own key"
        if said not in world.stored or TYPES[said] != TYPES[client]:
            return f"{client} was given the job of {said}"
    return ""
