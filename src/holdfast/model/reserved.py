"""Names that holdfast uses itself; callers cannot use them."""

RESERVED = "holdfast:"
"""Tags with this prefix are never shown and never accepted from a client."""

WEBHOOK = "webhook"
"""The kind of the records that hold webhooks."""
CALLBACKS = "webhook-callbacks"
"""The kind of the one record that exists after a job with a callback_url was submitted."""
PLACE = "webhook-place"
"""The kind of the one record with the position up to which events became deliveries."""
TASKS = "task-declaration"
"""The kind of the records in which workers publish what their tasks declare, by job type."""
QUEUE_PROFILES = "queue-profile"
"""The kind of the records that hold the profiles of queues, by queue."""
NAMES = "names"
"""The kind of the one record per namespace with its names of queues, types and tags."""
ENCRYPTION = "encryption"
"""The kind of the one record that marks a store as encrypted."""
PROOF = "webhook-proof"
"""The kind of the one record with the secret that proves who made a delivery."""
INTERNAL = "holdfast."
"""Types and queues with this prefix are for jobs that holdfast makes itself."""
DELIVERY = "holdfast.webhook"
"""The type of the jobs that deliver webhooks."""
DELIVERIES = "holdfast.webhooks"
"""The queue of the jobs that deliver webhooks."""
QUARANTINE = "quarantine:"
"""Locks with this prefix name items that were set aside; their data is the reason."""
FAILING = "failing:"
"""Locks with this prefix name maintenance services that fail again and again."""
CLOCK = "clock:"
"""Locks with this prefix report changes of the store's clock."""
UNSAFE = "unsafe:"
"""Locks with this prefix name checks of the store that found it unsafe while it runs."""


def is_internal(name: str) -> bool:
    """Whether a type or queue is for jobs that holdfast makes itself."""
    return name.startswith(INTERNAL)


def refusal(name: str) -> str:
    """Return why a caller cannot use a reserved name."""
    return f"must not be {name!r:.60}: holdfast uses it itself, choose another name"
