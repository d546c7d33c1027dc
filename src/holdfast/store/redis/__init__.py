"""Redis and Valkey: jobs on BullMQ's wire, shared with Node in both directions."""

from holdfast.store.redis.store import RedisStore

__all__ = ["RedisStore"]
