-- flow: what BullMQ expects when a job ends: its parent, its deduplication key, its retention.
local function parent_of(j)
  local name, id = string.match(parent_key_of(j), '^' ..
    string.gsub(prefix, '%p', '%%%0') .. ':([^:]+):(.+)$')
  return name, id
end

local function decoded(text)
  local ok, value = pcall(cjson.decode, text or '{}')
  return ok and type(value) == 'table' and value or {}
end
local function options_of(j) return decoded(call('HGET', j.key, 'opts')) end

-- BullMQ keeps the stack trace of every failed attempt, the oldest first.
local function add_trace(j, text)
  local ok, traces = pcall(cjson.decode, call('HGET', j.key, 'stacktrace') or '[]')
  if not ok or type(traces) ~= 'table' then traces = {} end
  traces[#traces + 1] = text
  local limit = 10
  if not j.ttl then limit = tonumber(options_of(j).stackTraceLimit) or #traces end
  if #traces > limit then traces = {unpack(traces, #traces - limit + 1)} end
  put(j, 'stacktrace', #traces > 0 and cjson.encode(traces) or '[]')
end

local function emit_exhausted(j, attempts)
  emit(j.q, 'retries-exhausted', 'jobId', j.id, 'attemptsMade', attempts)
end

-- Make a parent ready or delayed that waits for no child any more.
local function note_moved(q, id)
  q.moved = q.moved or {}
  q.moved[#q.moved + 1] = id
end
local function release_parent(q, id)
  if call('ZREM', q.base .. 'waiting-children', id) == 0 then return end
  local v = call('HMGET', q.base .. id, 'delay', 'priority')
  local delay, priority = tonumber(v[1]) or 0, tonumber(v[2]) or 0
  if delay > 0 then
    local due = now_ms + delay
    call('ZADD', q.base .. 'delayed', int(due * 4096), id)
    q.needs_due_marker = true
    emit(q, 'delayed', 'jobId', id, 'delay', int(due))
  else
    push(q, id, priority, priority == 0)
    emit(q, 'waiting', 'jobId', id, 'prev', 'waiting-children')
  end
  note_moved(q, id)
end

-- Make a parent ready with a deferred failure: the worker that claims it fails it.
local function fail_parent(q, id, child)
  local key = q.base .. id
  call('HSET', key, 'defa', 'child ' .. child .. ' failed')
  if call('ZREM', q.base .. 'delayed', id) == 1 then
    call('HSET', key, 'delay', 0)
    call('ZADD', q.base .. 'waiting-children', now_ms, id)
  end
  release_parent(q, id)
end

local function child_failed(j, q, id, reason)
  local key, child = q.base .. id, j.key
  local flags = decoded(call('HGET', child, 'parent'))
  if not (flags.fpof or flags.cpof or flags.idof or flags.rdof) then return end
  if call('SREM', key .. ':dependencies', child) == 0 then return end
  local left = call('SCARD', key .. ':dependencies')
  if flags.fpof then
    call('ZADD', key .. ':unsuccessful', now_ms, child)
    if call('ZSCORE', q.base .. 'failed', id) == false then fail_parent(q, id, child) end
  elseif flags.rdof then
    if left == 0 then release_parent(q, id) end
  else
    call('HSET', key .. ':failed', child, reason)
    if flags.cpof or left == 0 then release_parent(q, id) end
  end
end

local function notify_parent(j, completed, value)
  local name, id = parent_of(j)
  if not name then return end
  local q = queue(name)
  local key = q.base .. id
  if call('EXISTS', key) == 0 then return end
  if not completed then return child_failed(j, q, id, value) end
  if call('SREM', key .. ':dependencies', j.key) == 1 then
    call('HSET', key .. ':processed', j.key, value)
    if call('SCARD', key .. ':dependencies') == 0 then release_parent(q, id) end
  end
end

-- Add the job that was submitted under the deduplication id while its owner was running.
local function add_next_duplicate(j)
  local q = j.q
  local key = q.base .. 'dn:' .. deduplication_of(j)
  local v = call('HMGET', key, 'name', 'data', 'opts', 'jid', 'pk', 'pd', 'pdk', 'rjk')
  if not v[1] then return end
  call('DEL', key)
  call('INCR', q.base .. 'id')
  local id, job = v[4], q.base .. v[4]
  local opts = decoded(v[3])
  local delay, priority = within(opts.delay, MAX_MILLIS) or 0, within(opts.priority, MAX_PRIORITY) or 0
  local fields = {'name', v[1], 'data', v[2], 'opts', v[3], 'timestamp', int(now_ms), 'delay',
    int(delay), 'priority', int(priority), 'deid', deduplication_of(j)}
  if v[5] then fields[#fields + 1] = 'parentKey'; fields[#fields + 1] = v[5] end
  if v[6] then fields[#fields + 1] = 'parent'; fields[#fields + 1] = v[6] end
  if v[8] then fields[#fields + 1] = 'rjk'; fields[#fields + 1] = v[8] end
  call('HSET', job, unpack(fields))
  call('SET', q.base .. 'de:' .. deduplication_of(j), id)
  emit(q, 'added', 'jobId', id, 'name', v[1])
  if v[7] then call('SADD', v[7], job) end
  if delay > 0 then
    postpone(q, id, now_ms + delay)
    emit(q, 'delayed', 'jobId', id, 'delay', int(now_ms + delay))
  else
    push(q, id, priority)
    emit(q, 'waiting', 'jobId', id)
  end
  note_moved(q, id)
end

-- A job that is deleted holds its deduplication id no longer, not even for the rest of a ttl.
local function forget_deduplication(j)
  local key = j.q.base .. 'de:' .. deduplication_of(j)
  if call('GET', key) ~= j.id then return end
  call('DEL', key, j.q.base .. 'dn:' .. deduplication_of(j))
end

local function release_deduplication(j)
  local key = j.q.base .. 'de:' .. deduplication_of(j)
  if call('GET', key) == j.id and call('PTTL', key) == -1 then call('DEL', key) end
  add_next_duplicate(j)
end

-- How an ended job is kept: as its own options say, else as this worker's, which apply to jobs of
-- BullMQ clients. Nil means that it is kept; without options, jobs of ours are pruned.
local function removal_option(j, completed)
  if j.ttl and not call('HGET', j.key, 'hf:keep') then return nil end
  local keep = options_of(j)[completed and 'removeOnComplete' or 'removeOnFail']
  if keep ~= cjson.null then return keep end
end
local function retention_of(j, completed)
  local keep = removal_option(j, completed)
  if keep == nil and not j.ttl then keep = setting(completed and 'removeOnComplete' or 'removeOnFail') end
  if keep == nil or keep == false or keep == cjson.null then return nil end
  if keep == true then return {count = 0} end
  if type(keep) == 'number' then return {count = keep} end
  if type(keep) ~= 'table' then return nil end
  return {
    age = within(keep.age, MAX_MILLIS), count = within(keep.count, MAX_COUNT),
    limit = within(keep.limit, MAX_COUNT),
  }
end

-- Delete a job's keys. A parent does not wait for a deleted child: after its last one it is the next
-- to run, whatever its priority and delay.
local function erase_child(j)
  erase(j.q, j.id)
  if not parent_key_of(j) then return end
  local name, id = parent_of(j)
  if not name then return end
  local q = queue(name)
  local pending = q.base .. id .. ':dependencies'
  if call('SREM', pending, j.key) == 0 or call('SCARD', pending) > 0 then return end
  if call('ZREM', q.base .. 'waiting-children', id) == 0 then return end
  call('RPUSH', ready_list(q), id)
  q.needs_marker = true
  emit(q, 'waiting', 'jobId', id, 'prev', 'waiting-children')
  note_moved(q, id)
end

-- Delete old ended jobs as the job's options require; the caller deletes the job itself.
local function evict(j, completed, keep)
  local q = j.q
  local set = q.base .. (completed and 'completed' or 'failed')
  local removed = {}
  if keep.age then
    local limit = tonumber(keep.limit) or 1000
    removed = call('ZREVRANGEBYSCORE', set, int(now_ms - keep.age * 1000), '-inf', 'LIMIT', 0, limit)
    call_in_slices('ZREM', set, removed)
  end
  if keep.count and keep.count > 0 then
    local rest = call('ZREVRANGE', set, keep.count, keep.count + 999)
    call_in_slices('ZREM', set, rest)
    for _, id in ipairs(rest) do removed[#removed + 1] = id end
  end
  for _, id in ipairs(removed) do
    local old = load_job(q, id)
    if old then
      erase_child(old)
      forget(old.job_id, old.state)
    else
      erase(q, id)
    end
  end
end

-- Keep an ended job as its options require.
local function keep_ended(j, completed, finished)
  local q = j.q
  local keep = retention_of(j, completed)
  if keep and keep.count == 0 then
    erase_child(j)
    return forget(j.job_id, j.state)
  end
  buffer(q, completed and 'completed' or 'failed', int(finished), j.id)
  if keep then
    write_buffers(q)
    evict(j, completed, keep)
  end
end

-- Why a job cannot complete: a code and BullMQ's text, or nil.
local function unfinished_flow(j)
  if call('SCARD', j.key .. ':dependencies') > 0 then
    return 'PENDING_CHILDREN', 'Job ' .. j.id .. ' has pending dependencies. moveToFinished'
  elseif call('ZCARD', j.key .. ':unsuccessful') > 0 then
    return 'FAILED_CHILDREN', 'Cannot complete job ' .. j.id ..
      ' because it has at least one failed child. moveToFinished'
  end
end
