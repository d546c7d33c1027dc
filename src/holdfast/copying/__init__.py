"""Moving everything from one store to another: jobs, settings, records."""

from __future__ import annotations

from holdfast.copying.copier import Copier, CopyReport
from holdfast.copying.progress import CopyRefusedError

__all__ = ["Copier", "CopyRefusedError", "CopyReport"]
