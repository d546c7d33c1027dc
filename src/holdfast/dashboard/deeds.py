"""What a call of the API does, in words: ``cancelled the job``."""

from __future__ import annotations

import re

_DEEDS = {
    "addWebhook": "added a webhook",
    "cancelJob": "cancelled the job",
    "cancelJobs": "cancelled jobs",
    "cancelOperation": "stopped an operation",
    "changeSchedule": "changed a schedule",
    "createSchedule": "created a schedule",
    "deleteJob": "deleted the job",
    "deleteJobs": "deleted jobs",
    "deleteSchedule": "deleted a schedule",
    "drainWorker": "drained a worker",
    "liftLimit": "lifted a limit",
    "pauseQueue": "paused a queue",
    "pauseSchedule": "paused a schedule",
    "releaseJob": "released the job",
    "removeWebhook": "removed a webhook",
    "resendDelivery": "sent a delivery again",
    "resumeQueue": "resumed a queue",
    "resumeSchedule": "resumed a schedule",
    "retryJob": "retried the job",
    "retryJobs": "retried jobs",
    "rotateWebhookSecret": "rotated the secret of a webhook",
    "runSchedule": "ran a schedule",
    "setLimit": "set a limit",
    "setQueueAgeing": "set the ageing of a queue",
    "startOperation": "started an operation",
    "submitBatch": "submitted jobs",
    "submitJob": "submitted a job",
    "switchWebhook": "switched a webhook on or off",
    "undrainWorker": "undrained a worker",
    "updateJob": "changed the job",
}
_CAPITAL = re.compile(r"(?<=[a-z])(?=[A-Z])")


def deed(action: str) -> str:
    """Return what a call does in words; the name of an unknown one, with spaces."""
    return _DEEDS.get(action) or _CAPITAL.sub(" ", action).lower()
