-- claim: claims ready jobs under a new lease.
-- edges: SCHEDULED -> RUNNING; a job with a deferred failure of BullMQ continues to FAILED or
-- DEAD_LETTER
-- ARGV[7] how many; ARGV[8] worker; ARGV[9] token; ARGV[10] msgpack {queues, types or false}
-- returns: 1 when the call stopped before it had looked at all jobs, else 0; then replies for the jobs
-- claimed, or {id, data} for one that differs from the one before by these only; an error when none of
-- the queues is supported
-- needs: base queue job links forget flow sync limits parked
local SCAN = 1000 -- jobs of one queue that a call may park
local remaining, worker, token, types, claimed, closed

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
local moment, millis, worker_json, moves, lease_ends, started_ids, spans, group
-- A function may have 200 local variables, so those that only one part needs are in a block.
local close_group, claim_plain, write_claimed
do
local PLAIN = '^(SCHEDULED|' .. ANY5 .. ANY .. ANY .. ANY .. ')(%d+)(|%d+|%d+|[^|]*|[^|]*||%d+)$'
local BEFORE = '^SCHEDULED|(%d+)|(%d+)|([^|]*)|(%d+)|[^|]*|([^|]*)|(%d+)|'
local FEW = 4 -- up to so many jobs, removal from an index by range is not cheaper

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
close_group = function()
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
claim_plain = function(q, id, key, v)
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
write_claimed = function()
  close_group()
  flush_indexes() -- earlier changes by BullMQ clients, before newer ones are written here
  call_in_slices('ZADD', shared .. 'moved', moves)
  call_in_slices('ZADD', shared .. 'over', lease_ends)
  for _, span in ipairs(spans) do remove_from_index(shared .. 's:SCHEDULED', span) end
  call_in_slices('ZREM', shared .. 's:SCHEDULED', started_ids)
end
end

local try_claim
do
-- What BullMQ's option maxStartedAttempts of a worker says about a job of BullMQ.
local function started_too_often(j)
  local most = setting('max_started_attempts')
  return most and not j.ttl and j.starts >= most and 'job started more than allowable limit'
end

-- A job may not start: note the lane in which it waits, and when to look at that lane again.
local function refuse(q, type, limit_key, look)
  local lane = parked.lane_of(type, limit_key)
  closed[lane], q.refused_for, q.look_again = look, lane, look
  return false
end

local function claim_other(q, id)
  local j = load_job(q, id)
  if not j.number or j.state ~= 'SCHEDULED' or was_started_again(j) then
    j = reconcile(q, id) and load_job(q, id)
    if not j then return nil end
    if j.state == 'PENDING' then -- our verdict on it is due
      q.refused_for, q.look_again = j.type, 0
      return false
    end
  end
  local failure = deferred_failure_of(j) or started_too_often(j)
  if failure then
    fail_deferred(q, j, failure)
    return true
  end
  local kind, ends = refusal_of(q, j)
  if kind == 'queue' then
    q.is_closed = true
    return false
  elseif kind == 'task' then
    return refuse(q, j.type, nil, 0)
  elseif kind then
    return refuse(q, j.type, j.limit_key, ends or now + parked.LOOK_AGAIN)
  end
  start(q, j)
  save(j)
  claimed[#claimed + 1] = reply(j)
  remaining = remaining - 1
  return true
end

-- Most jobs behind a refused one are of the same lane: they need no more than these fields.
local function is_refused(q, key)
  if not next(closed) then return false end
  local v = attempt('HMGET', key, 'name', 'hf:limit', 'defa')
  if not v[1] or v[3] then return false end
  local lane = v[2] and parked.lane_of(v[1], v[2])
  if not closed[v[1]] and not closed[lane or v[1]] then return false end
  q.refused_for = closed[v[1]] and v[1] or lane
  q.look_again = closed[q.refused_for]
  return true
end

-- Claim a job; return true when it left its place, false when it stays, nil when it does not exist
-- or was set aside.
try_claim = function(q, id)
  local key = q.base .. id
  if is_refused(q, key) then return false end
  local v = attempt('HMGET', key, unpack(PLAIN_FIELDS))
  if not v[1] then
    if v.err then set_aside(q.name .. ':' .. id, v) end
    return nil
  end
  if types and not types[v[1]] then return refuse(q, v[1], nil, -1) end
  if not q.is_limited and not rule_of('task:' .. v[1]) and claim_plain(q, id, key, v) then return true end
  close_group()
  local ok, left = guarded(q.name .. ':' .. id, claim_other, q, id)
  if ok then return left end
  return nil
end
end

local claim_from
do
-- Remove an id from the list, from the nearer end.
local function remove_listed(q, id, place)
  local key = q.base .. 'wait'
  call('LREM', key, 2 * place > call('LLEN', key) and 1 or -1, id)
end

-- Try a job of a lane, or one between the parked ones.
local function try_parked(q, source)
  local id, order = source.items[source.at][1], source.items[source.at][2]
  local is_ready = parked.is_ready(q, id, order)
  local left = nil
  if is_ready then left = try_claim(q, id) end
  if q.is_closed then return end
  source.at = source.at + 1
  if left == false and (q.refused_for == source.lane or q.refused_for == source.type) then
    source.skipped = true
    if closed[q.refused_for] then
      parked.set_look(q, q.refused_for, q.look_again)
      source.items = {}
    end
    return
  end
  if source.lane then parked.leave_lane(q, source.lane, id) end
  if left == false then
    parked.add(q, id, order, q.refused_for, q.look_again)
    return
  end
  local place = call('ZRANK', shared .. 'parked:' .. q.name, id) or 0
  unpark(q.name, id)
  if not is_ready then return end
  if order < parked.LIST_END then remove_listed(q, id, place) else call('ZREM', q.base .. 'prioritized', id) end
end

-- Claim parked jobs below an order, the first ones first.
local function claim_parked(q, below)
  local looked = 0
  while remaining > 0 and looked < SCAN and not q.is_closed do
    local source = parked.first_source(q, q.sources, below)
    if not source then
      parked.write(q)
      return true
    end
    try_parked(q, source)
    looked = looked + 1
  end
  return false
end

-- Claim from the tail of the list, as Node does, what no claim has looked at; jobs that may not start
-- are parked. Returns whether the call looked at all of them.
local function claim_ready(q)
  local key, looked, skipped, order = q.base .. 'wait', 0, q.is_parking and parked.listed(q) or 0, nil
  while remaining > 0 and looked < SCAN and not q.is_closed do
    local size = math.min(math.max(remaining, 16), 256)
    local ids = call('LRANGE', key, -(skipped + size), -(skipped + 1))
    if #ids == 0 then return true end
    local at_tail, others, kept = 0, {}, 0
    for i = #ids, 1, -1 do
      if remaining == 0 or q.is_closed then break end
      local left = try_claim(q, ids[i])
      if left == false then
        if not q.is_closed then
          order = order and order + 1 or parked.next_order(q)
          parked.add(q, ids[i], order, q.refused_for, q.look_again)
          kept = kept + 1
        end
      elseif skipped + kept == 0 then
        at_tail = at_tail + 1
      else
        others[#others + 1] = ids[i]
      end
    end
    if at_tail > 0 then call('LTRIM', key, 0, -(at_tail + 1)) end
    for _, id in ipairs(others) do remove_listed(q, id, skipped) end
    skipped, looked = skipped + kept, looked + kept
    if #ids < size and remaining > 0 and not q.is_closed then return true end
  end
  return false
end

local function claim_prioritized(q)
  local key, looked, skipped = q.base .. 'prioritized', 0, q.is_parking and parked.prioritized(q) or 0
  while remaining > 0 and looked < SCAN and not q.is_closed do
    local size = math.min(math.max(remaining, 16), 256)
    local ids = call('ZRANGE', key, skipped, skipped + size - 1)
    if #ids == 0 then
      if skipped == 0 then call('DEL', q.base .. 'pc') end
      return true
    end
    local removed, kept = {}, 0
    for _, id in ipairs(ids) do
      if remaining == 0 or q.is_closed then break end
      if try_claim(q, id) ~= false then
        removed[#removed + 1] = id
      elseif not q.is_closed then
        parked.add(q, id, parked.order_of(q, id), q.refused_for, q.look_again)
        kept = kept + 1
      end
    end
    if skipped + kept == 0 and #removed > 0 then
      call('ZREMRANGEBYRANK', key, 0, #removed - 1)
    else
      call_in_slices('ZREM', key, removed)
    end
    skipped, looked = skipped + kept, looked + kept
    if #ids < size and remaining > 0 and not q.is_closed then return true end
  end
  return false
end

claim_from = function(q)
  local before = #claimed
  closed = {}
  q.is_limited, q.sources = is_limited(q), parked.sources(q, types)
  local saw_all = claim_parked(q, parked.LIST_END) and claim_ready(q) and claim_parked(q, math.huge)
    and claim_prioritized(q)
  parked.write(q)
  if q.is_closed then return end
  if not saw_all and remaining > 0 then
    claimed[1], q.needs_marker = 1, true
  elseif #claimed > before and (has_claimable(q.name) or parked.first_source(q, q.sources, math.huge)) then
    q.needs_marker = true
  end
end
end

local function main()
  local want = cmsgpack.unpack(ARGV[10])
  remaining, worker, token, types = tonumber(ARGV[7]), ARGV[8], ARGV[9], nil
  if want[2] then
    types = {}
    for _, type in ipairs(want[2]) do types[type] = true end
  end
  claimed = {0}
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
