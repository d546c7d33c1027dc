"""The state that all routes share: the app, its keys, limits, event tail and metrics."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence, Sized
from functools import cached_property

import msgspec

from holdfast.app import Holdfast
from holdfast.http import docs
from holdfast.http.api_keys import ApiKeys
from holdfast.http.bulk_task import BulkTask
from holdfast.http.capacity import Capacity
from holdfast.http.event_stream import EventTail
from holdfast.http.key_watch import KeyWatch
from holdfast.http.metrics import RequestCounts
from holdfast.http.permissions import Authorize, Caller
from holdfast.http.presence import Presence
from holdfast.http.rate_limits import KeyLimits
from holdfast.http.refusals import Refusals
from holdfast.http.rejections import Rejections
from holdfast.model.policy import ServiceLimits
from holdfast.observe import Observer, Silent
from holdfast.operations.declarations import Declarations
from holdfast.operations.name_quota import NameQuota
from holdfast.operations.operations import Operations
from holdfast.operations.publisher import Publisher
from holdfast.operations.submitter import Submitter
from holdfast.operations.waiter import JobWaiter
from holdfast.store.tenants import TenantStore

SERVICE = "service"
"""The name under which the service publishes the profiles of queues; no worker has it."""
MAX_VIEWS = 1000
"""Operations of so many callers are kept for their next request."""


class Service:
    """What the routes work with; started and closed with the application."""

    def __init__(
        self,
        app: Holdfast,
        *,
        describe: Callable[[], Mapping[str, object]],
        observer: Observer | None = None,
        hosts: Sequence[str] = (),
        origins: Sequence[str] = (),
        capacity: ServiceLimits | None = None,
        authorize: Authorize | None = None,
    ) -> None:
        self.app = app
        self.authorize = authorize
        """The login of the site that it is mounted in, in place of API keys."""
        self.observer = observer or Silent()
        self.hosts = frozenset(hosts)
        """Host names, besides those of this machine, that may be called without keys."""
        self.origins = frozenset(origins)
        """Origins, besides that of the service, whose pages may call it."""
        self._limits = capacity or ServiceLimits()
        self.capacity = Capacity(self._limits)
        self.stopping = asyncio.Event()
        self.request_counts = RequestCounts()
        self.rejections = Rejections(app.clock, self.observer)
        self.connections: Sized = ()
        """The open connections; a server that limits them sets it."""
        self._describe = describe
        self._owns_app = True
        self._views: OrderedDict[tuple[str, str, bool], Operations] = OrderedDict()
        self._declarations: dict[str, Declarations] = {}
        self._names: dict[str, NameQuota] = {}

    @cached_property
    def document(self) -> bytes:
        """The OpenAPI document."""
        return msgspec.json.encode(self._describe())

    @cached_property
    def docs_page(self) -> bytes:
        """The OpenAPI document as HTML."""
        return docs.page(msgspec.json.decode(self.document))

    async def join(self) -> None:
        """Start beside other work: use the app as it is if someone else has started it."""
        try:
            _ = self.app.operations
        except RuntimeError:
            await self.start()
        else:
            self._owns_app = False
            await self._prepare()

    async def start(self) -> None:
        """Open the store and read the API keys."""
        await self.app.start()
        try:
            await self._prepare()
        except BaseException:
            await self.app.close()
            raise

    async def _prepare(self) -> None:
        self.keys = ApiKeys(self.app.store, self.app.clock)
        self.key_watch = KeyWatch(self.keys)
        self.refusals = Refusals(self.app.store, self.observer)
        self.key_limits = KeyLimits(self.app.store, self.app.clock, self.app.randomness.token())
        most = self._limits.workers_per_namespace
        self.presence = Presence(self.app.store, most, self.app.clock)
        self.tail = EventTail(self.app.store)
        self.bulk = BulkTask(self.app, self.observer)
        self._waiter = JobWaiter(self.app.store)
        publisher = Publisher(self.app.store, SERVICE, self.app.clock.now())
        await publisher.publish_profiles(self.app.registry.profiles)
        await self.keys.refresh()
        self.bulk.start()

    async def close(self) -> None:
        """Finish the operations in progress and close the store."""
        self.stop()
        for operations in self._views.values():
            await operations.close()
        await self.bulk.close()
        await self.key_watch.close()
        await self.refusals.close()
        await self.tail.close()
        await self._waiter.close()
        if self._owns_app:
            await self.app.close()

    def stop(self) -> None:
        """End streams and long waits; other requests in progress continue."""
        self.stopping.set()

    def operations_for(self, caller: Caller) -> Operations:
        """Return the operations on the jobs that a caller may see."""
        key = (caller.namespace, caller.key_id, caller.only_own)
        found = self._views.get(key)
        if found is None:
            store = TenantStore(
                self.app.store, caller.namespace, owner=caller.key_id, only_own=caller.only_own
            )
            found = self._views[key] = self.app.over(
                store,
                waiter=self._waiter,
                declarations=self._declarations_in(caller.namespace),
                names=self._names_in(caller.namespace),
                as_text=True,
            )
            if len(self._views) > MAX_VIEWS:
                self._views.popitem(last=False)
        return found

    def submitter_for(self, operations: Operations) -> Submitter:
        """Return a submitter of the children of running jobs, for a caller's view."""
        store = operations.store
        namespace = store.namespace if isinstance(store, TenantStore) else ""
        declared, names = self._declarations_in(namespace), self._names_in(namespace)
        return self.app.submitter(store, declared, names=names)

    def _declarations_in(self, namespace: str) -> Declarations:
        """The declarations of a namespace, which all its callers share."""
        found = self._declarations.get(namespace)
        if found is None:
            store = TenantStore(self.app.store, namespace)
            found = self._declarations[namespace] = self.app.declarations(store)
        return found

    def _names_in(self, namespace: str) -> NameQuota | None:
        """The names that a namespace may use; jobs of no namespace are the operator's own."""
        if namespace and namespace not in self._names:
            store = TenantStore(self.app.store, namespace)
            self._names[namespace] = NameQuota(store, self._limits, self.app.clock)
        return self._names.get(namespace)
