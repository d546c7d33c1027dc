-- swap: writes changes to jobs whose stored revision, token and lease end are as the caller saw them.
-- edges: as decided by the caller
-- ARGV[7] msgpack: a list of changes and of groups of completions, see change_params in swap.py
-- returns: per change 1 or {1, has dependents} when written, else {0, reply or false} with a code and
-- a text when a flow forbids the change
-- needs: base queue job links forget flow sync stall
local PREVIOUS = {
  RUNNING = 'active', DELAYED = 'delayed', RETRYING = 'delayed', PENDING = 'waiting-children',
  COMPLETED = 'completed', FAILED = 'failed', DEAD_LETTER = 'failed', CANCELLED = 'failed',
  SCHEDULED = 'waiting',
}
local answers

local function matches(j, c)
  if j.revision ~= c.rev then return false end
  if c.token and c.token ~= j.token then return false end
  if j.state == 'RUNNING' and not holds(j, c.token) then
    reconcile(j.q, j.id)
    return false
  end
  return not c['until'] or j.lease_end == c['until']
end

local function finish(j, c, prev)
  local q, completed = j.q, c.state == 'COMPLETED'
  put(j, 'finishedOn', int(c.finished))
  if completed then
    put(j, 'returnvalue', c.value)
    emit(q, 'completed', 'jobId', j.id, 'returnvalue', c.value, 'prev', prev)
  else
    call('HDEL', j.key, 'defa')
    emit(q, 'failed', 'jobId', j.id, 'failedReason', c.reason, 'prev', prev)
    if c.exhausted and prev == 'active' then emit_exhausted(j, c.atm) end
  end
  save(j)
  if prev == 'active' then
    q.has_ended = true
    collect_metrics(q, completed and 'completed' or 'failed', c.finished, 1)
  end
  local has_dependents = j.has_children and notify_children(j.job_id, c.state)
  if parent_key_of(j) then notify_parent(j, completed, completed and c.value or c.reason) end
  if deduplication_of(j) then release_deduplication(j) end
  keep_ended(j, completed, c.finished)
  return has_dependents
end

local function put_in_place(j, c, prev)
  local q = j.q
  if c.state == 'SCHEDULED' then
    put(j, 'delay', 0)
    push(q, j.id, j.priority)
    emit(q, 'waiting', 'jobId', j.id, 'prev', prev)
  elseif c.state == 'RUNNING' then
    delete_locks(q)
    local ttl = j.ttl or tonumber(ARGV[5])
    call('SET', j.key .. ':lock', j.token, 'PX', int(math.max(1, ttl / 1000)))
    call('LPUSH', q.base .. 'active', j.id)
    emit(q, 'active', 'jobId', j.id, 'prev', prev)
  elseif c.state == 'RETRYING' and not j.ttl and c.at_once then
    -- BullMQ has no delay of 0: a foreign job is ready again at once, as the next one with lifo or
    -- when its handler returned it.
    local is_returned = c.edges[#c.edges][1] == 'give_back'
    push(q, j.id, j.priority, is_returned or j.priority == 0 and options_of(j).lifo == true)
    emit(q, 'waiting', 'jobId', j.id, 'prev', prev)
    q.moved = q.moved or {}
    q.moved[#q.moved + 1] = j.id
  elseif c.state == 'DELAYED' or c.state == 'RETRYING' then
    put(j, 'delay', int(c.delay))
    postpone(q, j.id, c.due)
    emit(q, 'delayed', 'jobId', j.id, 'delay', int(c.due))
  elseif c.state == 'PENDING' then
    put(j, 'delay', c.due and int(c.delay) or 0)
    call('ZADD', q.base .. 'waiting-children', now_ms, j.id)
    if prev == 'active' then
      emit(q, 'waiting-children', 'jobId', j.id, 'prev', prev)
    else
      emit(q, 'waiting-children', 'jobId', j.id)
    end
  end
  save(j)
end

-- The record of an edge. Only the event of a job that is deleted at its end carries the result.
local function with_result(j, c, edge)
  local json = edge[5]
  if edge[3] ~= 'COMPLETED' then return json end
  local keep = retention_of(j, true)
  if not keep or keep.count ~= 0 then return json end
  return string.sub(json, 1, -2) .. ',' .. cjson.encode(c.value) .. ']'
end

local function write(j, c)
  local old, priority = j.state, j.priority
  if c.drop then call('HDEL', j.key, unpack(c.drop)) end
  if c.level ~= j.level then
    j.level, j.priority = c.level, c.level
    put(j, 'priority', c.level)
  end
  local packed = j.now
  for i, value in ipairs(c.now) do packed[i] = value end
  packed[HELD], packed[FOREIGN_FAILURE] = c.held, ''
  j.revision, j.scheduled = tonumber(packed[REVISION]), tonumber(packed[SCHEDULED_AT])
  j.started, j.expires = tonumber(packed[STARTED]), tonumber(packed[EXPIRES])
  j.lease_end = tonumber(packed[LEASE_END])
  for _, edge in ipairs(c.edges) do
    record_edge(j, edge[1], edge[2], edge[3], edge[4], with_result(j, c, edge))
  end
  for i = 1, #c.fields, 2 do put(j, c.fields[i], c.fields[i + 1]) end
  if c.stack then add_trace(j, c.stack) end
  if #c.edges == 0 then
    if c.due and PREVIOUS[j.state] == 'delayed' then
      put(j, 'delay', int(c.delay))
      postpone(j.q, j.id, c.due)
    end
    save(j)
    return j.has_children and TERMINAL[j.state] and notify_children(j.job_id, j.state)
  end
  if TERMINAL[old] then write_buffers(j.q) end
  remove_from_place(j.q, j.id, old, priority)
  if old == 'PENDING' then
    set_index('ripe', j.job_id)
    if not TERMINAL[c.state] then release_from_children(j) end
  end
  if old == 'RUNNING' and j.q.concurrency then j.q.needs_marker = true end
  if TERMINAL[c.state] then return finish(j, c, PREVIOUS[old]) end
  put_in_place(j, c, PREVIOUS[old])
  if c.kind then return wait_for_children(j, c.kind) end
  return c.state == 'PENDING' and TERMINAL[old] and wait_again(j)
end

-- The common case, a job of ours that completed and changed in no other way, needs no table for the
-- job.
local COMPLETED_FIELDS = {
  'hf:now', 'priority', 'ats', 'hf:ttl', 'hf:kids', 'parentKey', 'deid', 'hf:limit', 'defa',
  'hf:keep',
}
local RUNNING = '^RUNNING|(%d+)|' .. ANY5 .. ANY .. ANY .. '(%d+)(|%d+|(%d+)|[^|]*|[^|]*|[^|]*|%d+)$'
-- The new text of hf:now after the number, computed once for jobs in a row with the same old one.
local function packed_tail(g, after, starts)
  if g.after ~= after or g.starts ~= starts then
    local histories, stalls, created = string.match(after, '^|(%d+)|%d+|[^|]*|([^|]*)|[^|]*|(%d+)$')
    histories = int(histories + 1)
    g.after, g.starts, g.history_field = after, starts, 'hf:h' .. histories
    g.new_after = '|' .. histories .. '|' .. starts .. '||' .. stalls .. '||' .. created
  end
  return g.new_after
end
-- Complete a job; return its number, or nil when it needs the long way.
local function complete_plain(g, q, id, value)
  local key = q.base .. id
  local v = call('HMGET', key, unpack(COMPLETED_FIELDS))
  local revision, number, after, starts_seen = string.match(v[1] or '', RUNNING)
  if tonumber(revision) ~= g.rev or v[3] ~= starts_seen or not q.caught_up or not v[4] then return nil end
  if v[5] or v[6] or v[7] or v[8] or v[9] or v[10] or level_of(tonumber(v[2]) or 0) ~= g.level then return nil end
  local packed = g.now .. '|' .. number .. packed_tail(g, after, v[3])
  call('HSET', key, 'atm', g.atm, 'finishedOn', g.finished, 'returnvalue', value, g.history_field, g.edge,
    'hf:now', packed, unpack(g.more))
  emit(q, 'completed', 'jobId', id, 'returnvalue', value, 'prev', 'active')
  return number
end
-- One completion of a group as a change of its own.
local function as_change(g, id, value)
  local now = {}
  for each in string.gmatch(g.now .. '|', '([^|]*)|') do now[#now + 1] = each end
  local fields = {'atm', g.atm}
  for _, each in ipairs(g.more) do fields[#fields + 1] = each end
  return {
    id = id, queue = g.queue, rev = g.rev, token = g.token, now = now, held = '', state = 'COMPLETED',
    level = g.level, atm = g.atm, fields = fields, finished = g.finished, value = value,
    edges = {{'complete', 'RUNNING', 'COMPLETED', g.at, g.edge}},
  }
end

local function change(c)
  local j = find_in(c.queue, c.id)
  if not j then return {0, false} end
  if not matches(j, c) then
    j = load_job(j.q, j.id)
    return {0, j and reply(j) or false}
  end
  if c.state == 'COMPLETED' and j.state == 'RUNNING' then
    local code, text = unfinished_flow(j)
    if code then return {0, reply(j), code, text} end
  end
  if c.lapsed and stalls_as_bullmq(j) then
    stall(j)
    return {0, reply(load_job(j.q, j.id))}
  end
  return {1, write(j, c) and 1 or 0}
end

local function write_completed(g, q, ids, numbers)
  local size, finished = #ids, {}
  if size == 0 then return end
  for i, id in ipairs(ids) do finished[2 * i - 1], finished[2 * i] = g.finished, id end
  remove_active(q, ids)
  q.has_ended = true
  collect_metrics(q, 'completed', g.finished, size)
  call_in_slices('ZADD', shared .. 'moved', add_events(ids, g.type, q.name, {g.edge}))
  call_in_slices('ZADD', shared .. 's:COMPLETED', numbers)
  call_in_slices('ZREM', shared .. 'over', ids)
  buffer_all(q, 'completed', finished)
  local kind = kind_of(q, g.type, g.level)
  measure(kind.prefix, kind.type, 'run', g.at, g.at - g.began, size)
  measure(kind.prefix, kind.type, 'completed', g.at, nil, size)
  count(kind, 'RUNNING', -size)
  count(kind, 'COMPLETED', size)
end

-- Which jobs of a group are locked by the caller and have no child; the others need the long way.
local function held_locks(g, q)
  local held, size = {}, #g.ids
  for first = 1, size, 1000 do
    local locks, children = {}, {}
    for i = first, math.min(first + 999, size) do
      local key = q.base .. g.ids[i]
      locks[#locks + 1], children[#children + 1] = key .. ':lock', key .. ':dependencies'
    end
    local childless = call('EXISTS', unpack(children)) == 0
    for i, lock in ipairs(call('MGET', unpack(locks))) do
      held[first + i - 1] = childless and lock == g.token
    end
  end
  return held
end

local function complete(g)
  local q, ids, numbers = queue(g.queue), {}, {}
  flush_indexes() -- earlier changes by BullMQ clients, before newer ones are written here
  local locked = held_locks(g, q)
  for i, id in ipairs(g.ids) do
    local number = locked[i] and complete_plain(g, q, id, g.values[i])
    if number then
      local size = #ids
      ids[size + 1] = id
      numbers[2 * size + 1], numbers[2 * size + 2] = number, id
      answers[#answers + 1] = 1
    else
      write_completed(g, q, ids, numbers)
      ids, numbers = {}, {}
      answers[#answers + 1] = change(as_change(g, id, g.values[i]))
    end
  end
  write_completed(g, q, ids, numbers)
  if q.concurrency then q.needs_marker = true end
end

local function main()
  answers = {}
  for _, c in ipairs(cmsgpack.unpack(ARGV[7])) do
    if c.ids then complete(c) else answers[#answers + 1] = change(c) end
  end
  reconcile_moved()
  flush()
  return answers
end
