from datetime import timedelta
from enum import StrEnum

import msgspec


class Breakdown(StrEnum):
    TYPE = "TYPE"
    PRIORITY = "PRIORITY"
    STATE = "STATE"


class QueueStats(msgspec.Struct):
    pass


def summarise(stats, *, window: timedelta, breakdown_by):
    return QueueStats()
