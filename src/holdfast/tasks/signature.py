"""Turns payloads into a function's arguments, and a caller's arguments into payloads.

A parameter annotated as a job context receives it, as does ``context`` or ``ctx``, the first of
two without annotations. The app provides dependencies. One parameter named ``payload`` receives
the whole payload, otherwise its keys are the parameters, decoded into their annotations.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from pathlib import PurePath
from types import SimpleNamespace
from typing import Any

import msgspec

from holdfast.errors import Fault, ValidationError
from holdfast.model.job import Encoding, Job
from holdfast.model.payload import is_model
from holdfast.tasks.depends import (
    CONTEXTS,
    SignatureError,
    check_dependencies,
    dependencies_of,
    hints_of,
)
from holdfast.tasks.upgrades import MismatchError

WHOLE = "payload"
UNFIT = "payload does not fit the task: "
_CONTEXT_NAMES = ("context", "ctx")


class Signature:
    """How to call a task's function with a payload."""

    def __init__(self, function: Callable[..., object]) -> None:
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError) as error:
            raise SignatureError(f"cannot read the signature: {error}") from None
        hints = hints_of(function)
        self.context = _context_of(signature, hints)
        self.dependencies = dependencies_of(signature.parameters, hints)
        """The parameters that the app provides: no part of the payload."""
        check_dependencies(self.dependencies)
        self._parameters = {
            name: parameter
            for name, parameter in signature.parameters.items()
            if name != self.context and name not in self.dependencies
        }
        self._name = getattr(function, "__name__", "task")
        self._call = signature.replace(parameters=list(self._parameters.values()))
        for name, parameter in self._parameters.items():
            if parameter.kind is parameter.VAR_POSITIONAL or (
                parameter.kind is parameter.POSITIONAL_ONLY
            ):
                raise SignatureError(f"parameter {name!r} cannot be given by name")
        self._rest = next(
            (name for name, p in self._parameters.items() if p.kind is p.VAR_KEYWORD), None
        )
        self._has_defaults = any(p.default is not p.empty for p in self._parameters.values())
        self._whole = list(self._parameters) == [WHOLE]
        whole = Any if (kind := hints.get(WHOLE, Any)) is object else kind
        self._target = whole if self._whole else self._struct(function, hints)
        try:
            self._decoder = msgspec.json.Decoder(self._target, dec_hook=_decode_custom)
        except TypeError as error:
            raise SignatureError(f"cannot decode into its annotations: {error}") from None

    def name(self, args: tuple[object, ...]) -> dict[str, object]:
        """Return positional arguments by name, without the context."""
        if len(args) > len(self._parameters):
            raise TypeError(f"takes {len(self._parameters)} arguments, got {len(args)}")
        return dict(zip(self._parameters, args, strict=False))

    def pack(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> object:
        """Return the payload for a call; TypeError when the arguments do not fit the function."""
        try:
            named = self._call.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{self._name}({', '.join(self._parameters)}): {error}") from None
        if self._whole:
            return named.get(WHOLE)
        return named | named.pop(self._rest, {}) if self._rest else named

    def unpack(self, job: Job) -> dict[str, object]:
        """Return the arguments in a payload; MismatchError when it does not fit the function."""
        if job.encoding is Encoding.BYTES:
            return self._unpack_bytes(job.payload)
        data = job.payload if self._whole or job.payload != b"null" else b"{}"
        try:
            value = self._decoder.decode(data)
        except msgspec.DecodeError as error:
            raise _unfit(str(error)) from None
        if self._whole:
            return {WHOLE: value}
        given: dict[str, object] = msgspec.structs.asdict(value)
        if self._has_defaults:
            given = {name: v for name, v in given.items() if v is not msgspec.UNSET}
        if self._rest:
            given = msgspec.json.decode(data, type=dict[str, object]) | given
        return given

    def misfit(self, payload: bytes, encoding: Encoding) -> str:
        """Return why ``unpack`` would refuse a payload; an empty text when it would not."""
        try:
            if encoding is Encoding.BYTES:
                self._unpack_bytes(payload)
            elif self._whole or payload != b"null":
                self._decoder.decode(payload)
            else:
                self._decoder.decode(b"{}")
        except msgspec.DecodeError as error:
            return str(error)
        except MismatchError as error:
            return error.message.removeprefix(UNFIT)
        return ""

    def _unpack_bytes(self, payload: bytes) -> dict[str, object]:
        if self._whole and self._target in (bytes, Any, bytes | None):
            return {WHOLE: payload}
        raise _unfit("it is bytes, expected JSON")

    def _struct(self, function: Callable[..., object], hints: Mapping[str, object]) -> Any:
        """Return a struct with a field per parameter; ``**kwargs`` allow further fields."""
        fields: list[Any] = []
        for name, parameter in self._parameters.items():
            if parameter.kind is parameter.VAR_KEYWORD:
                continue
            kind = hints.get(name, Any)
            kind = Any if kind is object else kind
            if parameter.default is parameter.empty:
                fields.append((name, kind))
            else:
                fields.append((name, kind, msgspec.UNSET))
        name = getattr(function, "__name__", "task")
        forbid = self._rest is None
        return msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=forbid)


def _context_of(signature: inspect.Signature, hints: Mapping[str, object]) -> str | None:
    """Return the parameter that receives the context, if there is one."""
    names = list(signature.parameters)
    if len(names) == 2 and names[0] in _CONTEXT_NAMES and not hints:
        return names[0]
    return next((name for name in names if hints.get(name) in CONTEXTS), None)


def _unfit(why: str) -> MismatchError:
    return MismatchError(f"{UNFIT}{why}")


def decode_output(function: Callable[..., object], output: object) -> Any:
    """Return an output as the type that the function's return annotation names.

    Without an annotation, or with one that cannot be resolved here, it is plain JSON.
    """
    kind = _return_type(function)
    try:
        return msgspec.convert(output, kind, dec_hook=_decode_custom, str_keys=True)
    except msgspec.ValidationError as error:
        message = f"does not fit the return type of the task: {error}"
        raise ValidationError([Fault("output", "INVALID", message)]) from None


def _return_type(function: Callable[..., object]) -> Any:
    plain = inspect.unwrap(function)
    if not hasattr(plain, "__annotations__"):
        plain = getattr(type(plain), "__call__", plain)  # noqa: B004  # an object may be a task
    given = getattr(plain, "__annotations__", {}).get("return", Any)
    only = SimpleNamespace(__annotations__={"return": given})
    try:
        hints = typing.get_type_hints(
            only, globalns=getattr(plain, "__globals__", {}), include_extras=True
        )
    except (NameError, TypeError):
        return Any
    return Any if hints["return"] is object else hints["return"]


def _decode_custom(kind: type, value: object) -> object:
    """Decode into what msgspec does not know: paths, models, and ``object``, which is any value."""
    if kind is object:
        return value
    if issubclass(kind, PurePath):
        if not isinstance(value, str):
            raise ValueError(f"Expected `str`, got `{type(value).__name__}`")
        return kind(value)
    if not is_model(kind):
        raise TypeError(f"cannot decode into {kind.__name__}")
    try:
        return kind.model_validate(value)  # type: ignore[attr-defined]  # is_model() saw it
    except ValueError as error:
        raise ValueError(str(error).replace("\n", " ")) from None
