-- queue: one queue during one call; its lists, markers and event stream.
local catch_up
local open_queues
resets[#resets + 1] = function() open_queues = {} end

-- Clients of other versions store jobs differently: they would lose ours, or we theirs.
local function unsupported_reason(name, version)
  if not version or setting('any_version') then return nil end
  if string.find(version, '^bullmq:[56]%.') or string.find(version, '^bullmq%-pro:') then return nil end
  return "queue '" .. name .. "' was last used by '" .. string.sub(version, 1, 60) .. "': only BullMQ 5 " ..
    'and 6 share queues safely; add accept=unknown-version to the URL to use it anyway'
end

-- A queue that cannot be read is unsupported, and its jobs wait until its keys are repaired.
local function broken(q, fault)
  q.unsupported, q.is_broken = "queue '" .. q.name .. "' cannot be read: " .. fault, true
  return q
end

-- About how many events a queue's stream holds: as the URL says, else as Node's queue says.
local function stream_length(stored)
  return setting('stream_length') or within(stored, MAX_COUNT) or 10000
end

local function queue(name)
  local q = open_queues[name]
  if q then return q end
  local base = prefix .. ':' .. name .. ':'
  local meta = attempt('HMGET', base .. 'meta', 'paused', 'concurrency', 'version',
    'opts.maxLenEvents', 'max', 'duration')
  q = {
    name = name, base = base, stream = base .. 'events', kinds = {}, paused = meta[1] and true or false,
    concurrency = within(meta[2], MAX_COUNT), events_kept = stream_length(meta[4]),
    max = within(meta[5], MAX_COUNT), duration = within(meta[6], MAX_MILLIS),
  }
  -- As in BullMQ: the number of the queue comes first, the period of the worker.
  local limiter = setting('limiter')
  if limiter then q.max, q.duration = q.max or limiter[1], limiter[2] end
  local major = meta[3] and tonumber(string.match(meta[3], '^bullmq:(%d+)'))
  -- Without a version assume the older layout, because clients of both versions empty both lists.
  q.uses_paused_list = not major or major <= 5
  q.unsupported = unsupported_reason(name, meta[3])
  q.sets_length = tonumber(meta[4]) ~= q.events_kept
  open_queues[name] = q
  if name == 'hf' then return broken(q, 'its keys are those of holdfast') end
  if meta.err then return broken(q, set_aside('queue ' .. name, meta)) end
  local ok, fault = guarded('queue ' .. name, catch_up, q)
  if not ok then broken(q, fault) end
  return q
end

-- The first write to a queue makes it known; Node expects the length of its event stream.
local function register(q)
  if q.is_broken then return end
  if not q.is_registered then
    call('SADD', shared .. 'queues', q.name)
    call('ZADD', shared .. 'names', 0, ranked(q.name))
    q.is_registered = true
  end
  if q.sets_length then
    call('HSET', q.base .. 'meta', 'opts.maxLenEvents', q.events_kept)
    q.sets_length = false
  end
end

-- Maintenance looks after the queues from which a worker of holdfast has claimed lately, and leaves
-- the jobs of BullMQ clients in other queues alone.
local SERVED_FOR, SERVED_AGAIN = 300e6, 10e6 -- microseconds
local function served_at(q) return tonumber(call('ZSCORE', shared .. 'served', q.name) or 0) end
-- How BullMQ's stalls are found in a queue is a setting of its workers, and the leader may be none of
-- them.
local function serve(q)
  if math.abs(now - served_at(q)) <= SERVED_AGAIN then return end
  call('ZADD', shared .. 'served', int(now), q.name)
  local stalls = setting('stalls')
  if stalls then call('HSET', shared .. 'stalls', q.name, stalls) else call('HDEL', shared .. 'stalls', q.name) end
end
local function is_served(q) return now - served_at(q) <= SERVED_FOR end

-- The first event of a call trims the stream for all of them. With a length of 0 it would delete
-- itself, and no reader would receive it: then the stream is trimmed before.
local function emit(q, event, ...)
  if not q.last_event and q.events_kept > 0 then
    q.last_event = call('XADD', q.stream, 'MAXLEN', '~', q.events_kept, '*', 'event', event, ...)
    return
  end
  if not q.last_event then call('XTRIM', q.stream, 'MAXLEN', '~', 0) end
  q.last_event = call('XADD', q.stream, '*', 'event', event, ...)
end

-- BullMQ reports a queue as drained when a job ends and no other is ready, running or delayed, unless
-- the queue is paused or its rate limit is reached.
local function is_held(q)
  if q.paused then return true end
  local started = q.max and tonumber(call('GET', q.base .. 'limiter'))
  return started and started >= q.max and call('PTTL', q.base .. 'limiter') > 0
end
local function emit_drained(q)
  if call('ZCARD', q.base .. 'delayed') > 0 or is_held(q) then return end
  if call('LLEN', q.base .. 'wait') == 0 and call('LLEN', q.base .. 'active') == 0 and
    call('ZCARD', q.base .. 'prioritized') == 0 then
    emit(q, 'drained')
  end
end

-- BullMQ's counts of ended jobs per minute, the newest first; a worker collects them on request.
local function collect_metrics(q, name, finished, size)
  local most = setting('metrics')
  if not most then return end
  local key = q.base .. 'metrics:' .. name
  local before = call('HINCRBY', key, 'count', size) - size
  local v = call('HMGET', key, 'prevTS', 'prevCount')
  local since, counted = within(v[1], MAX_MILLIS), within(v[2], MAX_COUNTER) or 0
  if not since then
    call('HSET', key, 'prevTS', int(finished), 'prevCount', 0)
    return
  end
  local minutes = math.min(math.floor(finished / 60000) - math.floor(since / 60000), most)
  if minutes <= 0 then return end
  local points = {before - counted}
  for i = 2, minutes do points[i] = 0 end
  call_in_slices('LPUSH', key .. ':data', points)
  call('LTRIM', key .. ':data', 0, most - 1)
  call('HSET', key, 'prevCount', int(before), 'prevTS', int(finished))
end

local function add_marker(q)
  if not q.paused then call('ZADD', q.base .. 'marker', 0, '0') end
end

-- Add the marker of a queue that this call may not have opened.
local function wake_queue(name)
  local q, base = open_queues[name], prefix .. ':' .. name .. ':'
  if q then
    q.needs_marker = true
  elseif attempt('HEXISTS', base .. 'meta', 'paused') == 0 then
    attempt('ZADD', base .. 'marker', 0, '0')
  end
end

-- Clients up to version 5 keep ready jobs of a paused queue in a separate list.
local function ready_list(q)
  if q.paused and (q.uses_paused_list or call('EXISTS', q.base .. 'paused') == 1) then
    return q.base .. 'paused'
  end
  return q.base .. 'wait'
end

local function push(q, id, priority, front)
  if priority == 0 then
    call(front and 'RPUSH' or 'LPUSH', ready_list(q), id)
  else
    local pc = front and 0 or call('INCR', q.base .. 'pc') % 4294967296
    call('ZADD', q.base .. 'prioritized', int(priority * 4294967296 + pc), id)
  end
  q.needs_marker = true
end

local function postpone(q, id, due_ms)
  local low = due_ms * 4096
  local last = call('ZREVRANGEBYSCORE', q.base .. 'delayed', int(low + 4095), int(low),
    'WITHSCORES', 'LIMIT', 0, 1)
  local score = last[2] and math.min(tonumber(last[2]) + 1, low + 4095) or low
  call('ZADD', q.base .. 'delayed', int(score), id)
  note_due(q, due_ms)
  q.needs_due_marker = true
end

local function add_due_marker(q)
  local first = call('ZRANGE', q.base .. 'delayed', 0, 0, 'WITHSCORES')
  if first[2] then call('ZADD', q.base .. 'marker', int(score_ms(tonumber(first[2]))), '1') end
end

-- A job that may start or that left its place is not parked any more; see parked.lua. Entries of
-- lanes are dropped when they are met, all of them after the last parked job of a queue.
local function unpark(name, id)
  local key = shared .. 'parked:' .. name
  if call('ZREM', key, id) == 0 or call('EXISTS', key) == 1 then return end
  local lanes = shared .. 'lanes:' .. name
  for _, lane in ipairs(call('ZRANGE', lanes, 0, -1)) do call('DEL', shared .. 'lane:' .. name .. ':' .. lane) end
  call('DEL', lanes)
  call('SREM', shared .. 'parking', name)
end

-- Remove an id from the ready jobs, in whichever place it is.
local function remove_ready(q, id, priority)
  unpark(q.name, id)
  if priority ~= 0 and call('ZREM', q.base .. 'prioritized', id) == 1 then return true end
  if call('LREM', q.base .. 'wait', -1, id) == 1 then return true end
  if call('LREM', q.base .. 'paused', -1, id) == 1 then return true end
  return call('ZREM', q.base .. 'prioritized', id) == 1
end

-- Members of sets that the same call does not read are collected and written when it ends.
local function buffered(q, set)
  local buffers = q.buffers
  if not buffers then
    buffers = {}
    q.buffers = buffers
  end
  local list = buffers[set]
  if not list then
    list = {}
    buffers[set] = list
  end
  return list
end
local function buffer(q, set, ...)
  local list = buffered(q, set)
  for i = 1, select('#', ...) do list[#list + 1] = select(i, ...) end
end
local function append(list, more)
  local size = #list
  for i = 1, #more do list[size + i] = more[i] end
end
local function buffer_all(q, set, members) append(buffered(q, set), members) end
local function write_buffers(q)
  for set, list in pairs(q.buffers or {}) do
    if set == 'ready' then
      call_in_slices('LPUSH', ready_list(q), list)
    else
      call_in_slices(set == 'active' and 'LPUSH' or 'ZADD', q.base .. set, list)
    end
  end
  q.buffers = nil
end

-- Locks are collected and deleted when the call ends.
local function delete_locks(q)
  if q.locks then
    for i = 1, #q.locks, 1000 do
      call('DEL', unpack(q.locks, i, math.min(i + 999, #q.locks)))
    end
    if call('EXISTS', q.base .. 'stalled') == 1 then
      call_in_slices('SREM', q.base .. 'stalled', q.unlocked_ids)
    end
    q.locks, q.unlocked_ids = nil, nil
  end
end

local function unlock(q, id)
  q.locks, q.unlocked_ids = q.locks or {}, q.unlocked_ids or {}
  q.locks[#q.locks + 1] = q.base .. id .. ':lock'
  q.unlocked_ids[#q.unlocked_ids + 1] = id
end

-- Jobs mostly end in the order in which they started; then they are the last of the list.
local function remove_active(q, ids)
  local key, size = q.base .. 'active', #ids
  for _, id in ipairs(ids) do unlock(q, id) end
  local in_order = size > 1 and call('LINDEX', key, -1) == ids[1]
  if in_order then
    local last = call('LRANGE', key, -size, -1)
    for i = 1, size do in_order = in_order and last[size + 1 - i] == ids[i] end
  end
  if in_order then
    call('LTRIM', key, 0, -(size + 1))
  else
    for _, id in ipairs(ids) do call('LREM', key, -1, id) end
  end
end

-- Remove a job from the place of its state; return whether it was there.
local function remove_from_place(q, id, state, priority)
  if state == 'RUNNING' then
    unlock(q, id)
    return call('LREM', q.base .. 'active', -1, id) == 1
  elseif state == 'SCHEDULED' then
    return remove_ready(q, id, priority)
  elseif state == 'DELAYED' or state == 'RETRYING' then
    return call('ZREM', q.base .. 'delayed', id) == 1
  elseif state == 'PENDING' then
    -- BullMQ makes a job ready that has a deferred failure; our verdict on it may come first.
    return call('ZREM', q.base .. 'waiting-children', id) == 1 or remove_ready(q, id, priority)
  elseif state == 'COMPLETED' then
    return call('ZREM', q.base .. 'completed', id) == 1
  end
  return call('ZREM', q.base .. 'failed', id) == 1
end

-- rateLimit() of Node, or RateLimitedError here, closes a queue for any time, with this number. Node's
-- workers heed it where they or the queue have a rate limit, ours always.
local CLOSED_BY_NODE = 9007199254740991
local function is_closed(q)
  return tonumber(call('GET', q.base .. 'limiter') or 0) == CLOSED_BY_NODE
end

-- BullMQ's rate window of a queue: how many jobs started in it, and the milliseconds left of it. One
-- that lasts longer than its period was opened before the clock was set back. A key in its last
-- millisecond still exists: a start counted in it would open no window.
local function limiter_of(q)
  local key = q.base .. 'limiter'
  local started, left = tonumber(call('GET', key) or 0), call('PTTL', key)
  local is_too_long = q.duration and left > q.duration and started < CLOSED_BY_NODE
  if left <= 0 or is_too_long then
    call('DEL', key)
    return 0, 0
  end
  return started, left
end
