"""What must happen to jobs that nobody holds: one service per file, all of one shape."""

from __future__ import annotations

from holdfast.maintenance.leader import Maintenance
from holdfast.maintenance.service import MaintenanceService

__all__ = ["Maintenance", "MaintenanceService"]
