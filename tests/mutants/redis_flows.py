"""Bugs in what the Redis store shows BullMQ of dependencies, and in its deduplication."""

from __future__ import annotations

from tests.mutants.mutant import Mutant


def _in(file: str, old: str, new: str, why: str, layer: str = "redis dependencies") -> Mutant:
    return Mutant(f"store/redis/{file}", old, new, why, (layer,))


def _duplicates(old: str, new: str, why: str) -> Mutant:
    return _in("scripts/lib/duplicates.lua", old, new, why, "redis deduplication")


MUTANTS = (
    _duplicates(
        "    job.dedup_replaces = de.replace and is_delayed\n",
        "    job.dedup_replaces = de.replace\n",
        "a job that is no longer delayed is replaced",
    ),
    _duplicates(
        "  deduplicated[job.dedup_key] = {id = job.id, is_delayed = job.now[STATE] == 'DELAYED'}\n",
        "",
        "duplicates within one batch are all added",
    ),
    _duplicates(
        "    forget(old.job_id, old.state)\n",
        "",
        "a job that was replaced is still found",
    ),
    _duplicates(
        "  elseif de.extend then\n    hold_key(job, owner)\n",
        "",
        "a duplicate does not extend the ttl",
    ),
    _duplicates(
        "    keep_for_later(q, job)\n",
        "",
        "the newest duplicate of a running job is lost",
    ),
    _duplicates(
        "q.uses_paused_list then emit(q, 'debounced'",
        "false then emit(q, 'debounced'",
        "listeners of BullMQ 5 miss a debounced job",
    ),
    _in(
        "scripts/delete.lua",
        "    if deduplication_of(j) then forget_deduplication(j) end\n",
        "",
        "a deleted job holds its deduplication id",
        "redis deduplication",
    ),
    _in(
        "scripts/lib/links.lua",
        "    call('SADD', wait.key .. ':dependencies', key_of(dependency))\n",
        "",
        "Node does not see a dependency as a pending child",
    ),
    _in(
        "scripts/lib/links.lua",
        "  if wait.held or wait.kind == 'AFTER_ANY' and call('HLEN', wait.edges) > 1 "
        "then return end\n",
        "",
        "Node releases a job that is held, or waits for any of several",
    ),
    _in(
        "scripts/lib/links.lua",
        "  if not v[1] or v[2] and call('EXISTS', v[2]) == 1 then return end\n",
        "",
        "a child changes its parent, and the first one waits on",
    ),
    _in(
        "scripts/lib/links.lua",
        "    call('HSET', wait.key, 'defa', 'child ' .. child .. ' failed')\n",
        "",
        "Node runs a job one of whose dependencies failed under Python",
    ),
    _in(
        "scripts/lib/links.lua",
        "      if was_open then show_end(wait, key_of(job_id), state, value) end\n",
        "",
        "the results of children that Python ran are missing for Node",
    ),
    _in(
        "scripts/lib/links.lua",
        "was_removed and not was_open and 'COMPLETED' or state",
        "state",
        "a job is cancelled whose child Node removed",
    ),
    _in(
        "scripts/lib/links.lua",
        "      call('ZREM', j.key .. ':unsuccessful', child)\n",
        "",
        "a retried job fails for a child that has completed meanwhile",
    ),
    _in(
        "scripts/swap.lua",
        "    if not TERMINAL[c.state] then release_from_children(j) end\n",
        "",
        "a job that needs any end cannot complete while others are open",
    ),
    _in(
        "scripts/lib/sync.lua",
        "  if to == 'SCHEDULED' and deferred_failure_of(j) then return 'PENDING' end\n",
        "",
        "a job whose dependency Node failed waits for a worker of its queue to end",
    ),
    _in(
        "scripts/lib/sync.lua",
        "      to = j.ttl and inherited_end(j) or to\n",
        "",
        "a job that Node fails for its child does not end like the child",
    ),
    _in(
        "scripts/lib/sync.lua",
        "  if to ~= 'DELAYED' or not own_due then return to, due end\n",
        "  if own_due or not own_due then return to, due end\n",
        "a job that Node releases is due later than its own time",
    ),
    _in(
        "scripts/lib/queue.lua",
        " or remove_ready(q, id, priority)\n  elseif state == 'COMPLETED'",
        "\n  elseif state == 'COMPLETED'",
        "a job that ended by our verdict stays among the ready ones",
    ),
)
