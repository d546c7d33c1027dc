"""Tools to test your own tasks: a sandbox, rehearsals and simulated crashes."""

from __future__ import annotations

from holdfast.runtime.clock import ManualClock
from holdfast.tasks.inline import InlineSpawn
from holdfast.testing.crash_points import (
    CrashPoint,
    CrashReport,
    CrashVerdict,
    crash_points,
    crash_points_sync,
)
from holdfast.testing.crash_steps import effect
from holdfast.testing.jobs import SandboxJob
from holdfast.testing.rehearsal import Rehearsal
from holdfast.testing.sandbox import Sandbox

__all__ = [
    "CrashPoint",
    "CrashReport",
    "CrashVerdict",
    "InlineSpawn",
    "ManualClock",
    "Rehearsal",
    "Sandbox",
    "SandboxJob",
    "crash_points",
    "crash_points_sync",
    "effect",
]
