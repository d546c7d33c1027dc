-- claim: claims ready jobs under a new lease.
-- edges: SCHEDULED -> RUNNING; a job with a deferred failure of BullMQ continues to FAILED or
-- DEAD_LETTER
-- ARGV[7] how many; ARGV[8] worker; ARGV[9] token; ARGV[10] msgpack {queues, types or false}
-- returns: replies for the jobs claimed, or {id, data} for one that differs from the one before by
-- these only; an error when none of the queues is supported
-- needs: base queue job links forget flow sync limits
local SCAN = 1000 -- ready jobs of one queue that a call looks at for a matching one
local remaining, worker, token, types, claimed, other_types

local function start(q, j)
  local ttl = j.ttl or tonumber(ARGV[5])
  j.starts = j.starts + 1
  j.token, j.worker, j.lease_end = token, worker, now + ttl
  put(j, 'ats', j.starts)
  put(j, 'processedOn', int(now_ms))
  put(j, 'pb', worker)
  put(j, 'hf:tok', token)
  j.started = not_before(now, j.updated)
  j.now[STARTED], j.now[LEASE_END] = int(j.started), int(j.lease_end)
  move(j, 'claim', 'RUNNING', now, 'claimed')
  delete_locks(q)
  call('SET', j.key .. ':lock', token, 'PX', int(math.max(1, math.ceil(ttl / 1000))))
  buffer(q, 'active', j.id)
  emit(q, 'active', 'jobId', j.id, 'prev', 'waiting')
end

-- BullMQ defers the failure of a job that stalled too often or whose child failed to its next
-- claim: the job fails and does not run.
local function fail_deferred(q, j, failure)
  start(q, j)
  local state = string.find(failure, 'stalled', 1, true) and 'DEAD_LETTER' or 'FAILED'
  j.attempts = j.attempts + 1
  put(j, 'atm', j.attempts)
  put(j, 'failedReason', failure)
  add_trace(j, failure)
  put(j, 'finishedOn', int(now_ms))
  j.lease_end = nil
  j.now[FINISHED], j.now[LEASE_END], j.now[FOREIGN_FAILURE] = int(now), '', '1'
  move(j, state == 'FAILED' and 'fail' or 'exhaust', state, now, failure)
  write_buffers(q)
  remove_from_place(q, j.id, 'RUNNING', j.priority)
  call('HDEL', j.key, 'defa')
  emit(q, 'failed', 'jobId', j.id, 'failedReason', failure, 'prev', 'active')
  if j.attempts >= (tonumber(options_of(j).attempts) or 0) then emit_exhausted(j, j.attempts) end
  save(j)
  q.has_ended = true
  collect_metrics(q, 'failed', now_ms, 1)
  if j.has_children then notify_children(j.job_id, j.state) end
  if parent_key_of(j) then notify_parent(j, false, failure) end
  if deduplication_of(j) then release_deduplication(j) end
  keep_ended(j, false, now_ms)
end

-- The common case, a ready job of ours that was never started and has no limit, needs no table for
-- the job. Such jobs in a row mostly differ by id, payload and number only, so they form a group
-- whose new values are computed once.
local PLAIN_FIELDS = {
  'name', 'hf:now', 'data', 'priority', 'ats', 'defa', 'hf:ttl', 'hf:limit', 'hf:job', 'hf:rest',
  'hf:deps',
}
local PLAIN = '^(SCHEDULED|' .. ANY5 .. ANY .. ANY .. ANY .. ')(%d+)(|%d+|%d+|[^|]*|[^|]*||%d+)$'
local BEFORE = '^SCHEDULED|(%d+)|(%d+)|([^|]*)|(%d+)|[^|]*|([^|]*)|(%d+)|'
local FEW = 4 -- up to so many jobs, removal from an index by range is not cheaper
local moment, millis, worker_json, moves, lease_ends, started_ids, spans, group

local function is_alike(v, other)
  for i = 4, #PLAIN_FIELDS do
    if v[i] ~= other[i] then return false end
  end
  return v[1] == other[1]
end
-- The text of hf:now before and after the job's number decides whether a job may join a group.
local function new_group(q, v, before, after)
  local revision, updated, due, scheduled, finished, expires = string.match(before or '', BEFORE)
  local ttl = within(v[7], MAX_EXACT)
  if not revision or not ttl or v[5] or v[6] or v[8] or tonumber(updated) > now then return nil end
  local histories, held, stalls, created = string.match(after, '^|(%d+)|%d+|([^|]*)|([^|]*)||(%d+)$')
  local lease_end = now + ttl
  histories = int(histories + 1)
  return {
    q = q, v = v, before = before, after = after, ids = {}, history_field = 'hf:h' .. histories,
    over = math.min(lease_end, tonumber(expires)), lock = int(math.max(1, math.ceil(ttl / 1000))),
    scheduled = tonumber(scheduled),
    edge = '["claim","SCHEDULED","RUNNING",' .. moment .. ',"claimed",1,1,' .. worker_json .. ',null]',
    new_before = 'RUNNING|' .. int(revision + 1) .. '|' .. moment .. '|' .. due .. '|' .. scheduled .. '|' ..
      moment .. '|' .. finished .. '|' .. expires .. '|' .. int(lease_end) .. '|',
    new_after = '|' .. histories .. '|1|' .. held .. '|' .. stalls .. '||' .. created,
  }
end
-- Record the edges of a group before any other edge is recorded.
local function close_group()
  local g = group
  if not g then return end
  group = nil
  local q, size, type = g.q, #g.ids, g.v[1]
  buffer_all(q, 'active', g.ids)
  append(moves, add_events(g.ids, type, q.name, {g.edge}))
  for _, id in ipairs(g.ids) do
    lease_ends[#lease_ends + 1] = g.over
    lease_ends[#lease_ends + 1] = id
  end
  if g.is_consecutive and size > FEW then
    spans[#spans + 1] = {int(g.first), int(g.last), g.ids}
  else
    append(started_ids, g.ids)
  end
  local kind = kind_of(q, type, level_of(tonumber(g.v[4]) or 0))
  measure(kind.prefix, kind.type, 'wait', now, now - g.scheduled, size)
  count(kind, 'SCHEDULED', -size)
  count(kind, 'RUNNING', size)
end
local function claim_plain(q, id, key, v)
  local before, number, after = string.match(v[2] or '', PLAIN)
  local g = group
  if g and g.q == q and g.before == before and g.after == after and is_alike(v, g.v) then
    claimed[#claimed + 1] = {id, v[3]}
  else
    g = new_group(q, v, before, after)
    if not g then return false end
    close_group()
    group = g
    claimed[#claimed + 1] = {id, q.name, {
      v[1], v[4], '1', false, false, false, false, v[7], false, g.new_before .. number .. g.new_after, token,
      false, worker, v[3], false, v[9], v[10], v[11], false, false,
    }}
  end
  call('HSET', key, 'ats', 1, 'processedOn', millis, 'pb', worker, 'hf:tok', token, g.history_field, g.edge,
    'hf:now', g.new_before .. number .. g.new_after)
  call('SET', key .. ':lock', token, 'PX', g.lock)
  emit(q, 'active', 'jobId', id, 'prev', 'waiting')
  local n = tonumber(number)
  g.is_consecutive = #g.ids == 0 or g.is_consecutive and n == g.last + 1
  g.first, g.last = g.first or n, n
  g.ids[#g.ids + 1] = id
  remaining = remaining - 1
  return true
end
-- Jobs that were submitted together have consecutive numbers, so one range removes them all.
local function remove_from_index(key, span)
  if call('ZCOUNT', key, span[1], span[2]) == #span[3] then
    call('ZREMRANGEBYSCORE', key, span[1], span[2])
  else
    append(started_ids, span[3])
  end
end
local function write_claimed()
  close_group()
  flush_indexes() -- earlier changes by BullMQ clients, before newer ones are written here
  call_in_slices('ZADD', shared .. 'moved', moves)
  call_in_slices('ZADD', shared .. 'over', lease_ends)
  for _, span in ipairs(spans) do remove_from_index(shared .. 's:SCHEDULED', span) end
  call_in_slices('ZREM', shared .. 's:SCHEDULED', started_ids)
end

-- What BullMQ's option maxStartedAttempts of a worker says about a job of BullMQ.
local function started_too_often(j)
  local most = setting('max_started_attempts')
  return most and not j.ttl and j.starts >= most and 'job started more than allowable limit'
end

local function claim_other(q, id)
  local j = load_job(q, id)
  if not j.number or j.state ~= 'SCHEDULED' or was_started_again(j) then
    j = reconcile(q, id) and load_job(q, id)
    if not j then return nil end
    if j.state == 'PENDING' then return false end -- our verdict on it is due
  end
  local failure = deferred_failure_of(j) or started_too_often(j)
  if failure then
    fail_deferred(q, j, failure)
    return true
  end
  if not allows(q, j) then return false end
  start(q, j)
  save(j)
  claimed[#claimed + 1] = reply(j)
  remaining = remaining - 1
  return true
end

-- Claim a job; return true when it left its place, false when it stays, nil when it does not exist
-- or was set aside.
local function try_claim(q, id)
  local key = q.base .. id
  local v = attempt('HMGET', key, unpack(PLAIN_FIELDS))
  if not v[1] then
    if v.err then set_aside(q.name .. ':' .. id, v) end
    return nil
  end
  if types and not types[v[1]] then
    other_types = other_types + 1
    return false
  end
  if q.is_unlimited and claim_plain(q, id, key, v) then return true end
  close_group()
  local ok, left = guarded(q.name .. ':' .. id, claim_other, q, id)
  if ok then return left end
  return nil
end

-- Claim from the tail of the list, as Node does; skipped jobs keep their places. Returns whether
-- jobs are left, and whether the call stopped looking before the end.
local function claim_ready(q)
  local key, skipped, looked = q.base .. 'wait', 0, 0
  while remaining > 0 and looked < SCAN do
    local size = math.min(math.max(remaining, 16), 256)
    local ids = call('LRANGE', key, -(skipped + size), -(skipped + 1))
    if #ids == 0 then return skipped > 0, false end
    looked = looked + #ids
    local at_tail, others, kept = 0, {}, 0
    for i = #ids, 1, -1 do
      if remaining == 0 then break end
      if try_claim(q, ids[i]) == false then
        kept = kept + 1
      elseif skipped + kept == 0 then
        at_tail = at_tail + 1
      else
        others[#others + 1] = ids[i]
      end
    end
    if at_tail > 0 then call('LTRIM', key, 0, -(at_tail + 1)) end
    for _, id in ipairs(others) do call('LREM', key, -1, id) end
    skipped = skipped + kept
    if #ids < size and remaining > 0 then return skipped > 0, false end
  end
  return call('LLEN', key) > 0, looked >= SCAN
end

-- When all jobs that a call looked at have other types, they must not hide those after them: they
-- move to the end, in their order.
local function rotate_list(q)
  local key = q.base .. 'wait'
  local ids = call('LRANGE', key, -SCAN, -1)
  call('LTRIM', key, 0, -(#ids + 1))
  for i = #ids, 1, -1 do call('LPUSH', key, ids[i]) end
  q.needs_marker = true
end
local function rotate_prioritized(q)
  local ids = call('ZRANGE', q.base .. 'prioritized', 0, SCAN - 1, 'WITHSCORES')
  for i = 1, #ids, 2 do
    push(q, ids[i], math.floor(tonumber(ids[i + 1]) / 4294967296))
  end
end

local function claim_prioritized(q)
  local key, skipped, looked = q.base .. 'prioritized', 0, 0
  while remaining > 0 and looked < SCAN do
    local size = math.min(math.max(remaining, 16), 256)
    local ids = call('ZRANGE', key, skipped, skipped + size - 1)
    if #ids == 0 then
      if skipped == 0 then call('DEL', q.base .. 'pc') end
      return skipped > 0, false
    end
    looked = looked + #ids
    local removed, kept = {}, 0
    for _, id in ipairs(ids) do
      if remaining == 0 then break end
      if try_claim(q, id) == false then kept = kept + 1 else removed[#removed + 1] = id end
    end
    if skipped + kept == 0 then
      call('ZREMRANGEBYRANK', key, 0, #removed - 1)
    else
      call_in_slices('ZREM', key, removed)
    end
    skipped = skipped + kept
    if #ids < size and remaining > 0 then return skipped > 0, false end
  end
  return call('ZCARD', key) > 0, looked >= SCAN
end

local function claim_from(q)
  local before = #claimed
  q.is_unlimited = not has_limits(q)
  other_types = 0
  local left, stopped = claim_ready(q)
  if stopped and other_types >= SCAN then rotate_list(q) end
  other_types = 0
  local more, stopped_too = claim_prioritized(q)
  if stopped_too and other_types >= SCAN then rotate_prioritized(q) end
  if #claimed > before and (left or more) then q.needs_marker = true end
end

local function main()
  local want = cmsgpack.unpack(ARGV[10])
  remaining, worker, token, types = tonumber(ARGV[7]), ARGV[8], ARGV[9], nil
  if want[2] then
    types = {}
    for _, type in ipairs(want[2]) do types[type] = true end
  end
  claimed, other_types = {}, 0
  moment, millis, worker_json = int(now), int(now_ms), cjson.encode(worker)
  moves, lease_ends, started_ids, spans, group = {}, {}, {}, {}, nil
  local refusal, any_supported = nil, false
  for _, name in ipairs(want[1]) do
    if remaining > 0 then
      local q = queue(name)
      if q.unsupported then refusal = q.unsupported else any_supported = true end
      if not q.unsupported then serve(q) end
      if not q.paused and not q.unsupported and not is_closed(q) then
        guarded('queue ' .. name, claim_from, q)
      end
    end
  end
  write_claimed()
  reconcile_moved()
  flush()
  if refusal and not any_supported then return redis.error_reply('ERR ' .. refusal) end
  return claimed
end
