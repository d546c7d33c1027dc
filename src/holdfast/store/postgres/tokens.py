"""What one process sends to another that is to look for a job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from holdfast.store.postgres.arrays import Ints, Texts

MOST_TYPES, LONGEST_TYPES = 20, 2_000
"""How many types, and of which length together, a notice names: it has 8,000 bytes."""


class Token(msgspec.Struct, frozen=True, array_like=True):
    """A notice for one process: there may be a job for it."""

    queue: str
    types: tuple[str, ...] = ()
    """The types of the jobs; empty if they are unknown or many."""
    is_due: bool = False
    """Whether the jobs have a due time, which the process that promotes must learn."""
    hops: int = 0
    """How many processes have passed it on."""


Addressed = tuple[str, int, Token]
"""A token, and before it: what its receivers wait for, and how many of them receive it."""


def columns(tokens: Sequence[Addressed], sender: str, *, broadcast: bool) -> dict[str, object]:
    """Return the parameters of ``wake.sql`` that describe tokens."""
    notices = [
        f"{sender} {token.queue}" if broadcast and not token.hops else None
        for _, _, token in tokens
    ]
    return {
        "names": Texts([name for name, _, _ in tokens]),
        "counts": Ints([count for _, count, _ in tokens]),
        "tokens": Texts([msgspec.json.encode(token).decode() for _, _, token in tokens]),
        "notices": Texts(notices),
    }


def named(types: Iterable[str]) -> tuple[str, ...]:
    """Return the types that a token names: none if they do not fit."""
    names = tuple(sorted(types))
    if "" in names or len(names) > MOST_TYPES or sum(map(len, names)) > LONGEST_TYPES:
        return ()
    return names
