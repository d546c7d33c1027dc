"""holdfast in FastAPI: a lifespan, the app as a dependency, and jobs in the request's session."""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Annotated, Any

from holdfast.app import Holdfast
from holdfast.errors import MissingExtraError

try:
    from fastapi import Depends

    from holdfast.contrib.starlette import job_app, lifespan
except ImportError:
    raise MissingExtraError("fastapi", "fastapi") from None

if typing.TYPE_CHECKING:
    from holdfast.contrib.sqlalchemy import SessionJobs

JobApp = Annotated[Holdfast, Depends(job_app)]
"""The app, as the type of a parameter: ``async def view(jobs: JobApp)``."""


def session_jobs(get_session: Callable[..., Any], **options: Any) -> Callable[[Any], SessionJobs]:
    """Return a dependency that submits jobs in the SQLAlchemy session of another dependency.

    ``Jobs = Annotated[SessionJobs, Depends(session_jobs(get_session))]``: the parameter
    ``jobs: Jobs`` then uses the same session as ``session: Session`` of the same request. Give
    the options, such as ``scope``, with which the request's own ``Depends`` names the session.
    """
    from holdfast.contrib.sqlalchemy import SessionJobs

    def in_request(session: Any) -> SessionJobs:
        return SessionJobs(session)

    # Written out, because the dependency is an argument that annotations cannot name.
    in_request.__annotations__ = {"session": Annotated[Any, Depends(get_session, **options)]}
    return in_request


__all__ = ["JobApp", "SessionJobs", "job_app", "lifespan", "session_jobs"]

if not typing.TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name != "SessionJobs":  # only those who use it need SQLAlchemy
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from holdfast.contrib.sqlalchemy import SessionJobs

        return SessionJobs
