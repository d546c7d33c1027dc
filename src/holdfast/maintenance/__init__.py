"""Services that move jobs no worker holds: one per file, all with the same interface."""

from __future__ import annotations

from holdfast.maintenance.leader import Maintenance
from holdfast.maintenance.service import MaintenanceService

__all__ = ["Maintenance", "MaintenanceService"]
