"""Copies jobs, settings and records from one store to another."""

from __future__ import annotations

from holdfast.copying.copier import Copier, CopyReport
from holdfast.copying.progress import CopyRefusedError

__all__ = ["Copier", "CopyRefusedError", "CopyReport"]
