"""Finds the screen or action of a path. Segments may contain an encoded slash."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Generic, TypeVar
from urllib.parse import parse_qs, quote, unquote, urlencode

from holdfast.api.errors import RequestError
from holdfast.dashboard.visits import Action, ScreenRoute

R = TypeVar("R", ScreenRoute, Action)


class RouteTable(Generic[R]):
    """Routes by the number of their segments; fixed ones come before those with parameters."""

    def __init__(self, routes: Iterable[R]) -> None:
        self._by_length: defaultdict[int, list[tuple[tuple[str, ...], R]]] = defaultdict(list)
        for route in sorted(routes, key=lambda each: each.path.count("{")):
            pattern = tuple(route.path.strip("/").split("/"))
            self._by_length[len(pattern)].append((pattern, route))

    def find(self, segments: tuple[str, ...]) -> tuple[R, dict[str, str]] | None:
        """Return a route and its parameters."""
        for pattern, route in self._by_length[len(segments)]:
            values = _matched(pattern, segments)
            if values is not None:
                return route, values
        return None


def _matched(pattern: tuple[str, ...], segments: tuple[str, ...]) -> dict[str, str] | None:
    values: dict[str, str] = {}
    for part, given in zip(pattern, segments, strict=True):
        if part.startswith("{"):
            values[part[1:-1]] = given
        elif part != given:
            return None
    return None if "" in values.values() else values


def segments_of(scope: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the decoded segments of a request's path below the place of the dashboard."""
    root = str(scope.get("root_path", ""))
    raw = scope.get("raw_path") or quote(scope["path"]).encode()
    path = raw.decode("latin-1").partition("?")[0]
    for prefix in (quote(root), root):
        if prefix and path.startswith(prefix):
            path = path[len(prefix) :]
            break
    return tuple(unquote(each) for each in path.strip("/").split("/"))


def query_of(scope: Mapping[str, Any], most: int) -> dict[str, list[str]]:
    """Return the parameters of a request; RequestError when there are more than ``most``."""
    return fields_of(scope["query_string"].decode("latin-1"), most)


def fields_of(query: str, most: int) -> dict[str, list[str]]:
    """Return the parameters of a query."""
    try:
        return parse_qs(query, max_num_fields=most)
    except ValueError:
        raise RequestError("INVALID_REQUEST", f"an address may have {most} parameters") from None


class Addresses:
    """Makes the addresses of one request: below its root, with every segment encoded."""

    def __init__(self, root: str = "") -> None:
        self.root = quote(root.rstrip("/"))

    def __call__(self, /, *segments: object, **query: object) -> str:
        """Return an address; parameters that are empty or None are left out."""
        path = "/".join(quote(str(each), safe="") for each in segments)
        given = {name: value for name, value in query.items() if value not in (None, "")}
        return f"{self.root}/{path}" + (f"?{urlencode(given, doseq=True)}" if given else "")

    def is_own(self, address: str) -> bool:
        """Whether an address is a path below the root, not one of another site.

        It has only characters that addresses of this class have: browsers remove tabs and line
        ends, and take a backslash for a slash.
        """
        if not _OWN.fullmatch(address):
            return False
        segments = address.partition("?")[0].split("/")
        if any(unquote(each) in (".", "..") for each in segments):
            return False
        return address == self.root or address.startswith(f"{self.root}/")


_OWN = re.compile(r"/(?!/)[!-\[\]-~]*")
"""One slash, not two, then visible ASCII without a backslash."""
