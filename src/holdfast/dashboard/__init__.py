"""The dashboard: pages over the operations of an app; needs ``holdfast-queue[server]``."""

from __future__ import annotations

from holdfast.errors import MissingExtraError

try:
    from holdfast.dashboard.application import Dashboard, dashboard
    from holdfast.dashboard.payloads import ShownJob
    from holdfast.http.api_keys import Role
    from holdfast.http.permissions import Caller
except ModuleNotFoundError as error:
    if error.name not in ("starlette", "jinja2", "markupsafe", "uvicorn", "httptools"):
        raise
    raise MissingExtraError("server", error.name) from None

__all__ = ["Caller", "Dashboard", "Role", "ShownJob", "dashboard"]
