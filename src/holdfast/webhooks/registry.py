"""Registers webhooks and reads their deliveries."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec
from msgspec.structs import replace

from holdfast.errors import Fault, NotFoundError, QuotaError, ValidationError
from holdfast.model.children import UNCOUNTED
from holdfast.model.job import TERMINAL, Job, State, attempts
from holdfast.model.reserved import DELIVERIES, DELIVERY, WEBHOOK
from holdfast.model.results import RetryResult, SubmissionResult
from holdfast.model.submission import Submission
from holdfast.model.validation import MAX_URL
from holdfast.runtime.randomness import Randomness
from holdfast.store import Order, RecordWrite, Search, Store
from holdfast.store.browsing import every_record
from holdfast.store.damage import readable
from holdfast.webhooks.address_guard import AddressGuard, RefusedAddressError
from holdfast.webhooks.signatures import checked_secret, new_secret
from holdfast.webhooks.values import (
    CALLBACK,
    ENDS,
    Delivery,
    DeliveryAttempt,
    DeliveryPage,
    Message,
    Webhook,
)

SECRETS_KEPT = 2
MOST_DESCRIPTION = 256
MOST_WEBHOOKS = 100
"""Webhooks of one namespace: each gets a message for every job that ends."""


class ResendOperations(Protocol):
    """The operations on jobs that resending a delivery needs."""

    @property
    def store(self) -> Store:
        """The store of the jobs."""
        ...

    async def job(self, job_id: str) -> Job:
        """Return a job; NotFoundError when there is none."""
        ...

    async def retry(self, job_id: str, *, reset_attempts: bool = False) -> RetryResult:
        """Run a failed job again."""
        ...


class ResendSubmitter(Protocol):
    """Submits jobs that holdfast makes itself."""

    async def submit(self, submission: Submission) -> SubmissionResult:
        """Submit a job."""
        ...


class Webhooks:
    """The webhooks of a store, or of one tenant of it."""

    def __init__(
        self,
        operations: ResendOperations,
        guard: AddressGuard,
        randomness: Randomness,
        submitter: ResendSubmitter,
    ) -> None:
        self._operations = operations
        self._submitter = submitter
        self._guard = guard
        self._randomness = randomness

    @property
    def _store(self) -> Store:
        return self._operations.store

    async def add(  # one keyword per filter
        self,
        url: str,
        *,
        states: Sequence[State | str] = ENDS,
        types: Sequence[str] = (),
        queues: Sequence[str] = (),
        tags: Mapping[str, str] | None = None,
        include_result: bool = False,
        description: str = "",
        secret: str | None = None,
    ) -> Webhook:
        """Send ends to an address from now on; the result holds the secret that signs them.

        ValidationError when the address must not be called.
        """
        webhook = Webhook(
            id=self._randomness.token()[:16],
            url=self._checked(url),
            created_at=self._store.now(),
            states=_states(states),
            types=tuple(types),
            queues=tuple(queues),
            tags=dict(tags or {}),
            include_result=include_result,
            description=description[:MOST_DESCRIPTION],
            secrets=(checked_secret(secret) if secret else new_secret(),),
        )
        if (count := len(await self.list())) >= MOST_WEBHOOKS:
            raise QuotaError("webhooks of this namespace", current=count, maximum=MOST_WEBHOOKS)
        await self._keep(webhook)
        return webhook

    async def list(self) -> builtins.list[Webhook]:
        """Return every webhook, oldest first."""
        records = await every_record(self._store, WEBHOOK)
        found = list(readable([one.data for one in records if one.key != CALLBACK], read))
        return sorted(found, key=lambda webhook: webhook.created_at)

    async def get(self, webhook_id: str) -> Webhook:
        """Return a webhook; NotFoundError when there is none."""
        (record,) = await self._store.records(WEBHOOK, [webhook_id])
        if record is None or webhook_id == CALLBACK:
            raise NotFoundError(webhook_id, "webhook")
        return read(record.data)

    async def remove(self, webhook_id: str) -> None:
        """Remove a webhook; its pending deliveries fail."""
        await self.get(webhook_id)
        await self._store.keep([RecordWrite(kind=WEBHOOK, key=webhook_id, data=None)])

    async def rotate(
        self, webhook_id: str, *, secret: str | None = None, keep: int = SECRETS_KEPT - 1
    ) -> Webhook:
        """Sign with a new secret as well; ``keep`` of the older ones stay valid.

        ``callback`` rotates the secret that signs messages to jobs' own addresses.
        """
        if webhook_id == CALLBACK and secret is None:
            return await callback_hook(self._store, rotate=True, keep=keep)
        before = await self.get(webhook_id)
        new = checked_secret(secret) if secret else new_secret()
        after = replace(before, secrets=(new, *before.secrets[: max(0, keep)]))
        await self._keep(after)
        return after

    async def switch(self, webhook_id: str, *, enabled: bool) -> Webhook:
        """Disable a webhook, or enable it again."""
        after = replace(await self.get(webhook_id), enabled=enabled)
        await self._keep(after)
        return after

    async def callback_secrets(self, *, rotate: bool = False) -> tuple[str, ...]:
        """Return the secrets that sign messages to jobs' own callback addresses."""
        return (await callback_hook(self._store, rotate=rotate)).secrets

    async def deliveries(
        self, webhook_id: str | None = None, *, limit: int = 50, cursor: str | None = None
    ) -> DeliveryPage:
        """Return deliveries, newest first, of one webhook (``callback`` included) or of all."""
        page = await self._store.find(
            Search(
                types=(DELIVERY,),
                queues=(DELIVERIES,),
                tags={"webhook": webhook_id} if webhook_id else {},
                order=Order.CREATED_DESC,
                limit=max(1, min(limit, 1000)),
                cursor=cursor,
            )
        )
        urls = {webhook.id: webhook.url for webhook in await self.list()}
        found = [await self._delivery(job, urls) for job in page.jobs]
        return DeliveryPage(deliveries=tuple(found), next_cursor=page.next_cursor)

    async def delivery(self, delivery_id: str) -> Delivery:
        """Return one delivery; NotFoundError when there is none."""
        job = await self._sent(delivery_id)
        return await self._delivery(job, {webhook.id: webhook.url for webhook in await self.list()})

    async def resend(self, delivery_id: str) -> Delivery:
        """Send a message again, at once, under the same message id.

        A failed delivery gets all its attempts again; a delivered one is sent by a new job.
        """
        job = await self._sent(delivery_id)
        if job.state in (State.FAILED, State.DEAD_LETTER):
            await self._operations.retry(job.id, reset_attempts=True)
            return await self.delivery(job.id)
        if job.state not in TERMINAL:
            message = f"must have ended, it is {job.state}"
            raise ValidationError([Fault("delivery", "NOT_ENDED", message)])
        again = Submission(
            type=DELIVERY,
            queue=DELIVERIES,
            payload=msgspec.Raw(job.payload),
            tags={name: job.tags[name] for name in ("webhook", "job") if name in job.tags},
            max_attempts=job.max_attempts,
            backoff=job.backoff,
            lifetime=job.lifetime,
            timeout=job.timeout,
        )
        return await self.delivery((await self._submitter.submit(again)).job_id)

    def _checked(self, url: str) -> str:
        if not isinstance(url, str) or len(url) > MAX_URL or not url.isprintable() or " " in url:
            message = f"must be an address of at most {MAX_URL} characters"
            raise ValidationError([Fault("url", "INVALID", message)])
        try:
            self._guard.url(url)
        except RefusedAddressError as error:
            raise ValidationError([Fault("url", "REFUSED", str(error))]) from None
        return url

    async def _keep(self, webhook: Webhook) -> None:
        data = msgspec.json.encode(webhook)
        await self._store.keep([RecordWrite(kind=WEBHOOK, key=webhook.id, data=data)])

    async def _sent(self, delivery_id: str) -> Job:
        job = await self._operations.job(delivery_id)
        if job.type != DELIVERY:
            raise NotFoundError(delivery_id, "delivery")
        return job

    async def _delivery(self, job: Job, urls: Mapping[str, str]) -> Delivery:
        message = next(readable([job.payload], _message.decode), UNREADABLE)
        (history,) = await self._store.history([job.id])
        waiting = job.state in (State.RETRYING, State.DELAYED)
        return Delivery(
            id=job.id,
            webhook=message.webhook,
            job_id=job.tags.get("job", ""),
            message_id=message.message_id,
            state=job.state,
            url=message.url or urls.get(message.webhook, ""),
            created_at=job.created_at,
            delivered_at=job.finished_at if job.state is State.COMPLETED else None,
            next_attempt_at=job.due_at if waiting else None,
            attempts=tuple(
                DeliveryAttempt(
                    at=each.started_at,
                    error=each.failure.message if each.failure else None,
                    code=each.failure.code if each.failure else None,
                )
                for each in attempts(job.id, history)
                if each.ended_by not in UNCOUNTED
            ),
        )


_message = msgspec.json.Decoder(Message)
UNREADABLE = Message(webhook="", message_id="", body="")
"""Stands for the message of a job that holdfast did not make."""


def read(data: bytes) -> Webhook:
    """Decode a stored webhook."""
    return msgspec.json.decode(data, type=Webhook)


async def callback_hook(
    store: Store, *, rotate: bool = False, keep: int = SECRETS_KEPT - 1
) -> Webhook:
    """Return the webhook that signs messages to jobs' own addresses; create it when needed."""
    while True:
        (record,) = await store.records(WEBHOOK, [CALLBACK])
        if record is not None and not rotate:
            return read(record.data)
        older = read(record.data).secrets[: max(0, keep)] if record else ()
        created = Webhook(
            id=CALLBACK, url="", created_at=store.now(), secrets=(new_secret(), *older)
        )
        write = RecordWrite(
            kind=WEBHOOK,
            key=CALLBACK,
            data=msgspec.json.encode(created),
            version=record.version if record else 0,
        )
        if (await store.keep([write]))[0] is not None:
            return created


def _states(given: Sequence[State | str]) -> tuple[State, ...]:
    try:
        states = tuple(State(str(state)) for state in given)
    except ValueError:
        states = ()
    if not states or not TERMINAL.issuperset(states):
        message = f"must be some of {', '.join(ENDS)}"
        raise ValidationError([Fault("states", "INVALID", message)])
    return states
