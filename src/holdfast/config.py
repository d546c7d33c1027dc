"""Settings of the command line in layers: defaults < file < environment < flags.

A layer holds only the values that were given; it does not repeat defaults. An unknown key is
an error that names the nearest known one.
"""

from __future__ import annotations

import difflib
import os
import stat
import tomllib
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path

import msgspec

from holdfast.encryption import KeyRing
from holdfast.errors import Fault, ValidationError
from holdfast.model.job import DEFAULT_QUEUE
from holdfast.model.policy import ConnectionLimits, ServiceLimits
from holdfast.model.submission import BULLMQ_QUEUE_RULE, QUEUE_RULE
from holdfast.model.times import parse_span
from holdfast.observe.logging import FORMATS, LEVELS
from holdfast.observe.redaction import redacted
from holdfast.observe.secrets import MASK
from holdfast.operations.environment import (
    APP_SETTINGS,
    PREFIX,
    AppSettings,
    app_settings,
    as_text,
    read_names,
    read_number,
    read_positive_span,
    read_text,
    variable,
)
from holdfast.store import DEFAULT_URL

FILE = "holdfast.toml"
URL_SOURCE = "HOLDFAST_URL_SOURCE"
"""Where $HOLDFAST_URL is from, if a framework set it for a command of its own."""
OWN = frozenset({"HOLDFAST_API_KEY", "HOLDFAST_CONFIG", URL_SOURCE})
"""Variables that are not settings."""
LINKS = ("tcp://", "udp://", "sctp://")
"""How the values of variables begin that Kubernetes sets for the services of a namespace."""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One key: its default, how its value is read, what it is for."""

    default: object
    read: Callable[[object], object]
    help: str
    secret: bool = False


class Effective(msgspec.Struct, frozen=True, kw_only=True):
    """The value of one key, and the layer it comes from."""

    key: str
    value: object
    source: str


def _port(value: object) -> int:
    port = 0 if value in (0, "0") else read_number(value)
    if port > 65_535:
        raise ValueError(f"must be a port up to 65535, got {port}")
    return port


def _switch(value: object) -> bool:
    words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    found = value if isinstance(value, bool) else words.get(str(value).lower())
    if found is None:
        raise ValueError(f"must be true or false, got {value!r:.60}")
    return found


def _one_of(words: tuple[str, ...]) -> Callable[[object], str]:
    def read(value: object) -> str:
        if value not in words:
            raise ValueError(f"must be one of {', '.join(words)}, got {value!r:.60}")
        return str(value)

    return read


def read_queues(value: object) -> dict[str, float] | list[str]:
    """Read ``a,b`` as an order and ``a=3,b=1`` as weights; also from a list of such texts."""
    texts = value if isinstance(value, list | tuple) else [value]
    names = [part.strip() for text in texts for part in read_text(text).split(",")]
    weights: dict[str, float] = {}
    for part in names:
        name, weighted, weight = part.partition("=")
        namespace, divided, queue = name.rpartition("/")
        if divided and not QUEUE_RULE.fullmatch(namespace):
            raise ValueError(f"must have one namespace before its slash, got {name!r:.60}")
        if not BULLMQ_QUEUE_RULE.fullmatch(queue):
            raise ValueError(f"must be 1 to 128 characters without a colon, got {name!r:.60}")
        try:
            weights[name] = float(weight) if weighted else 1.0
        except ValueError:
            raise ValueError(f"must have a number as weight, got {part!r:.60}") from None
        if not 0 < weights[name] < float("inf"):
            raise ValueError(f"must have a weight above 0, got {part!r:.60}")
    return weights if any("=" in part for part in names) else list(weights)


SERVICE = "service."
_SERVICE_LIMITS = {
    "requests_per_key": "requests of one key that the service handles at once",
    "waiting_per_key": "requests of one key that may wait for their turn",
    "streams_per_key": "open event streams of one key",
    "long_polls_per_key": "requests of one key that wait for a job or for work",
    "bytes_per_key": "bytes of bodies of one key at a time",
    "bytes": "bytes of bodies of all keys at a time",
    "queues_per_namespace": "names of queues that a namespace may use",
    "types_per_namespace": "names of job types that a namespace may use",
    "tags_per_namespace": "names of tags that a namespace may use",
    "workers_per_namespace": "workers over HTTP of a namespace that may be present",
}
LISTEN = "listen."
_CONNECTION_LIMITS = {
    "connections": "open connections",
    "connections_per_address": "open connections from one address",
    "header_bytes": "bytes of a request line and its headers",
    "target_bytes": "bytes of a path and its query",
    "headers": "headers of a request",
    "header_timeout": "how long the headers of a request may take",
    "idle_timeout": "how long a connection may wait for its next request",
    "body_timeout": "how long the body of a request may take",
    "write_timeout": "how long a client may read nothing of its response",
}


def _limits(group: str, defaults: object, meanings: Mapping[str, str]) -> dict[str, Setting]:
    """Return a setting for each limit: a whole number, or a duration."""
    found = {}
    for name, meaning in meanings.items():
        default = getattr(defaults, name)
        read = read_positive_span if isinstance(default, timedelta) else read_number
        found[group + name] = Setting(default=default, read=read, help=meaning)
    return found


SETTINGS: Mapping[str, Setting] = {
    "url": Setting(default=DEFAULT_URL, read=read_text, help="the store"),
    "app": Setting(default=None, read=read_text, help="where the app is, module:name"),
    "encryption.keys": Setting(
        default=None, read=read_text, help="keys that encrypt jobs, id:base64", secret=True
    ),
    "encryption.keys_file": Setting(default=None, read=read_text, help="a file of such keys"),
    **{
        key: Setting(default=default, read=read, help=meaning)
        for key, (default, read, meaning) in APP_SETTINGS.items()
    },
    "redact.names": Setting(
        default=None, read=read_names, help="more names whose values are masked in logs and errors"
    ),
    "log.level": Setting(
        default="info", read=_one_of(LEVELS), help="the lowest level that is logged"
    ),
    "log.format": Setting(default="text", read=_one_of(FORMATS), help="text, or json lines"),
    "listen.host": Setting(default="127.0.0.1", read=read_text, help="where the service listens"),
    "listen.port": Setting(default=8080, read=_port, help="the port of the service, 0 for any"),
    **_limits(LISTEN, ConnectionLimits(), _CONNECTION_LIMITS),
    **_limits(SERVICE, ServiceLimits(), _SERVICE_LIMITS),
    "worker.queues": Setting(
        default=[DEFAULT_QUEUE], read=read_queues, help="queues in order, or with =weight"
    ),
    "worker.slots": Setting(
        default=None, read=read_number, help="jobs at once in one process, by default as fits"
    ),
    "worker.processes": Setting(default=1, read=read_number, help="worker processes"),
    "worker.supervisor": Setting(
        default=True, read=_switch, help="run workers under a supervisor that replaces dead ones"
    ),
    "worker.environment": Setting(
        default=None,
        read=read_names,
        help="variables that process children get, names or patterns; all but holdfast's secrets",
    ),
    "worker.probe": Setting(
        default=None,
        read=read_text,
        help="HOST:PORT where the worker serves /live, /ready and /metrics",
    ),
    "worker.grace": Setting(
        default=timedelta(seconds=30), read=parse_span, help="how long jobs may finish after a stop"
    ),
}


PASSED_ON = (
    "url",
    "log.level",
    "log.format",
    "encryption.keys",
    "encryption.keys_file",
    "redact.names",
    "worker.environment",
    *APP_SETTINGS,
)
"""Settings that a command passes on to the app it runs, as environment variables."""


class Settings:
    """The effective value of every key."""

    def __init__(self, found: Mapping[str, Effective]) -> None:
        self._found = found

    def __getitem__(self, key: str) -> object:
        return self._found[key].value

    def text(self, key: str) -> str:
        """Return a value that is text."""
        return str(self._found[key].value)

    def source(self, key: str) -> str:
        """Return where a value comes from: default, the name of a file or variable, or flag."""
        return self._found[key].source

    def all(self) -> list[Effective]:
        """Return every key with its value and source."""
        return list(self._found.values())


def load(
    *,
    flags: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None,
    path: str | None = None,
) -> Settings:
    """Merge the layers; ValidationError lists the faults of all of them."""
    variables = os.environ if environment is None else environment
    faults: list[Fault] = []
    found = {
        key: Effective(key=key, value=setting.default, source="default")
        for key, setting in SETTINGS.items()
    }
    given = {key: value for key, value in (flags or {}).items() if value is not None}
    layers = [
        *_file_layer(path or variables.get("HOLDFAST_CONFIG"), faults),
        *_environment_layer(variables, faults),
        *((key, value, "flag", key) for key, value in given.items()),
    ]
    for key, value, source, name in layers:
        try:
            read = SETTINGS[key].read(value)
        except ValueError as error:
            faults.append(Fault(name, "INVALID", f"{error} ({source})"))
        else:
            found[key] = Effective(key=key, value=read, source=source)
    if faults:
        raise ValidationError(faults)
    return Settings(found)


Given = tuple[str, object, str, str]
"""A key, its value, the layer that gives it, and its name there."""


def _file_layer(path: str | None, faults: list[Fault]) -> list[Given]:
    file = Path(path or FILE)
    if not file.exists() and path is None:
        return []
    try:
        mode = file.stat().st_mode
        table = tomllib.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        faults.append(Fault(str(file), "INVALID", f"cannot be read: {error}"))
        return []
    if os.name == "posix" and mode & stat.S_IWOTH:
        message = f"must not be writable by every user: chmod o-w {file}"
        faults.append(Fault(str(file), "EXPOSED", message))
        return []
    given: list[Given] = []
    for name, value in _flattened(table):
        if name in SETTINGS:
            given.append((name, value, str(file), name))
        else:
            faults.append(Fault(name, "UNKNOWN_KEY", f"is not a setting{_nearest(name)} ({file})"))
    return given


def _flattened(table: Mapping[str, object]) -> list[tuple[str, object]]:
    flat: list[tuple[str, object]] = []
    for name, value in table.items():
        if isinstance(value, dict) and name not in SETTINGS:
            flat += [(f"{name}.{inner}", v) for inner, v in value.items()]
        else:
            flat.append((name, value))
    return flat


def _environment_layer(variables: Mapping[str, str], faults: list[Fault]) -> list[Given]:
    """Read HOLDFAST_* variables; an unknown one is an error only when it looks like a typo.

    Kubernetes sets variables such as HOLDFAST_WORKER_PORT=tcp://... for a service called
    holdfast-worker.
    """
    keys = {variable(key): key for key in SETTINGS}
    given: list[Given] = []
    for name, value in variables.items():
        if name in keys:
            source = variables.get(URL_SOURCE) if keys[name] == "url" else None
            given.append((keys[name], value, source or f"${name}", f"${name}"))
        elif name.startswith(PREFIX) and name not in OWN and not value.startswith(LINKS):
            close = difflib.get_close_matches(name, keys, 1, cutoff=0.85)
            if close:
                message = f"is not a setting, did you mean ${close[0]}?"
                faults.append(Fault(f"${name}", "UNKNOWN_KEY", message))
    return [one for one in given if one[1] != ""]


def _nearest(name: str) -> str:
    last = name.rpartition(".")[2]
    close = difflib.get_close_matches(name, SETTINGS, 1, cutoff=0.6) or [
        key for key in SETTINGS if key.rpartition(".")[2] == last
    ]
    return f", did you mean {close[0]!r}?" if close else f": known are {', '.join(SETTINGS)}"


def key_ring(settings: Settings) -> KeyRing | None:
    """Return the encryption keys of the settings, if any."""
    text, path = settings["encryption.keys"], settings["encryption.keys_file"]
    if isinstance(text, str):
        return KeyRing.parse(text)
    return KeyRing.from_file(path) if isinstance(path, str) else None


def for_app(settings: Settings) -> AppSettings:
    """Return the settings of an app that has no code of its own."""
    return app_settings({key: settings[key] for key in APP_SETTINGS})


def service_limits(settings: Settings) -> ServiceLimits:
    """Return what one key may use of the service."""
    given = {name: settings[SERVICE + name] for name in _SERVICE_LIMITS}
    return msgspec.convert(given, ServiceLimits)


def connection_limits(settings: Settings) -> ConnectionLimits:
    """Return what a connection may take before its key is known."""
    given = {name: settings[LISTEN + name] for name in _CONNECTION_LIMITS}
    return msgspec.convert(given, ConnectionLimits)


def shown(key: str, value: object) -> object:
    """Return a setting's value as it may be shown: secrets masked."""
    if SETTINGS[key].secret:
        return None if value is None else MASK
    match value:
        case str():
            return redacted(value)
        case timedelta() | dict():
            return as_text(value)
        case list():
            return ",".join(value)
        case _:
            return value
