"""Finds the values of dependencies for one attempt, or for one call outside of a worker."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from holdfast.tasks.depends import Dependency, name_of, needs_of
from holdfast.tasks.resources import managed
from holdfast.tasks.scope import OwnLoopScope, Scope, run_now
from holdfast.tasks.seams import Seams

Function = Callable[..., Any]


class Injector:
    """Provides each dependency once; what they opened is left with their scope."""

    def __init__(self, seams: Seams, scope: Scope, context: object) -> None:
        self._seams = seams
        self._scope = scope
        self._context = context
        self._values: dict[Function, object] = {}
        self.current = ""
        """The name of the dependency that is being made; empty when none is."""

    async def provide(self, dependencies: Mapping[str, Dependency]) -> dict[str, object]:
        """Return the values of dependencies by the names of their parameters."""
        found = {name: await self._value(one.function) for name, one in dependencies.items()}
        self.current = ""
        return found

    async def _value(self, wanted: Function) -> object:
        function = self._seams.overrides.get(wanted, wanted)
        if function in self._values:
            return self._values[function]
        if function in self._seams.resources.functions:
            value = await self._resource(function)
        else:
            value = await self._made(function)
        self._values[function] = value
        return value

    async def _resource(self, function: Function) -> object:
        """Return what a lifespan function yielded; outside of a worker, enter it for this call."""
        try:
            return self._seams.resources.value(function, self._scope.loop or _running_loop())
        except KeyError:
            self.current = name_of(function)
            return await self._scope.enter(managed(function, self._seams.app), self._owner)

    async def _made(self, function: Function) -> object:
        needs = needs_of(function)
        given = {name: await self._value(one.function) for name, one in needs.dependencies.items()}
        given |= dict.fromkeys(needs.contexts, self._context)
        given |= dict.fromkeys(needs.apps, self._seams.app)
        self.current = name_of(function)
        plain = inspect.unwrap(function)
        if inspect.isasyncgenfunction(plain):
            manage = function if plain is not function else asynccontextmanager(function)
            return await self._scope.enter(manage(**given), self._owner)
        if inspect.isgeneratorfunction(plain):
            manage = function if plain is not function else contextmanager(function)
            return await self._scope.enter(manage(**given), self._owner)
        value = function(**given)
        if inspect.isawaitable(value):
            return await self._scope.wait(_awaited(value))
        return value

    @property
    def _owner(self) -> tuple[str, str]:
        return ("dependency", self.current)


async def _awaited(value: Any) -> object:
    return await value


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class InlineCall:
    """Calls a function outside of a worker, with the dependencies that its caller leaves out."""

    def __init__(
        self,
        function: Function,
        dependencies: Mapping[str, Dependency],
        seams: Seams,
        context: object,
    ) -> None:
        self._function = function
        self._dependencies = dependencies
        self._seams = seams
        self._context = context

    def __call__(self, arguments: Mapping[str, object]) -> Any:
        """Call the function: a coroutine function returns a coroutine, as always."""
        if inspect.iscoroutinefunction(self._function):
            return self._run(Scope(), arguments)
        with OwnLoopScope() as scope:
            return run_now(self._run(scope, arguments))

    async def _run(self, scope: Scope, arguments: Mapping[str, object]) -> object:
        error: BaseException | None = None
        value: object = None
        left_out = {n: one for n, one in self._dependencies.items() if n not in arguments}
        try:
            made = await Injector(self._seams, scope, self._context).provide(left_out)
            value = self._function(**arguments, **made)
            if isinstance(value, Coroutine):
                value = await value
        except BaseException as raised:  # noqa: BLE001  # raised below, after the scope is left
            error = raised
        if (error := await scope.leave(error, lambda *_: None)) is not None:
            raise error
        return value
