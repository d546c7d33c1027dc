"""Redis and Valkey: jobs on BullMQ's wire, shared with Node; needs ``holdfast-queue[redis]``."""

from __future__ import annotations

from holdfast.errors import MissingExtraError

try:
    from holdfast.store.redis.store import RedisStore
except ModuleNotFoundError as error:
    if error.name not in ("redis", "hiredis"):
        raise
    raise MissingExtraError("redis", error.name) from None

__all__ = ["RedisStore"]
