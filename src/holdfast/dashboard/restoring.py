"""Brings masked values back into a form that was sent: where it is certain which ones are meant.

A mask that is left is refused. Submitted as it is, the new job would have ``***`` for a password;
taken by its place alone, two list items that change places would have each other's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.errors import Fault, ValidationError
from holdfast.observe.secrets import MASK

MOST_FAULTS = 5
LONGEST_NAME = 40


def restored(given: Any, original: Any, shown: Any) -> Any:
    """Return what a form gives, with the original values where it repeats what was masked.

    A masked text counts as repeated when its place and the whole of it are unchanged. In a list,
    the items have places while as many are there, and at most one differs from what was shown.
    ValidationError names every other place that still has a mask.
    """
    restoring = _Restoring(original, shown)
    value = restoring.value("payload", given, original, shown)
    if restoring.faults:
        raise ValidationError(restoring.faults[:MOST_FAULTS])
    return value


class _Restoring:
    def __init__(self, original: Any, shown: Any) -> None:
        self.faults: list[Fault] = []
        self._masks: set[str] = set()
        """What the form showed in place of something else; a hook has masks of its own."""
        self._plain: set[str] = set()
        """Texts of the job itself that look like masks."""
        self._note(original, shown)
        self._plain -= self._masks

    def value(self, place: str, given: Any, original: Any, shown: Any) -> Any:
        """Return a value for which the job has one in the same place."""
        if isinstance(given, dict) and isinstance(original, dict):
            return self._fields(place, given, original, shown)
        if isinstance(given, list) and isinstance(original, list) and len(given) == len(original):
            return self._items(place, given, original, shown)
        if isinstance(given, dict | list) or given != shown:
            return self._new(place, given)
        return given if shown is original else original

    def _fields(self, place: str, given: Any, original: Any, shown: Any) -> Any:
        made = {}
        for key, each in given.items():
            inner = f"{place}.{key[:LONGEST_NAME]}"
            known = key in original
            made[key] = (
                self.value(inner, each, original[key], shown[key])
                if known
                else self._new(inner, each)
            )
        return made

    def _items(self, place: str, given: Any, original: Any, shown: Any) -> Any:
        certain = _certain(given, original, shown)
        made = []
        for at, each in enumerate(given):
            inner = f"{place}[{at}]"
            made.append(
                self.value(inner, each, original[at], shown[at])
                if certain[at]
                else self._new(inner, each)
            )
        return made

    def _new(self, place: str, given: Any) -> Any:
        """Return a value of the form itself; a mask in it is a fault."""
        if isinstance(given, dict):
            for key, each in given.items():
                self._new(f"{place}.{key[:LONGEST_NAME]}", each)
        elif isinstance(given, list):
            for at, each in enumerate(given):
                self._new(f"{place}[{at}]", each)
        elif isinstance(given, str) and self._is_mask(given):
            mask = MASK if MASK in given else "a masked value"
            message = f"still has {mask}: type the value or remove it"
            self.faults.append(Fault(place, "MASKED", message))
        return given

    def _is_mask(self, text: str) -> bool:
        return text in self._masks or (MASK in text and text not in self._plain)

    def _note(self, original: Any, shown: Any) -> None:
        if isinstance(original, dict):
            for key, each in original.items():
                self._note(each, shown[key])
        elif isinstance(original, list):
            for each, seen in zip(original, shown, strict=True):
                self._note(each, seen)
        elif shown is not original and shown:
            self._masks.add(shown)
        elif isinstance(original, str) and MASK in original:
            self._plain.add(original)


def _certain(given: Sequence[Any], original: Sequence[Any], shown: Sequence[Any]) -> list[bool]:
    """Return for each item of a list whether it is certain which one of the job it is."""
    changed = [at for at, each in enumerate(given) if each != shown[at]]
    if not changed or shown is original:
        return [True] * len(given)
    meanings: dict[str, set[str]] = {}
    for each, seen in zip(original, shown, strict=True):
        meanings.setdefault(repr(seen), set()).add(repr(each))
    alone = len(changed) == 1
    return [
        alone and repr(each) not in meanings if each != seen else len(meanings[repr(seen)]) == 1
        for each, seen in zip(given, shown, strict=True)
    ]
