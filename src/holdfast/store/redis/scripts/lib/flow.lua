-- flow: what BullMQ expects of whoever ends a job: its parent, its deduplication key, retention.
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

-- What BullMQ keeps of every failed attempt, the oldest first.
local function add_trace(j, text)
  local ok, held = pcall(cjson.decode, call('HGET', j.key, 'stacktrace') or '[]')
  if not ok or type(held) ~= 'table' then held = {} end
  held[#held + 1] = text
  local most = not j.ttl and tonumber(options_of(j).stackTraceLimit) or 10
  while #held > most do table.remove(held, 1) end
  put(j, 'stacktrace', #held > 0 and cjson.encode(held) or '[]')
end

local function tell_exhausted(j, made)
  tell(j.q, 'retries-exhausted', 'jobId', j.id, 'attemptsMade', made)
end

-- Let a parent go that waits for no child any more.
local function release(q, id, front)
  if call('ZREM', q.base .. 'waiting-children', id) == 0 then return end
  local p = call('HMGET', q.base .. id, 'delay', 'priority')
  local delay, priority = tonumber(p[1]) or 0, tonumber(p[2]) or 0
  if delay > 0 and not front then
    local due = now_ms + delay
    call('ZADD', q.base .. 'delayed', int(due * 4096), id)
    q.later = true
    tell(q, 'delayed', 'jobId', id, 'delay', int(due))
  else
    push(q, id, priority, priority == 0)
    tell(q, 'waiting', 'jobId', id, 'prev', 'waiting-children')
  end
  q.touched = q.touched or {}
  q.touched[#q.touched + 1] = id
end

local function doom(q, id, child)
  local key = q.base .. id
  call('HSET', key, 'defa', 'child ' .. child .. ' failed')
  if call('ZREM', q.base .. 'delayed', id) == 1 then
    call('ZADD', q.base .. 'waiting-children', now_ms, id)
  end
  release(q, id, true)
end

local function child_failed(j, q, id, reason)
  local key, child = q.base .. id, j.key
  local flags = decoded(call('HGET', child, 'parent'))
  if not (flags.fpof or flags.cpof or flags.idof or flags.rdof) then return end
  if call('SREM', key .. ':dependencies', child) == 0 then return end
  local left = call('SCARD', key .. ':dependencies')
  if flags.fpof then
    call('ZADD', key .. ':unsuccessful', now_ms, child)
    if call('ZSCORE', q.base .. 'failed', id) == false then doom(q, id, child) end
  elseif flags.rdof then
    if left == 0 then release(q, id) end
  else
    call('HSET', key .. ':failed', child, reason)
    if flags.cpof or left == 0 then release(q, id) end
  end
end

local function tell_parent(j, completed, value)
  local name, id = parent_of(j)
  if not name then return end
  local q = queue(name)
  local key = q.base .. id
  if call('EXISTS', key) == 0 then return end
  if not completed then return child_failed(j, q, id, value) end
  if call('SREM', key .. ':dependencies', j.key) == 1 then
    call('HSET', key .. ':processed', j.key, value)
    if call('SCARD', key .. ':dependencies') == 0 then release(q, id) end
  end
end

-- The job that came while the owner of its deduplication id was running takes its place.
local function next_of_kind(j)
  local q = j.q
  local key = q.base .. 'dn:' .. deduplication_of(j)
  local v = call('HMGET', key, 'name', 'data', 'opts', 'jid', 'pk', 'pd', 'pdk', 'rjk')
  if not v[1] then return end
  call('DEL', key)
  call('INCR', q.base .. 'id')
  local id, job = v[4], q.base .. v[4]
  local opts = decoded(v[3])
  local delay, priority = within(opts.delay, MOST_MILLIS) or 0, within(opts.priority, MOST_PRIORITY) or 0
  local fields = {'name', v[1], 'data', v[2], 'opts', v[3], 'timestamp', int(now_ms), 'delay',
    int(delay), 'priority', int(priority), 'deid', deduplication_of(j)}
  if v[5] then fields[#fields + 1] = 'parentKey'; fields[#fields + 1] = v[5] end
  if v[6] then fields[#fields + 1] = 'parent'; fields[#fields + 1] = v[6] end
  if v[8] then fields[#fields + 1] = 'rjk'; fields[#fields + 1] = v[8] end
  call('HSET', job, unpack(fields))
  call('SET', q.base .. 'de:' .. deduplication_of(j), id)
  tell(q, 'added', 'jobId', id, 'name', v[1])
  if v[7] then call('SADD', v[7], job) end
  if delay > 0 then
    postpone(q, id, now_ms + delay)
    tell(q, 'delayed', 'jobId', id, 'delay', int(now_ms + delay))
  else
    push(q, id, priority)
    tell(q, 'waiting', 'jobId', id)
  end
  q.touched = q.touched or {}
  q.touched[#q.touched + 1] = id
end

local function free_key(j)
  local key = j.q.base .. 'de:' .. deduplication_of(j)
  if call('GET', key) == j.id and call('PTTL', key) == -1 then call('DEL', key) end
  next_of_kind(j)
end

local function kept_by(opts, completed)
  local keep
  if completed then keep = opts.removeOnComplete else keep = opts.removeOnFail end
  if keep == nil or keep == false or keep == cjson.null then return nil end
  if keep == true then return {count = 0} end
  if type(keep) == 'number' then return {count = keep} end
  if type(keep) ~= 'table' then return nil end
  return {
    age = within(keep.age, MOST_MILLIS), count = within(keep.count, MOST_COUNT),
    limit = within(keep.limit, MOST_COUNT),
  }
end

-- Old ended jobs go as the job's own options ask; its own removal is the caller's work.
local function evict(j, completed, keep)
  local q = j.q
  local set = q.base .. (completed and 'completed' or 'failed')
  local gone = {}
  if keep.age then
    local most = tonumber(keep.limit) or 1000
    gone = call('ZREVRANGEBYSCORE', set, int(now_ms - keep.age * 1000), '-inf', 'LIMIT', 0, most)
    sliced('ZREM', set, gone)
  end
  if keep.count and keep.count > 0 then
    local rest = call('ZREVRANGE', set, keep.count, keep.count + 999)
    sliced('ZREM', set, rest)
    for _, id in ipairs(rest) do gone[#gone + 1] = id end
  end
  for _, id in ipairs(gone) do
    local old = load(q, id)
    erase(q, id)
    if old then forget(old.hid, old.state) end
  end
end
