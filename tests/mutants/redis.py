"""Bugs in the scripts and the client of the Redis store."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

CONFORMANCE = ("redis verbs",)
WIRE = ("redis wire",)


def _in(file: str, old: str, new: str, why: str, layers: tuple[str, ...] = CONFORMANCE) -> Mutant:
    return Mutant(f"store/redis/{file}", old, new, why, layers)


MUTANTS = (
    _in(
        "scripts/swap.lua",
        "  if j.revision ~= c.rev then return false end\n",
        "",
        "a change decided on an older job is written",
    ),
    _in(
        "scripts/swap.lua",
        "  if c.token and c.token ~= j.token then return false end\n",
        "",
        "a stale token settles",
    ),
    _in(
        "scripts/swap.lua",
        "  return not c['until'] or j.lease_end == c['until']",
        "  return true",
        "the reaper wins over a heartbeat",
    ),
    _in(
        "scripts/extend.lua",
        "j.lease_end and holds(j, fence[2])",
        "j.lease_end",
        "any token renews a lease",
    ),
    _in(
        "scripts/note.lua",
        "if j and j.state == 'RUNNING' and holds(j, n.token) then",
        "if j and j.token == n.token then",
        "a job that stopped running keeps notes",
    ),
    _in(
        "scripts/swap.lua",
        "  if tonumber(revision) ~= g.rev or v[3]",
        "  if v[3]",
        "the short way completes an older job",
    ),
    _in(
        "scripts/swap.lua",
        "  if v[5] or v[6]",
        "  if v[6]",
        "the short way notifies no dependents",
    ),
    _in(
        "scripts/claim.lua",
        "  if q.is_unlimited and claim_plain(",
        "  if claim_plain(",
        "the short way knows no limits",
    ),
    _in(
        "client.py",
        '            ("INCR", f"{settings.prefix}:hf:confirmed"),\n',
        '            ("PING",),\n',
        "a repeat counts as confirmed",
        ("redis durability",),
    ),
    _in(
        "scripts/claim.lua",
        "    if not q.paused and not q.unsupported then\n",
        "    if not q.unsupported then\n",
        "a paused queue is served",
    ),
    _in(
        "scripts/claim.lua",
        "if types and not types[v[1]] then",
        "if false then",
        "claim ignores the requested types",
    ),
    _in(
        "scripts/lib/queue.lua",
        "int(priority * 4294967296 + pc)",
        "int(pc)",
        "priorities above 0 are served as one",
    ),
    _in(
        "scripts/lib/limits.lua",
        "running_in(scope[1], scope[2], q, j) >= rule.concurrency",
        "running_in(scope[1], scope[2], q, j) > rule.concurrency",
        "one job too many runs under a limit",
    ),
    _in(
        "scripts/lib/limits.lua",
        "  if left <= 0 or left > rule.per then",
        "  if left < 0 or left > rule.per then",
        "a rate window ends an instant too late",
    ),
    _in(
        "scripts/lib/limits.lua",
        "  if left <= 0 or left > rule.per then",
        "  if left <= 0 then",
        "a rate window stays full for hours after the clock was set back",
    ),
    _in(
        "scripts/lib/queue.lua",
        " and started < CLOSED_BY_NODE then",
        " then",
        "a queue that a BullMQ client closed for a time is served",
        layers=("redis versions",),
    ),
    _in(
        "scripts/expire_windows.lua",
        "if not ends or ends <= now then",
        "if false then",
        "rate windows are kept for good",
    ),
    _in(
        "scripts/promote.lua",
        "  if at <= now and count < limit then",
        "  if at < now and count < limit then",
        "a job becomes ready an instant too late",
    ),
    _in(
        "scripts/promote.lua",
        "  if a[1] ~= b[1] then return a[1] < b[1] end",
        "  if a[1] ~= b[1] then return a[1] > b[1] end",
        "due jobs become ready in the wrong order",
    ),
    _in(
        "scripts/add.lua",
        "if owner and digest ~= job.digest then return",
        "if false then return",
        "a key is reused for another payload",
    ),
    _in(
        "scripts/add.lua",
        "  elseif tonumber(expires) <= now then\n",
        "  elseif false then\n",
        "a key outlives its window",
    ),
    _in(
        "scripts/lib/forget.lua",
        "'^[^|]*||(.*)$'",
        "'^[^|]*|[^|]*|(.*)$'",
        "a key ends with its job",
    ),
    _in(
        "scripts/add.lua",
        "if atomic and refused then",
        "if false then",
        "half of an atomic call is written",
    ),
    _in(
        "scripts/add.lua",
        "  if not spawner or spawner.state ~= 'RUNNING' or not holds(spawner, ARGV[9]) then",
        "  if not spawner then",
        "a stale spawner spawns",
    ),
    _in(
        "scripts/add.lua",
        "      if not exists(id) then\n",
        "      if true then\n",
        "a batch that is repeated is written again",
        ("redis batches",),
    ),
    _in(
        "scripts/add.lua",
        "  if q.unsupported then\n",
        "  if false then\n",
        "jobs go to a queue of an unknown version",
        ("redis versions",),
    ),
    _in(
        "scripts/swap.lua",
        "  buffer_all(q, 'completed', finished)\n",
        "",
        "Node does not find jobs that were completed together",
        ("redis batches",),
    ),
    _in(
        "scripts/claim.lua",
        "    if v[i] ~= other[i] then return false end\n",
        "",
        "a job is taken for the one before it",
        ("redis batches",),
    ),
    _in(
        "scripts/lib/queue.lua",
        "in_order = in_order and last[size + 1 - i] == ids[i]",
        "in_order = in_order",
        "jobs that run leave the list with one that ended",
        ("redis batches",),
    ),
    _in(
        "wake.py",
        "            if not self._waiters:\n                await self._return_marker(queue)\n",
        "",
        "a marker without a waiter is kept",
        ("redis arrivals",),
    ),
    _in(
        "scripts/lib/links.lua",
        "  local ended = state and TERMINAL[state] and state or ''",
        "  local ended = ''",
        "a dependency that ended before the submission is missed",
    ),
    _in(
        "scripts/lib/links.lua",
        "  return open == 0 or unsuccessful > 0 and kind ~= 'AFTER_ALL'",
        "  return open == 0",
        "a failed dependency is not reported while others are open",
    ),
    _in(
        "scripts/prune.lua",
        " and not has_live_children(j.job_id)",
        "",
        "a job that others depend on is pruned",
    ),
    _in(
        "scripts/delete.lua",
        "if j and TERMINAL[j.state] and not has_live_children(job_id) then",
        "if j and TERMINAL[j.state] then",
        "a job that others depend on is deleted",
    ),
    _in(
        "scripts/lock.lua",
        "tonumber(ends) > now",
        "tonumber(ends) >= now",
        "a name stays held an instant too long",
    ),
    _in(
        "scripts/lib/job.lua",
        "    count(j.counted_level == j.level and kind or kind_of(j.q, j.type, j.counted_level)",
        "    count(kind",
        "counters drift when a job changes its priority",
    ),
    _in(
        "scripts/lib/sync.lua",
        "    local taken_over = restarted and j.state == 'RUNNING'",
        "    local taken_over = false",
        "a takeover by a BullMQ worker leaves no trace in the history",
        WIRE,
    ),
    _in(
        "scripts/lib/sync.lua",
        "    return 'due', 'SCHEDULED', 'time reached'",
        "    return 'enqueue', 'SCHEDULED', 'time reached'",
        "a job that Node made ready takes an edge outside the table",
        ("redis edges",),
    ),
    _in(
        "scripts/lib/job.lua",
        "  if lock then return lock == token end\n  return is_active(j.q, j.id)\n",
        "  return true\n",
        "a holder whose lock another worker has answers",
        ("redis fence",),
    ),
    _in(
        "scripts/swap.lua",
        "      held[first + i - 1] = childless and lock == g.token\n",
        "      held[first + i - 1] = childless\n",
        "the short way takes a stale token",
        ("redis fence",),
    ),
    _in(
        "scripts/lib/sync.lua",
        "  if j and j.number and q.caught_up and not was_started_again(j) then return j end",
        "  if j and j.number and q.caught_up then return j end",
        "a start by Node without an event is missed",
        ("redis fence",),
    ),
    _in(
        "scripts/overdue.lua",
        "return j and (renewed(j) or is_for_bullmq(j)) end",
        "return j and renewed(j) end",
        "the reaper fails a job whose Node worker died",
        ("redis crashes",),
    ),
    _in(
        "scripts/overdue.lua",
        "  if not q.unsupported and is_served(q) then ",
        "  if not q.unsupported then ",
        "jobs of queues that only Node serves are moved",
        ("redis crashes",),
    ),
    _in(
        "scripts/lib/flow.lua",
        "    erase_child(j)\n    return forget(j.job_id, j.state)\n",
        "    erase(j.q, j.id)\n    return forget(j.job_id, j.state)\n",
        "a parent waits for ever for a deleted child",
        ("redis flows",),
    ),
    _in(
        "scripts/claim.lua",
        "  keep_ended(j, false, now_ms)\n",
        "  call('ZADD', q.base .. 'failed', int(now_ms), j.id)\n",
        "a parent that fails through its child ignores its own retention",
        ("redis flows",),
    ),
    _in(
        "scripts/swap.lua",
        "    if code then return {0, reply(j), code, text} end\n",
        "",
        "a job with pending children completes",
        ("redis flows",),
    ),
    _in(
        "scripts/lib/sync.lua",
        "  notify_children(job_id, to or TERMINAL[state] and state or 'CANCELLED')",
        "  notify_children(job_id, 'CANCELLED')",
        "a dependency that Node completed and deleted counts as cancelled",
        ("redis flows",),
    ),
    _in(
        "client.py",
        "        except StoreError:\n            return False\n",
        "        except NoFunctions:\n            return False\n",
        "a server that words the refusal of functions in another way is not served",
        ("redis library",),
    ),
    _in(
        "scripts/claim.lua",
        "  if deferred_failure_of(j) then",
        "  if false then",
        "a job with a deferred failure is run",
        WIRE,
    ),
    _in(
        "scripts/lib/flow.lua",
        "    if call('SCARD', key .. ':dependencies') == 0 then release_parent(q, id) end",
        "    release_parent(q, id)",
        "a flow's parent runs before all its children have",
        WIRE,
    ),
    _in(
        "scripts/lib/flow.lua",
        "  if call('GET', key) == j.id and call('PTTL', key) == -1 then call('DEL', key) end",
        "  call('DEL', key)",
        "a throttling key is freed with its job",
        WIRE,
    ),
    _in(
        "scripts/configure.lua",
        "  merge('paused', 'wait')\n",
        "  if call('EXISTS', q.base .. 'paused') == 1 then\n"
        "    call('RENAME', q.base .. 'paused', q.base .. 'wait')\n  end\n",
        "resuming overwrites a list",
        WIRE,
    ),
    _in(
        "scripts/advance.lua",
        "if not current or 'repeat:' .. scheduler_id .. ':' .. int(tonumber(current)) ~= ARGV[9]"
        " then",
        "if not current then",
        "a retried tick makes another next one",
        WIRE,
    ),
    _in(
        "scripts/promote.lua",
        "    q.needs_marker = true\n",
        "",
        "a marker that a dead worker removed is gone",
        ("redis arrivals",),
    ),
    _in(
        "scripts/lib/job.lua",
        "function() event_groups, event_count, events_added = {}, 0, 0 end",
        "function()\n"
        "  event_groups, event_count, events_added = event_groups or {}, event_count or 0, 0\n"
        "end",
        "a call emits events that one before it failed to emit",
        ("redis library",),
    ),
    _in(
        "scripts/lib/links.lua",
        "  return ENDED_SUFFICES[kind] and TERMINAL[state] and state or ''",
        "  return TERMINAL[state] and state or ''",
        "a retried job fails again through the former end of its dependency",
    ),
    _in(
        "scripts/swap.lua",
        "  return c.state == 'PENDING' and TERMINAL[old] and wait_again(j)",
        "  return false",
        "a retried job does not wait for its dependencies again",
    ),
)
