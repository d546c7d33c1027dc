"""Waking workers that wait for jobs: a counter in this process, NOTIFY between processes.

Both are hints. Notices are sent after the commit and outside it: inside, every commit in the
database waits for NOTIFY's global lock. The first is sent at once; the later ones of a stream are
grouped. As many processes are woken as there are jobs, and one that cannot take a job passes on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

import msgspec

from holdfast.errors import HoldfastError
from holdfast.model.job import Job, State
from holdfast.runtime.randomness import Randomness
from holdfast.store.postgres.arrays import Texts
from holdfast.store.postgres.listener import Listener
from holdfast.store.postgres.pool import Pool
from holdfast.store.postgres.tokens import Addressed, Token, columns, named
from holdfast.store.values import Claim

Arrival = tuple[str, str, bool]
"""A job for a worker: its queue, its type ("" if any), and whether it waits for its due time."""

DUE = " due"
"""What the process that promotes jobs waits for."""
MOST_WOKEN = 100
"""How many processes one notice wakes at most."""

WAKING = frozenset({State.SCHEDULED, State.DELAYED, State.RETRYING})
"""States in which a job is work for a worker, now or later."""
LATER = frozenset({State.DELAYED, State.RETRYING})

EVERY_QUEUE = ""
LISTEN_WITHIN = 5.0
"""Seconds in which a listening connection should be open."""
PAUSE, STREAM_PAUSE = 0.005, 0.02
"""Seconds between two notices, and between those of a stream."""
CLAIM_BEGINS = 0.001
"""Seconds in which a worker of this process begins a claim, if one waits."""
LONGEST_CLAIM = 0.05
"""How long notices wait for a claim of this process at most, in seconds."""
TAKEN_WITHIN = 0.01
"""Seconds in which a process that has room claims after it was woken."""
MOST_HOPS = 3
"""How often a token is passed on before all processes are woken."""
BROADCAST_EVERY = 1.0
"""Least seconds between two notices to all processes because none waits: those of an earlier
version do not show that they do."""
PROMOTED_WITHIN = 5.0
"""Seconds since the last promotion in which this process counts as the one that promotes."""


class WakeCounter:
    """Counts, per queue, how often there may have been new work."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._waiters: set[asyncio.Future[None]] = set()

    def notify(self, queues: Iterable[str]) -> None:
        for queue in queues:
            self._counts[queue] += 1
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    def count(self, queues: Collection[str]) -> int:
        return self._counts[EVERY_QUEUE] + sum(self._counts[queue] for queue in set(queues))

    async def wait(self, deadline: float) -> bool:
        """Wait for a notice until an instant of the loop's clock; return whether there was one."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiters.add(waiter)
        try:
            async with asyncio.timeout_at(deadline):
                await waiter
        except TimeoutError:
            return False
        finally:
            self._waiters.discard(waiter)
        return True


class Demand:
    """The jobs for which other processes are to be woken."""

    def __init__(self) -> None:
        self._ready: dict[str, Counter[str]] = {}
        """How many jobs of each type are ready, by queue."""
        self._due: set[str] = set()
        self.passed: list[Token] = []
        """Tokens that this process cannot use."""
        self.broadcasts: set[str] = set()
        """Queues of which every process is to be informed."""

    def __bool__(self) -> bool:
        return bool(self._ready or self._due or self.passed or self.broadcasts)

    def add(self, arrivals: Sequence[Arrival], *, promotes: bool) -> bool:
        """Add jobs; return whether another process may be needed."""
        for (queue, type_, is_due), count in Counter(arrivals).items():
            if not is_due:
                self._ready.setdefault(queue, Counter())[type_] += count
            elif not promotes:
                self._due.add(queue)
        return bool(self)

    def reduce(self, queues: Iterable[str], taken: int) -> None:
        """Subtract jobs that this process has taken, most likely from the first queues."""
        for queue in queues:
            if types := self._ready.get(queue):
                count = min(taken, types.total())
                taken -= count
                types.subtract({next(iter(types)): count})
                if types.total() <= 0:
                    del self._ready[queue]

    def tokens(self) -> list[Addressed]:
        """Return what to send."""
        ready = [
            (queue, min(MOST_WOKEN, types.total()), Token(queue, named(types)))
            for queue, types in self._ready.items()
        ]
        due = [(DUE, 1, Token(queue, is_due=True)) for queue in self._due]
        return ready + due + [(token.queue, 1, token) for token in self.passed]


class Wake:
    """Sends notices to other processes and receives theirs."""

    def __init__(self, pool: Pool, schema: str, listen_dsn: str | None) -> None:
        self.counter = WakeCounter()
        self._pool = pool
        self._listen_dsn = listen_dsn
        self._listener = Listener(
            pool,
            schema,
            on_listening=lambda: self.counter.notify([EVERY_QUEUE]),
            on_listed=self.counter.notify,
            on_notice=self._received,
        )
        self._sender = Randomness().token()
        self._demand = Demand()
        self._wanted = asyncio.Event()
        self._sender_task: asyncio.Task[None] | None = None
        self._stopping = self._listens = False
        self._echo = asyncio.Event()
        """Set when this process receives a notice of its own."""
        self._broadcast_at = float("-inf")
        self._promoted_at = float("-inf")
        self._claims_begun = 0
        self._claims_running = 0
        self._claims_over = asyncio.Event()
        self._served: dict[str, frozenset[str] | None] = {}
        """The queues in which claims found too few jobs, and the types they looked for."""

    @property
    def channel(self) -> str:
        """The channel that all processes listen to."""
        return self._listener.channel

    @property
    def listening(self) -> asyncio.Event:
        """Set while this process listens."""
        return self._listener.listening

    @property
    def error(self) -> str:
        """Why listening failed the last time, if it did."""
        return self._listener.error

    def start(self) -> None:
        self._stopping = self._listens = False
        self._wanted, self._echo, self._claims_over = _events()
        self._claims_running = 0
        self._claims_over.set()
        self._listener.reset()
        self._sender_task = asyncio.create_task(self._send_loop())

    def listen(self) -> None:
        """Receive notices from now on; a process that waits for no work needs no connection."""
        if not self._listens and self._listen_dsn is not None and not self._stopping:
            self._listens = True
            self._listener.start(self._listen_dsn)

    async def is_notified(self) -> bool:
        """Whether notices arrive, checked within a few seconds by a notice of its own."""
        self.listen()
        listener = self._listener
        try:
            async with asyncio.timeout(LISTEN_WITHIN if self._listens else 0):
                await listener.listening.wait()
                self._echo.clear()
                await self._broadcast([f"{self._sender} {self._sender}"])
                listener.error = "notices sent here do not arrive there"
                await self._echo.wait()
                listener.error = ""
                return True
        except TimeoutError:
            pass
        except HoldfastError as error:
            listener.error = str(error)
        return False

    async def stop(self) -> None:
        """Send pending notices, then stop."""
        self._stopping = True
        self._wanted.set()
        if self._sender_task is not None:
            await asyncio.wait([self._sender_task])
        await self._listener.stop()
        self._sender_task = None
        self.counter.notify([EVERY_QUEUE])

    # --- sending -------------------------------------------------------------------------

    def notify(self, arrivals: Sequence[Arrival]) -> None:
        """Wake waiters of this process now, and those of other processes in a moment."""
        if arrivals:
            self.counter.notify({arrival[0] for arrival in arrivals})
            if self._demand.add(arrivals, promotes=self._promotes):
                self._wanted.set()

    def notify_all(self, queue: str) -> None:
        """Wake every process: the settings of a queue or the limits have changed."""
        self.counter.notify([queue])
        self._demand.broadcasts.add(queue)
        self._wanted.set()

    def notice(self, arrivals: Sequence[Arrival]) -> dict[str, object]:
        """Return the parameters of a notice that the caller's transaction sends."""
        demand = Demand()
        demand.add(arrivals, promotes=False)
        return self._params(demand.tokens(), EVERY_QUEUE, broadcast=True) | {"pid": 0}

    async def _send_loop(self) -> None:
        pause = PAUSE
        while not (self._stopping and not self._demand):
            await self._wanted.wait()
            with contextlib.suppress(Exception):  # a lost notice is a hint less; others poll
                await self._let_own_claims_begin()
                await self._send()
            if not self._stopping:
                await asyncio.sleep(pause)
                pause = STREAM_PAUSE if self._wanted.is_set() else PAUSE

    async def _let_own_claims_begin(self) -> None:
        """Wait for a worker of this process: what it takes needs no other process."""
        if not self._claims_begun or self._stopping:
            return
        await asyncio.sleep(CLAIM_BEGINS)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_CLAIM):
                await self._claims_over.wait()

    async def _send(self) -> None:
        self._wanted.clear()
        demand, self._demand = self._demand, Demand()
        await self._broadcast([f"{self._sender} {queue}" for queue in sorted(demand.broadcasts)])
        if tokens := demand.tokens():
            now = asyncio.get_running_loop().time()
            broadcast = now >= self._broadcast_at
            params = self._params(tokens, self._sender, broadcast=broadcast)
            ((unserved, _),) = await self._pool.run("wake", params)
            if unserved and broadcast:
                self._broadcast_at = now + BROADCAST_EVERY

    async def _broadcast(self, notices: Sequence[str]) -> None:
        if notices:
            params = {"channel": self.channel, "queues": Texts(notices)}
            await self._pool.run("notify", params)

    def _params(
        self, tokens: Sequence[Addressed], sender: str, *, broadcast: bool
    ) -> dict[str, object]:
        return columns(tokens, sender, broadcast=broadcast) | {
            "channel": self.channel,
            "pid": self._listener.pid,
        }

    # --- what this process waits for -----------------------------------------------------

    def claim_begins(self) -> None:
        """Record that a claim begins: it takes what this process was woken for."""
        self._claims_begun += 1
        self._claims_running += 1
        self._claims_over.clear()

    def claim_ended(self, want: Claim, taken: int) -> None:
        """Record how many jobs a claim took; if it has room for more, this process waits."""
        self._claims_running -= 1
        if not self._claims_running:
            self._claims_over.set()
        if taken and self._demand:
            self._demand.reduce(want.queues, taken)
        if taken < want.limit:
            self._serve(want.queues, want.types)

    def promotes(self) -> None:
        """Record that this process promotes jobs when they are due."""
        is_new = not self._promotes
        self._promoted_at = asyncio.get_running_loop().time()
        if is_new:
            self._list()

    @property
    def _promotes(self) -> bool:
        if self._promoted_at == float("-inf"):
            return False
        return asyncio.get_running_loop().time() - self._promoted_at < PROMOTED_WITHIN

    def _serve(self, queues: Iterable[str], types: Collection[str] | None) -> None:
        changed = False
        for queue in queues:
            known = self._served.get(queue, frozenset())
            if known is not None and (types is None or not known.issuperset(types)):
                self._served[queue] = None if types is None else known.union(types)
                changed = True
        if changed:
            self._list()

    def _list(self) -> None:
        names = frozenset(self._served)
        self._listener.list_under(names | {DUE} if self._promotes else names)

    # --- receiving -----------------------------------------------------------------------

    def _received(self, payload: str, is_token: bool) -> None:
        if is_token:
            with contextlib.suppress(msgspec.DecodeError):  # of another version
                self._received_token(msgspec.json.decode(payload, type=Token))
            return
        sender, _, queue = payload.partition(" ")
        if sender == self._sender:
            self._echo.set()
        else:
            self.counter.notify([queue])

    def _received_token(self, token: Token) -> None:
        self.counter.notify([token.queue])
        if token.is_due:
            if not self._promotes:
                self._list()
            return
        types = self._served.get(token.queue)
        if types is not None and token.types and types.isdisjoint(token.types):
            self._pass_on(token)
        else:
            self._check_later(token, self._claims_begun)

    def _check_later(self, token: Token, begun: int) -> None:
        asyncio.get_running_loop().call_later(TAKEN_WITHIN, self._check, token, begun)

    def _check(self, token: Token, begun: int) -> None:
        """Pass a token on if this process has no room: no claim has begun."""
        if self._claims_begun != begun or self._stopping:
            return
        if self._claims_running:
            self._check_later(token, begun)
            return
        self._served.clear()
        self._list()
        self._pass_on(token)

    def _pass_on(self, token: Token) -> None:
        if token.hops < MOST_HOPS:
            self._demand.passed.append(msgspec.structs.replace(token, hops=token.hops + 1))
        else:
            self._demand.broadcasts.add(token.queue)
        self._wanted.set()


def _events() -> tuple[asyncio.Event, asyncio.Event, asyncio.Event]:
    """Return new events, for the loop that runs now."""
    return asyncio.Event(), asyncio.Event(), asyncio.Event()


def arrivals_of(jobs: Iterable[Job]) -> list[Arrival]:
    """Return those of these jobs that are work for a worker."""
    return [(job.queue, job.type, job.state in LATER) for job in jobs if job.state in WAKING]


def arrivals_in(jobs: Iterable[Job]) -> list[Arrival]:
    """Return all of these jobs: those that wait for others may be ready by now."""
    return [(job.queue, job.type, job.state in LATER) for job in jobs]
