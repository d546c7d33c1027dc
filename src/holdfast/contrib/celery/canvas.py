"""Signatures and what is made of them: chains, groups and chords, submitted as one graph."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, Self

from holdfast.contrib.celery.current import current_app
from holdfast.contrib.celery.exceptions import UnsupportedError

if TYPE_CHECKING:
    from holdfast.contrib.celery.interface import CeleryApp
    from holdfast.contrib.celery.results import AnyResult

FIRST_ONLY = frozenset({"countdown", "eta"})
"""Options of a chain that concern only its first task."""


class Canvas:
    """A piece of work that can be called now or later, and joined with ``|``."""

    options: dict[str, Any]
    bound_app: CeleryApp | None = None

    @property
    def app(self) -> CeleryApp:
        """The app whose tasks these are."""
        known = (part.bound_app for part in self.parts())
        return next((app for app in known if app is not None), None) or current_app()

    def parts(self) -> Iterator[Canvas]:
        """Yield this canvas and all that it is made of."""
        yield self

    def apply_async(
        self,
        args: Iterable[object] = (),
        kwargs: Mapping[str, object] | None = None,
        **options: Any,
    ) -> AnyResult:
        """Submit the work; ``args`` come before the arguments it has already."""
        made: AnyResult = self.app.submit(self.clone(args, kwargs, **options))
        return made

    def delay(self, *args: object, **kwargs: object) -> AnyResult:
        """Submit the work with these further arguments."""
        return self.apply_async(args, kwargs)

    def apply(
        self,
        args: Iterable[object] = (),
        kwargs: Mapping[str, object] | None = None,
        **options: Any,
    ) -> AnyResult:
        """Run the work here and now, without a worker."""
        made: AnyResult = self.app.run(self.clone(args, kwargs, **options))
        return made

    def clone(
        self,
        args: Iterable[object] = (),
        kwargs: Mapping[str, object] | None = None,
        **options: Any,
    ) -> Self:
        """Return a copy with further arguments and options."""
        other = copy.copy(self)
        other.options = {**self.options, **options}
        return other

    def set(self, *, immutable: bool | None = None, **options: Any) -> Self:
        """Change options of the work, and return it."""
        self.options.update(options)
        if immutable is not None:
            self._set_immutable(immutable)
        return self

    def link(self, callback: Canvas) -> Canvas:
        """Submit another task with the result of this one; returns that task."""
        self.options["link"] = [*several(self.options.get("link")), callback]
        return callback

    def on_error(self, errback: Canvas) -> Self:
        """Submit a task when this one fails; returns this one."""
        self.link_error(errback)
        return self

    def link_error(self, errback: Canvas) -> Canvas:
        """Submit a task when this one fails; returns that task."""
        self.options["link_error"] = [*several(self.options.get("link_error")), errback]
        return errback

    def __or__(self, other: Canvas) -> Canvas:
        return chain(self, other)

    def __invert__(self) -> object:
        return self.apply_async().get()

    def _set_immutable(self, immutable: bool) -> None:
        raise UnsupportedError(
            f"immutable={immutable} of a {type(self).__name__}", "set it on a task"
        )

    def chunks(self, *_: object) -> NoReturn:
        """Refuse what this layer does not have."""
        raise UnsupportedError("chunks", "submit a group of tasks that each take a list")

    map = starmap = chunks


class CelerySignature(Canvas):
    """A call of a task: its name, arguments and options."""

    def __init__(
        self,
        task: str,
        args: Iterable[object] = (),
        kwargs: Mapping[str, object] | None = None,
        options: Mapping[str, Any] | None = None,
        *,
        immutable: bool = False,
        app: CeleryApp | None = None,
    ) -> None:
        self.task = task
        self.args = tuple(args)
        self.kwargs = dict(kwargs or {})
        self.options = dict(options or {})
        self.immutable = immutable
        self.bound_app = app

    @property
    def name(self) -> str:
        """The name of the task."""
        return self.task

    def clone(
        self,
        args: Iterable[object] = (),
        kwargs: Mapping[str, object] | None = None,
        **options: Any,
    ) -> Self:
        """Return a copy; an immutable signature ignores further arguments."""
        other = super().clone(**options)
        if not self.immutable:
            other.args = (*args, *self.args)
            other.kwargs = {**self.kwargs, **(kwargs or {})}
        return other

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Run the task as a plain function."""
        called = self.clone(args, kwargs)
        return self.app.tasks[self.task](*called.args, **called.kwargs)

    def as_dict(self) -> dict[str, object]:
        """Return the signature as JSON, for the payload of the task that it is linked to."""
        options = {
            name: [linked(each) for each in several(value)] if name in LINKS else value
            for name, value in self.options.items()
        }
        return {
            "task": self.task,
            "args": self.args,
            "kwargs": self.kwargs,
            "options": options,
            "immutable": self.immutable,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], app: CeleryApp | None = None) -> CelerySignature:
        """Return the signature that ``as_dict`` wrote."""
        options = dict(data.get("options") or {})
        for name in LINKS & options.keys():
            options[name] = [cls.from_dict(each, app) for each in options[name]]
        return cls(
            data["task"],
            data.get("args") or (),
            data.get("kwargs"),
            options,
            immutable=bool(data.get("immutable")),
            app=app,
        )

    def _set_immutable(self, immutable: bool) -> None:
        self.immutable = immutable

    def __repr__(self) -> str:
        given = [repr(each) for each in self.args]
        given += [f"{name}={value!r}" for name, value in self.kwargs.items()]
        return f"{self.task}({', '.join(given)})"


LINKS = frozenset({"link", "link_error"})


class _Tasks(Canvas):
    """Several tasks in one canvas."""

    tasks: list[Canvas]

    def parts(self) -> Iterator[Canvas]:
        """Yield the tasks."""
        return (part for task in self.tasks for part in task.parts())

    def __call__(self, *args: object, **kwargs: object) -> AnyResult:
        return self.apply_async(args, kwargs)


class chain(_Tasks):  # noqa: N801  # Celery's name
    """Tasks one after another; each receives the result of the one before it."""

    def __init__(self, *tasks: Canvas | Iterable[Canvas], **options: Any) -> None:
        self.tasks = list(_flat(tasks, chain))
        self.options = options

    def clone(
        self,
        args: Iterable[object] = (),
        kwargs: Mapping[str, object] | None = None,
        **options: Any,
    ) -> Self:
        """Return a copy whose first task has further arguments."""
        other = super().clone(**options)
        if other.tasks:
            other.tasks = [other.tasks[0].clone(args, kwargs), *other.tasks[1:]]
        return other

    def __repr__(self) -> str:
        return " | ".join(map(repr, self.tasks))


class group(_Tasks):  # noqa: N801  # Celery's name
    """Tasks side by side; the result is the list of their results."""

    def __init__(self, *tasks: Canvas | Iterable[Canvas], **options: Any) -> None:
        self.tasks = list(_flat(tasks, group))
        self.options = options

    def clone(
        self,
        args: Iterable[object] = (),
        kwargs: Mapping[str, object] | None = None,
        **options: Any,
    ) -> Self:
        """Return a copy whose tasks have further arguments."""
        other = super().clone(**options)
        args = tuple(args)
        other.tasks = [task.clone(args, kwargs) for task in self.tasks]
        return other

    def __len__(self) -> int:
        return len(self.tasks)

    def __repr__(self) -> str:
        return f"group({self.tasks!r})"


class chord(Canvas):  # noqa: N801  # Celery's name
    """A group and a task that receives the list of its results."""

    def __init__(
        self, header: group | Iterable[Canvas], body: Canvas | None = None, **options: Any
    ) -> None:
        self.header = header if isinstance(header, group) else group(header)
        self.body = body
        self.options = options

    def parts(self) -> Iterator[Canvas]:
        """Yield the tasks of the header, and the body."""
        yield from self.header.parts()
        if self.body is not None:
            yield from self.body.parts()

    def __call__(self, body: Canvas | None = None, **options: Any) -> AnyResult:
        whole = chord(self.header, body or self.body, **{**self.options, **options})
        return whole.apply_async()

    def clone(
        self,
        args: Iterable[object] = (),
        kwargs: Mapping[str, object] | None = None,
        **options: Any,
    ) -> Self:
        """Return a copy whose header has further arguments."""
        other = super().clone(**options)
        other.header = self.header.clone(args, kwargs)
        return other

    def __repr__(self) -> str:
        return f"chord({self.header.tasks!r}, {self.body!r})"


def signature(
    task: str | Mapping[str, Any] | Canvas, *given: Any, app: CeleryApp | None = None, **more: Any
) -> Canvas:
    """Return a signature for a task's name, a signature or what ``as_dict`` returned."""
    if isinstance(task, Canvas):
        return task
    if isinstance(task, Mapping):
        return CelerySignature.from_dict(task, app)
    more.setdefault("options", {name: more.pop(name) for name in list(more) if name not in _PARTS})
    return CelerySignature(task, *given, app=app, **more)


_PARTS = frozenset({"args", "kwargs", "options", "immutable"})


def _flat(tasks: Iterable[Canvas | Iterable[Canvas]], kind: type[Canvas]) -> Iterator[Canvas]:
    """The tasks of one kind of canvas, without canvases of the same kind inside it."""
    for task in tasks:
        if isinstance(task, chain | group) and type(task) is kind:
            yield from task.tasks
        elif isinstance(task, Canvas):
            yield task
        else:
            yield from _flat(task, kind)


def several(value: Any) -> list[Any]:
    """Return the links of an option: none, one or a list of them."""
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def linked(canvas: Canvas) -> dict[str, object]:
    """Return a link as JSON; UnsupportedError when it is no task."""
    if not isinstance(canvas, CelerySignature):
        raise UnsupportedError(
            f"a link to a {type(canvas).__name__}", "link to a task, or write a chain or chord"
        )
    return canvas.as_dict()


__all__ = ["chain", "chord", "group", "signature"]
