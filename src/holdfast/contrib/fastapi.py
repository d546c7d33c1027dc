"""holdfast in FastAPI: a lifespan, the app as a dependency, and jobs in the request's session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends

from holdfast.app import Holdfast
from holdfast.contrib.sqlalchemy import AnySession, SessionJobs
from holdfast.contrib.starlette import job_app, lifespan

JobApp = Annotated[Holdfast, Depends(job_app)]
"""The app, as the type of a parameter: ``async def view(jobs: JobApp)``."""


def session_jobs(get_session: Callable[..., Any], **options: Any) -> Callable[[Any], SessionJobs]:
    """Return a dependency that submits jobs in the session of another dependency.

    ``Jobs = Annotated[SessionJobs, Depends(session_jobs(get_session))]``: the parameter
    ``jobs: Jobs`` then uses the same session as ``session: Session`` of the same request. Give
    the options, such as ``scope``, with which the request's own ``Depends`` names the session.
    """

    def in_request(session: AnySession) -> SessionJobs:
        return SessionJobs(session)

    # Written out, because the dependency is an argument that annotations cannot name.
    in_request.__annotations__ = {"session": Annotated[Any, Depends(get_session, **options)]}
    return in_request


__all__ = ["JobApp", "SessionJobs", "job_app", "lifespan", "session_jobs"]
