"""Bugs in the rules: lifecycle, backoff, dependencies, submission."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

LAYERS = {
    "lifecycle.py": ("lifecycle", "memory verbs"),
    "policy.py": ("policy",),
    "dependencies.py": ("dependencies",),
}


def _in(file: str, old: str, new: str, why: str) -> Mutant:
    return Mutant(file, old, new, why, LAYERS.get(file, ("memory verbs",)))


MUTANTS = (
    _in(
        "lifecycle.py",
        "(R, Event.GIVE_BACK, W),",
        "(R, Event.GIVE_BACK, W),\n        (DONE, Event.CLAIM, R),",
        "a completed job may be claimed",
    ),
    _in(
        "lifecycle.py",
        "if (job.state, event, to) not in TABLE:",
        "if (job.state, to) not in EDGES:",
        "an event may take another event's edge",
    ),
    _in(
        "lifecycle.py",
        "revision=job.revision + 1, updated_at=now, **changes)",
        "revision=job.revision, updated_at=now, **changes)",
        "a step does not move the revision, so nothing fences",
    ),
    _in(
        "lifecycle.py",
        "return replace(after, trail=(*job.trail, edge))",
        "return replace(after, trail=(edge,))",
        "only the last edge of a decision is recorded",
    ),
    _in(
        "lifecycle.py",
        "if job.due_at is not None and job.due_at > now:",
        "if job.due_at is not None and job.due_at >= now:",
        "a job that is due now is delayed",
    ),
    _in(
        "lifecycle.py",
        "lease = Lease(token, job.lease_version + 1, worker, now + job.lease_ttl)",
        "lease = Lease(token, job.attempt + 1, worker, now + job.lease_ttl)",
        "lease versions repeat after a job was given back",
    ),
    _in(
        "lifecycle.py",
        "attempt=job.attempt + 1,\n        lease=lease,",
        "attempt=job.attempt + 2,\n        lease=lease,",
        "an attempt counts twice",
    ),
    _in(
        "lifecycle.py",
        "if job.cancel is not None or failure.category is FailureCategory.CANCELLED:",
        "if failure.category is FailureCategory.CANCELLED:",
        "a wish to cancel is lost when the attempt fails",
    ),
    _in(
        "lifecycle.py",
        "    if job.attempt >= job.max_attempts:\n"
        '        reason = f"attempt {job.attempt} of {job.max_attempts} failed',
        "    if job.attempt > job.max_attempts:\n"
        '        reason = f"attempt {job.attempt} of {job.max_attempts} failed',
        "one attempt too many after a failure",
    ),
    _in(
        "lifecycle.py",
        "    if job.attempt >= job.max_attempts:\n"
        '        reason = f"{why} in attempt',
        "    if job.attempt > job.max_attempts:\n"
        '        reason = f"{why} in attempt',
        "a job that kills its worker is tried once too often",
    ),
    _in(
        "lifecycle.py",
        "    delay = failure.retry_after\n    if delay is None:\n",
        "    delay = None\n    if delay is None:\n",
        "retry_after is ignored",
    ),
    _in(
        "lifecycle.py",
        "return job.retry_timeouts",
        "return True",
        "timeouts are retried against the job's wish",
    ),
    _in(
        "lifecycle.py",
        "    return replace(lapsed, lease=job.lease)",
        "    return lapsed",
        "a lapse forgets the lease, so a late answer is thrown away",
    ),
    _in(
        "lifecycle.py",
        "        attempt=job.attempt - 1,\n",
        "        attempt=job.attempt,\n",
        "giving a job back burns an attempt",
    ),
    _in(
        "lifecycle.py",
        "        and job.lease.token == token\n        and job.lease.until is not None",
        "        and job.lease.until is not None",
        "anybody may answer late",
    ),
    _in(
        "lifecycle.py",
        "job.lease.token == token and job.lease.until is None",
        "job.lease.until is None",
        "somebody else's answer passes for a repeat",
    ),
    _in(
        "lifecycle.py",
        "    if job.state in TERMINAL:\n        return job\n    if job.state is not R:",
        "    if job.state is not R:",
        "cancelling an ended job raises",
    ),
    _in(
        "lifecycle.py",
        "force = force or (job.cancel is not None and job.cancel.force)",
        "force = bool(force)",
        "a second, gentler wish takes force back",
    ),
    _in(
        "lifecycle.py",
        "return replace(job, cancel=request, revision=job.revision + 1)",
        "return replace(job, cancel=request)",
        "a wish to cancel does not move the revision, so a retry overwrites it",
    ),
    _in(
        "lifecycle.py",
        "return free if job.depends_on else enqueued",
        "return enqueued",
        "releasing a held job skips its dependencies",
    ),
    _in(
        "lifecycle.py",
        "generation=job.generation + 1,",
        "generation=job.generation,",
        "a reopened job is no new generation",
    ),
    _in(
        "lifecycle.py",
        "max_attempts=max(job.max_attempts, attempt + 1),",
        "max_attempts=job.max_attempts,",
        "a reopened job has no attempt left",
    ),
    _in(
        "lifecycle.py",
        "        cancel=None,\n        lease=replace(",
        "        lease=replace(",
        "a reopened job is still wanted to stop",
    ),
    _in(
        "policy.py",
        "return max(timedelta(0), min(delay, self.max_delay))",
        "return max(timedelta(0), delay)",
        "the cap on delays is ignored",
    ),
    _in(
        "policy.py",
        "return self._power(attempt - 1)",
        "return self._power(attempt)",
        "the first retry waits twice as long",
    ),
    _in(
        "policy.py",
        "return self._capped(delay * (1 + JITTER_SHARE * jitter))",
        "return delay * (1 + JITTER_SHARE * jitter)",
        "jitter exceeds the cap",
    ),
    _in(
        "dependencies.py",
        "if all(state is State.COMPLETED for _, state in parents):",
        "if any(state is State.COMPLETED for _, state in parents):",
        "a dependent is released early",
    ),
    _in(
        "dependencies.py",
        "if state in TERMINAL and state is not State.COMPLETED:",
        "if state is State.FAILED:",
        "only FAILED is inherited",
    ),
    _in(
        "dependencies.py",
        "return min((own, *parents))",
        "return max((own, *parents))",
        "a dependent takes the least urgent priority",
    ),
    _in(
        "form.py",
        "return DedupeKey(str(self._asked.type), key, digest, self._now + window)",
        'return DedupeKey("", key, digest, self._now + window)',
        "keys of different types collide",
    ),
    _in(
        "form.py",
        'return DedupeKey(f"spawn:{spawner.job_id}", spawner.key, "", None)',
        'return DedupeKey("spawn", spawner.key, "", None)',
        "spawn keys of different jobs collide",
    ),
    _in(
        "submission.py",
        "return job if job.held or job.depends_on else lifecycle.enqueued(job, now=now)",
        "return job if job.depends_on else lifecycle.enqueued(job, now=now)",
        "a held job is queued at once",
    ),
)  # fmt: skip
