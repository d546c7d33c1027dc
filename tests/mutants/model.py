"""Bugs in the rules: lifecycle, backoff, dependencies, submission."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

LAYERS = {
    "model/lifecycle.py": ("lifecycle", "memory verbs"),
    "model/policy.py": ("policy",),
    "model/dependencies.py": ("dependencies",),
    "model/versions.py": ("versions",),
    "model/pace.py": ("pace", "memory verbs"),
    "worker/around.py": ("seams",),
    "tasks/scope.py": ("seams",),
}


def _in(file: str, old: str, new: str, why: str) -> Mutant:
    return Mutant(file, old, new, why, LAYERS.get(file, ("memory verbs",)))


MUTANTS = (
    _in(
        "model/pace.py",
        "return found if 0 < found <= self._most else 0",
        "return max(0, found)",
        "a rate stays used up for hours after the clock was set back",
    ),
    _in(
        "model/pace.py",
        "-(-debt // self.per)",
        "debt // self.per",
        "one job more than the burst starts",
    ),
    _in(
        "model/pace.py",
        "return self.rate + rest, ahead",
        "return self.rate, ahead",
        "the parts of a microsecond are lost",
    ),
    _in(
        "model/versions.py",
        "    return replace(back, failure=noted)",
        "    return back",
        "a job that waits for another version does not say so",
    ),
    _in(
        "model/versions.py",
        "min(job.expires_at, job.created_at + PATIENCE)",
        "job.expires_at",
        "a payload that no version knows is tried for ever",
    ),
    _in(
        "model/versions.py",
        "FIRST_WAIT * 2**doublings",
        "FIRST_WAIT",
        "jobs that wait for another version are claimed all the time",
    ),
    _in(
        "worker/around.py",
        "        return changed[-1] if changed else outcome",
        "        return outcome",
        "an exception that middleware raises at its end is lost",
    ),
    _in(
        "tasks/scope.py",
        "                variable.set(value)",
        "                pass",
        "what async middleware sets is not there in a thread",
    ),
    _in(
        "model/policy.py",
        "        if factor >= self.max_delay / self.initial_delay:\n"
        "            return self.max_delay\n",
        "",
        "the cap on delays is ignored",
    ),
    _in(
        "model/lifecycle.py",
        "(R, Event.GIVE_BACK, W),",
        "(R, Event.GIVE_BACK, W),\n        (DONE, Event.CLAIM, R),",
        "a completed job may be claimed",
    ),
    _in(
        "model/lifecycle.py",
        "if (job.state, event, to) not in TABLE:",
        "if (job.state, to) not in EDGES:",
        "an event may take another event's edge",
    ),
    _in(
        "model/lifecycle.py",
        "revision=job.revision + 1, updated_at=now, **changes)",
        "revision=job.revision, updated_at=now, **changes)",
        "a step does not move the revision, so nothing fences",
    ),
    _in(
        "model/lifecycle.py",
        'force_setattr(after, "trail", (*job.trail, edge))',
        'force_setattr(after, "trail", (edge,))',
        "only the last edge of a decision is recorded",
    ),
    _in(
        "model/lifecycle.py",
        "if job.due_at is not None and job.due_at > now:",
        "if job.due_at is not None and job.due_at >= now:",
        "a job that is due now is delayed",
    ),
    _in(
        "model/lifecycle.py",
        "Lease(token, job.lease_version + 1, worker,",
        "Lease(token, job.attempt + 1, worker,",
        "lease versions repeat after a job was given back",
    ),
    _in(
        "model/lifecycle.py",
        "attempt=job.attempt + 1,\n        lease=Lease(",
        "attempt=job.attempt + 2,\n        lease=Lease(",
        "an attempt counts twice",
    ),
    _in(
        "model/lifecycle.py",
        "if job.cancel is not None or failure.category is FailureCategory.CANCELLED:",
        "if failure.category is FailureCategory.CANCELLED:",
        "a request to cancel is lost when the attempt fails",
    ),
    _in(
        "model/lifecycle.py",
        "    if job.attempt >= job.max_attempts:\n"
        '        reason = f"attempt {job.attempt} of {attempt_limit(job)} failed',
        "    if job.attempt > job.max_attempts:\n"
        '        reason = f"attempt {job.attempt} of {attempt_limit(job)} failed',
        "one attempt too many after a failure",
    ),
    _in(
        "model/lifecycle.py",
        "    delay = failure.retry_after\n    if delay is None:\n",
        "    delay = None\n    if delay is None:\n",
        "retry_after is ignored",
    ),
    _in(
        "model/lifecycle.py",
        "return job.retry_timeouts",
        "return True",
        "timeouts are retried although the job forbids it",
    ),
    _in(
        "model/lifecycle.py",
        "return job.retry_crashes",
        "return True",
        "crashes are retried although the job forbids it",
    ),
    _in(
        "model/lifecycle.py",
        "        job, Event.LAPSE, failure, now=now, delay=delay\n",
        "        replace(job, lease=_answered(job)), Event.LAPSE, failure, now=now, delay=delay\n",
        "a lapse ends the lease, so a late outcome is dropped",
    ),
    _in(
        "model/lifecycle.py",
        "        attempt=job.attempt - 1,\n",
        "        attempt=job.attempt,\n",
        "giving a job back counts as an attempt",
    ),
    _in(
        "model/lifecycle.py",
        "        and job.lease.token == token\n        and job.lease.until is not None",
        "        and job.lease.until is not None",
        "any worker may report a late outcome",
    ),
    _in(
        "model/lifecycle.py",
        "job.lease.token == token and job.lease.until is None",
        "job.lease.until is None",
        "the outcome of another worker counts as a repeat",
    ),
    _in(
        "model/lifecycle.py",
        "    if job.state in TERMINAL:\n        return job\n    reason = clean(",
        "    reason = clean(",
        "cancelling an ended job raises",
    ),
    _in(
        "model/lifecycle.py",
        "force = force or (job.cancel is not None and job.cancel.force)",
        "force = bool(force)",
        "a second request without force withdraws force",
    ),
    _in(
        "model/lifecycle.py",
        "cancel=CancelRequest(reason, force, now), revision=job.revision + 1)",
        "cancel=CancelRequest(reason, force, now))",
        "a request to cancel does not move the revision, so a retry overwrites it",
    ),
    _in(
        "model/lifecycle.py",
        "return free if job.depends_on else enqueued",
        "return enqueued",
        "releasing a held job skips its dependencies",
    ),
    _in(
        "model/lifecycle.py",
        "generation=job.generation + 1,",
        "generation=job.generation,",
        "a reopened job is not a new generation",
    ),
    _in(
        "model/lifecycle.py",
        "        attempt=attempt,\n        generation=",
        "        attempt=attempt,\n        max_attempts=attempt + 1,\n        generation=",
        "a retry changes the limit that a reset restores",
    ),
    _in(
        "model/lifecycle.py",
        "        cancel=None,\n        lease=replace(",
        "        lease=replace(",
        "a reopened job still has its request to cancel",
    ),
    _in(
        "model/policy.py",
        "return max(timedelta(0), min(delay, self.max_delay))",
        "return max(timedelta(0), delay)",
        "the cap on a handler's own delays is ignored",
    ),
    _in(
        "model/policy.py",
        "return self._scaled(self._power(attempt - 1))",
        "return self._scaled(self._power(attempt) + 0)",
        "the first retry waits twice as long",
    ),
    _in(
        "model/policy.py",
        "return delay + min(delay * (JITTER_SHARE * jitter), self.max_delay - delay)",
        "return delay + delay * (JITTER_SHARE * jitter)",
        "jitter exceeds the cap",
    ),
    _in(
        "model/dependencies.py",
        "if all(state is State.COMPLETED for _, state in parents):",
        "if any(state is State.COMPLETED for _, state in parents):",
        "a dependent is released early",
    ),
    _in(
        "model/dependencies.py",
        "if state in TERMINAL and state is not State.COMPLETED:",
        "if state is State.FAILED:",
        "only FAILED is inherited",
    ),
    _in(
        "model/dependencies.py",
        "return min((own, *parents))",
        "return max((own, *parents))",
        "a dependent takes the least urgent priority",
    ),
    _in(
        "model/validation.py",
        "DedupeKey(str(self._submission.type), value, digest, expires_at)",
        'DedupeKey("", value, digest, expires_at)',
        "keys of different types collide",
    ),
    _in(
        "model/submission.py",
        'f"{self.job_id}\\0{self.key}"',
        'f"{self.key}"',
        "spawn keys of different jobs collide",
    ),
    _in(
        "model/acceptance.py",
        "    inherited = replace(own, headers=read_extra(spawner.extra).headers)",
        "    inherited = own",
        "a spawned job does not inherit the headers of its spawner",
    ),
    _in(
        "model/payload.py",
        "_canonical.encode(_exact.decode(data))",
        "data",
        "another order of keys is another payload",
    ),
    _in(
        "model/clock_changes.py",
        "+ job.lease_ttl + TOLERANCE",
        "+ timedelta(days=9)",
        "a dead worker keeps its jobs for hours after the clock was set back",
    ),
    _in(
        "model/clock_changes.py",
        " or job.due_at == read_extra(job.extra).scheduled_at",
        "",
        "a job for an instant runs hours before it after the clock was set back",
    ),
    _in(
        "maintenance/reaper.py",
        "if change and change.skipped_end_of(job)",
        "if False",
        "jobs of live workers run twice after the clock was set forward",
    ),
    _in(
        "model/acceptance.py",
        "return job if job.held or job.depends_on else lifecycle.enqueued(job, now=now)",
        "return job if job.depends_on else lifecycle.enqueued(job, now=now)",
        "a held job is queued at once",
    ),
)  # fmt: skip
