"""The dashboard: pages over the operations of an app, for the service and for other sites."""

from __future__ import annotations

from holdfast.dashboard.application import Dashboard, dashboard
from holdfast.dashboard.payloads import ShownJob
from holdfast.http.api_keys import Role
from holdfast.http.permissions import Caller

__all__ = ["Caller", "Dashboard", "Role", "ShownJob", "dashboard"]
