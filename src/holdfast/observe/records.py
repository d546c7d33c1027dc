"""Adds the running job to the records of any logger, for programs with a setup of their own."""

from __future__ import annotations

import logging

from holdfast.observe.current import current_job


class JobLogFilter(logging.Filter):
    """Sets ``job_id``, ``job_type``, ``job_queue`` and ``attempt`` on every record.

    They are empty texts and 0 outside of a job, so that a format can always name them. Attach it
    to a handler: a filter of a logger does not see the records of the loggers below it.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields; every record passes."""
        job = current_job()
        record.job_id = job.job_id if job else ""
        record.job_type = job.type if job else ""
        record.job_queue = job.queue if job else ""
        record.attempt = job.attempt if job else 0
        return True
