"""The rules of random runs on a store and the reference in lockstep.

They are directed: chance alone hardly ever lands on the instant a lease ends, answers under
a lease that was lost, or submits a key again. ``happened`` counts what did occur.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, initialize, multiple, rule
from msgspec.structs import replace

from holdfast.errors import IllegalTransitionError
from holdfast.model import lifecycle
from holdfast.model.amendment import POSTPONABLE
from holdfast.model.dependencies import verdict
from holdfast.model.job import TERMINAL, Job, LogLine, Progress, State
from holdfast.model.policy import Retention
from holdfast.model.submission import Spawner
from holdfast.store import AddStatus, Change, Claim, Fence, JobNote, LimitRule
from tests.conformance.decisions import DECISIONS
from tests.conformance.hand import MANY, TICK, fence, make
from tests.conformance.pair import QUEUES, Pair

KEYS = ("k1", "k2", "k3")
SHORT = timedelta(seconds=20)
AFTER_A_CLAIM = [
    "complete", "fail", "fail_busy", "refuse", "time_out", "give_back", "cancel", "stop", "lapse",
]  # fmt: skip
ANY_TIME = ["cancel", "cancel_by_force", "reopen", "reopen_reset", "reopen_later", "release"]

WAITING = (State.DELAYED, State.RETRYING)

anyone = st.integers(min_value=0, max_value=999)


class Lockstep(Pair):
    """Every possible call, with a bundle of claims that become stale."""

    claims = Bundle("claims")

    # --- submitting ------------------------------------------------------------------------

    @initialize(target=claims)
    def begin(self) -> object:
        for queue, delay, key, fields in (
            ("a", 0, None, {}),
            ("b", 0, "k1", {}),
            ("a", 5, None, {"max_attempts": 1}),
            ("b", 0, None, {"hold": True, "lifetime": 60}),
            ("a", 0, None, {"limit_key": "x"}),
        ):
            self.submit(
                queue=queue, priority=2, delay=delay, key=key, parents=[], fields=dict(fields)
            )
        return self.claim(limit=2, queues=QUEUES)

    @rule(
        queue=st.sampled_from(QUEUES),
        priority=st.integers(0, 4),
        delay=st.sampled_from([0, 0, 0, 5]),
        key=st.sampled_from([None, None, *KEYS]),
        parents=st.lists(anyone, max_size=2),
        fields=st.fixed_dictionaries(
            {},
            optional={
                "hold": st.just(True),
                "max_attempts": st.just(1),
                "lifetime": st.just(60),
                "limit_key": st.sampled_from("xy"),
                "payload": st.sampled_from([1, 2]),
                "dependency_type": st.sampled_from(["AFTER_ANY", "AFTER_ALL", "CHAIN", "FAN_IN"]),
            },
        ),
    )
    def submit(
        self,
        queue: str,
        priority: int,
        delay: int,
        key: str | None,
        parents: list[int],
        fields: dict[str, object],
    ) -> None:
        after = [job for n in parents if (job := self.someone(n)) is not None]
        job = self._make(
            queue=queue,
            priority=priority,
            delay=delay or None,
            after=list({job.id: job for job in after}.values()),
            idempotency_key=key,
            idempotency_window=SHORT,
            **{"payload": 1, **fields},
        )
        self._add([job])

    def _make(self, **fields: object) -> Job:
        label = f"j{len(self.labels)}"
        fields.setdefault("type", "t")
        job = make(label, now=self.clock.now(), backoff={"initial_delay": 1}, lease=10, **fields)
        self.labels[job.id] = label
        return job

    def _add(self, jobs: list[Job], fence: Fence | None = None, *, atomic: bool = True) -> None:
        answers = self.both(lambda store: store.add(jobs, fence=fence, atomic=atomic))
        if isinstance(answers, str):
            self.saw("stale spawner is refused")
            return
        assert isinstance(answers, list)
        for job, answer in zip(jobs, answers, strict=True):
            self.saw(f"submission {answer.status}")
            self.saw("submission finds an ended dependency", when=answer.has_dependents)
            if answer.status is AddStatus.ACCEPTED:
                self.jobs.append(job)
                self.remember(job)

    @rule(who=anyone)
    def submit_again(self, who: int) -> None:
        if self.jobs:
            job = self.jobs[who % len(self.jobs)]
            self.saw("known id comes again", when=self.current(job) is not None)
            self._add([job])

    @rule(who=anyone, payload=st.sampled_from([1, 2]), atomic=st.booleans())
    def submit_a_known_key_with_a_child(self, who: int, payload: int, *, atomic: bool) -> None:
        keyed = [job for job in self.jobs if job.idempotency_key]
        if keyed:
            key = keyed[who % len(keyed)].idempotency_key
            twin = self._make(
                queue="a", idempotency_key=key, idempotency_window=SHORT, payload=payload
            )
            bystander, child = self._make(queue="b"), self._make(queue="b", after=[twin])
            self._add([bystander, twin, child], atomic=atomic)

    @rule(
        claim=claims,
        first=st.booleans(),
        kind=st.sampled_from(["AFTER", "AFTER_ANY", "AFTER_ALL", "FAN_IN"]),
        end=st.sampled_from(["complete", "refuse", "stop"]),
    )
    def depend_on_a_job_as_it_ends(self, claim: Job, kind: str, end: str, *, first: bool) -> None:
        parent = self.current(claim)
        if parent is None or parent.state is not State.RUNNING:
            return
        child = self._make(queue="a", after=[parent], dependency_type=kind)
        ending = Change(parent, DECISIONS[end](parent, self.clock.now()))
        if first:
            self.swap(ending)
        self._add([child])
        if not first:
            self.swap(ending)
        self.saw("dependency ends around a submission")
        self.judge()

    @rule(claim=claims, keys=st.sampled_from([["p1"], ["p2", "p3"]]))
    def spawn(self, claim: Job, keys: list[str]) -> None:
        children = [self._make(queue="b", spawner=Spawner(claim.id, key)) for key in keys]
        self._add(children, fence(claim), atomic=False)

    # --- working ---------------------------------------------------------------------------

    @rule(
        target=claims,
        limit=st.integers(1, 3),
        queues=st.sampled_from([QUEUES, QUEUES[::-1], ("a",), ("b",)]),
    )
    def claim(self, limit: int, queues: tuple[str, ...]) -> object:
        self.tokens += 1
        want = Claim(queues=queues, limit=limit, worker="w", token=f"token {self.tokens}")
        taken = self.both(lambda store: store.claim(want))
        assert isinstance(taken, list)
        self.saw("claim finds work", when=bool(taken))
        for job in taken:
            self.remember(job)
        return multiple(*taken)

    @rule(claim=claims, decision=st.sampled_from(AFTER_A_CLAIM))
    def settle(self, claim: Job, decision: str) -> None:
        """Settle with the job as it was claimed, often long ago."""
        decided = DECISIONS[decision](claim, self.clock.now())
        (answer,) = self.swap(Change(claim, decided))
        self.saw("settled", when=answer.written)
        self.saw("stale write is refused", when=not answer.written)

    @rule(claim=claims)
    def complete_twice(self, claim: Job) -> None:
        """The reply to the first settlement was lost, so it is repeated."""
        change = Change(claim, DECISIONS["complete"](claim, self.clock.now()))
        first, again = (self.swap(change)[0] for _ in range(2))
        assert not again.written
        if first.written:
            assert again.job is not None
            assert lifecycle.has_answered(again.job, fence(claim).token)
            self.saw("repeated answer")

    @rule(claim=claims)
    def answer_late(self, claim: Job) -> None:
        assert claim.lease is not None
        stored = self.current(claim)
        if stored is None or not lifecycle.may_answer(stored, claim.lease.token):
            return
        if stored.state is State.RUNNING:
            after = DECISIONS["complete"](stored, self.clock.now())
        else:
            after = DECISIONS["answer_late"](stored, self.clock.now())
            self.saw("late answer counts")
        (answer,) = self.swap(Change(stored, after))
        assert answer.written

    @rule(claim=claims, other=claims)
    def extend(self, claim: Job, other: Job) -> None:
        renewals = self.both(lambda store: store.extend([fence(claim), fence(other)]))
        assert isinstance(renewals, list)
        for renewal in renewals:
            self.saw("heartbeat is refused", when=not renewal.held)
            self.saw("heartbeat returns a cancel request", when=renewal.cancel is not None)
            self.instants += [renewal.until] if renewal.until else []

    @rule(claim=claims)
    def note(self, claim: Job) -> None:
        now = self.clock.now()
        notes = [
            JobNote(fence=fence(claim), progress=Progress(7, "p", now), checkpoint=b"c"),
            JobNote(fence=fence(claim), log=LogLine(now, "info", "line", claim.attempt)),
            JobNote(fence=fence(claim), payload=b'{"step":2}'),
        ]
        kept = self.both(lambda store: store.note(notes))
        self.saw("note is refused", when=kept == [False, False, False])

    @rule(who=anyone, decision=st.sampled_from(ANY_TIME))
    def operate(self, who: int, decision: str) -> None:
        """Change any job for which the decision is possible."""
        possible = []
        for job in self.stored():
            with suppress(IllegalTransitionError):
                after = DECISIONS[decision](job, self.clock.now())
                possible += [] if after is job else [Change(job, after)]
        if possible:
            self.swap(possible[who % len(possible)])
            self.saw("operator acts")

    @rule(
        who=anyone,
        priority=st.integers(0, 4),
        tag=st.sampled_from("xy"),
        due=st.sampled_from([None, -60, 0, 1, 3600]),
        stale=st.booleans(),
    )
    def amend(self, who: int, priority: int, tag: str, due: int | None, *, stale: bool) -> None:
        """Change the metadata of any job, sometimes decided on an older one."""
        job = self.someone(who)
        if job is not None:
            before = replace(job, revision=job.revision - stale)
            after = replace(
                before, revision=before.revision + 1, priority=priority, tags={tag: "1"}
            )
            if due is not None and job.state in POSTPONABLE:
                after = replace(after, due_at=self.clock.now() + timedelta(seconds=due))
            self.both(lambda store: store.amend([Change(before, after)]))
            self.saw("late amendment is refused" if stale else "amended")

    @rule(claim=claims, force=st.booleans())
    def ask_to_stop(self, claim: Job, *, force: bool) -> None:
        job = self.current(claim)
        if job is not None and job.state is State.RUNNING:
            decision = "cancel_by_force" if force else "cancel"
            self.swap(Change(job, DECISIONS[decision](job, self.clock.now())))
            self.extend(claim, claim)

    @rule(
        claim=claims,
        side=st.sampled_from([-1, 0, 0, 1]),
        beat_first=st.booleans(),
        answer=st.booleans(),
    )
    def let_a_lease_end(self, claim: Job, side: int, *, beat_first: bool, answer: bool) -> None:
        job = self.current(claim)
        if job is None or job.state is not State.RUNNING:
            return
        assert job.lease is not None
        assert job.lease.until is not None
        self.clock.set(max(self.clock.now(), job.lease.until + side * TICK))
        self.reap(beat_first=beat_first)
        if answer:
            self.answer_late(claim)

    # --- time and maintenance --------------------------------------------------------------

    @rule(seconds=st.sampled_from([1, 3, 60]))
    def wait(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @rule(which=anyone, side=st.sampled_from([-1, 0, 0, 1]))
    def jump_to_an_instant(self, which: int, side: int) -> None:
        ahead = sorted({i for i in self.instants if i > self.clock.now()})[:6]
        if ahead:
            self.clock.set(max(self.clock.now(), ahead[which % len(ahead)] + side * TICK))

    @rule(limit=st.sampled_from([1, MANY]), side=st.sampled_from([None, -1, 0, 1]))
    def promote(self, limit: int, side: int | None) -> None:
        due = [job.due_at for job in self.stored() if job.state in WAITING and job.due_at]
        if due and side is not None:
            self.clock.set(max(self.clock.now(), min(due) + side * TICK))
        promoted = self.both(lambda store: store.promote(limit))
        self.saw("promoted", when=bool(getattr(promoted, "count", 0)))

    @rule(beat_first=st.booleans())
    def reap(self, *, beat_first: bool) -> None:
        found = self.run(self.reference.overdue(MANY))
        mine = self.run(self.store.overdue(MANY))
        assert isinstance(found, list)
        assert isinstance(mine, list)
        assert {job.id for job in found} == {job.id for job in mine}
        now = self.clock.now()
        for job in found:
            if job.state is State.RUNNING and job.lease is not None:
                lapse = Change(job, DECISIONS["lapse"](job, now), job.lease.until)
                if beat_first:
                    self.both(lambda store, job=job: store.extend([fence(job)]))
                (answer,) = self.swap(lapse)
                self.saw("heartbeat precedes the reaper" if beat_first else "lease lapsed")
                assert answer.written is not (beat_first and job.lease.until != now + job.lease_ttl)
            else:
                self.swap(Change(job, DECISIONS["expire"](job, now)))
                self.saw("lifetime over")

    @rule()
    def judge(self) -> None:
        has_dependents = self.both(lambda store: store.dependents(MANY))
        assert isinstance(has_dependents, list)
        for each in has_dependents:
            decision = verdict(each.job.dependency_kind, each.parents)
            after = lifecycle.dependency_ended(each.job, decision, now=self.clock.now())
            self.swap(Change(each.job, after))
            self.saw("dependent runs" if after.state not in TERMINAL else "dependent inherits")

    @rule(seconds=st.sampled_from([0, 30]), limit=st.sampled_from([1, MANY]))
    def prune(self, seconds: int, limit: int) -> None:
        kept = timedelta(seconds=seconds)
        policy = Retention(completed=kept, failed=kept, dead_letter=kept, cancelled=kept)
        if limit == 1:
            policy = Retention(completed=kept, failed=None, dead_letter=None, cancelled=None)
        count = self.both(lambda store: store.prune(policy, MANY))
        self.saw("pruned", when=bool(count))

    @rule(who=anyone)
    def delete(self, who: int) -> None:
        candidates = [job for job in self.stored() if job.state in TERMINAL] or self.stored()
        if candidates:
            gone = candidates[who % len(candidates)].id
            answer = self.both(lambda store: store.delete([gone]))
            self.saw("deleted" if answer == [True] else "deletion refused")

    @rule(queue=st.sampled_from(QUEUES), paused=st.sampled_from([True, False, False]))
    def pause(self, queue: str, *, paused: bool) -> None:
        self.both(lambda store: store.configure(queue, {"paused": paused}))
        self.saw("paused", when=paused)

    @rule(queue=st.sampled_from(QUEUES), seconds=st.sampled_from([None, 2]))
    def age(self, queue: str, seconds: int | None) -> None:
        interval = None if seconds is None else timedelta(seconds=seconds)
        self.both(lambda store: store.configure(queue, {"ageing": interval}))

    @rule(
        scope=st.sampled_from(["queue:a", "task:t", "key:t"]),
        limit=st.sampled_from(
            [
                None,
                None,
                LimitRule(concurrency=1),
                LimitRule(rate=2, per=timedelta(seconds=3)),
                LimitRule(rate=7, per=timedelta(seconds=3), burst=3),
                LimitRule(concurrency=2, rate=3, per=timedelta(seconds=3), burst=2),
            ]
        ),
    )
    def limit(self, scope: str, limit: LimitRule | None) -> None:
        self.both(lambda store: store.limit(scope, limit))
        self.both(lambda store: store.limits())
        self.instants += [self.clock.now() + timedelta(seconds=span) for span in (1, 1.5, 3)]

    @rule(holder=st.sampled_from("xy"), seconds=st.sampled_from([0, 3]))
    def lock(self, holder: str, seconds: int) -> None:
        ttl = timedelta(seconds=seconds)
        got = self.both(lambda store: store.lock("leader", holder, ttl))
        self.saw("lock refused", when=got is False)
