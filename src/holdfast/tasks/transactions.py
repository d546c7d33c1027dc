"""Transactions that complete a job: the guard of the async form, and the error of a refusal."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import NoReturn

from holdfast.errors import PermanentError


class AsyncOnly(AbstractAsyncContextManager[object]):
    """A transaction whose use without ``async`` raises an error that says so."""

    def __init__(self, inner: AbstractAsyncContextManager[object]) -> None:
        self._inner = inner

    async def __aenter__(self) -> object:
        return await self._inner.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return await self._inner.__aexit__(kind, error, trace)

    def __enter__(self) -> NoReturn:
        raise no_transaction("needs 'async with' in a coroutine")

    def __exit__(self, *_: object) -> None:
        """Never called: ``__enter__`` raises."""


def no_transaction(why: str) -> PermanentError:
    """Return the error of a transaction that cannot be opened; a retry would not help."""
    return PermanentError(f"ctx.transaction() {why}", code="TRANSACTION_REFUSED")
