-- queue: one queue as this call finds it; its lists, markers and event stream.
local catch_up
local open_queues
beginnings[#beginnings + 1] = function() open_queues = {} end

-- Clients of other versions keep their jobs differently: what we wrote they would lose, or we theirs.
local function strange(name, version)
  if not version or ARGV[6] == '1' then return nil end
  if string.find(version, '^bullmq:[56]%.') or string.find(version, '^bullmq%-pro:') then return nil end
  return "queue '" .. name .. "' was last used by '" .. string.sub(version, 1, 60) .. "': only BullMQ 5 " ..
    'and 6 share queues safely; add accept=unknown-version to the URL to go on'
end

local function queue(name)
  local q = open_queues[name]
  if q then return q end
  local base = prefix .. ':' .. name .. ':'
  local meta = call('HMGET', base .. 'meta', 'paused', 'concurrency', 'version',
    'opts.maxLenEvents', 'max', 'duration')
  q = {
    name = name, base = base, stream = base .. 'events', kinds = {}, paused = meta[1] and true or false,
    concurrency = tonumber(meta[2]), kept = tonumber(meta[4]) or 10000,
    max = tonumber(meta[5]), duration = tonumber(meta[6]),
  }
  local major = meta[3] and tonumber(string.match(meta[3], '^bullmq:(%d+)'))
  -- Nobody said: the older layout, because clients of both generations empty both lists.
  q.old = not major or major <= 5
  q.strange = strange(name, meta[3])
  q.bare = not meta[4]
  open_queues[name] = q
  catch_up(q)
  return q
end

-- The first write to a queue makes it one: Node looks for the length of its event stream.
local function touch(q)
  if not q.known then
    call('SADD', shared .. 'queues', q.name)
    q.known = true
  end
  if q.bare then
    call('HSETNX', q.base .. 'meta', 'opts.maxLenEvents', 10000)
    q.bare = false
  end
end

-- The first event that a call tells makes room for them all.
local function tell(q, event, ...)
  if q.last then
    q.last = call('XADD', q.stream, '*', 'event', event, ...)
  else
    q.last = call('XADD', q.stream, 'MAXLEN', '~', q.kept, '*', 'event', event, ...)
  end
end

local function ring(q)
  if not q.paused then call('ZADD', q.base .. 'marker', 0, '0') end
end

-- Clients up to version 5 keep ready jobs of a paused queue in a list of its own.
local function line(q)
  if q.paused and (q.old or call('EXISTS', q.base .. 'paused') == 1) then
    return q.base .. 'paused'
  end
  return q.base .. 'wait'
end

local function push(q, id, priority, front)
  if priority == 0 then
    call(front and 'RPUSH' or 'LPUSH', line(q), id)
  else
    local pc = front and 0 or call('INCR', q.base .. 'pc') % 4294967296
    call('ZADD', q.base .. 'prioritized', int(priority * 4294967296 + pc), id)
  end
  q.rung = true
end

local function postpone(q, id, due_ms)
  local low = due_ms * 4096
  local last = call('ZREVRANGEBYSCORE', q.base .. 'delayed', int(low + 4095), int(low),
    'WITHSCORES', 'LIMIT', 0, 1)
  local score = last[2] and math.min(tonumber(last[2]) + 1, low + 4095) or low
  call('ZADD', q.base .. 'delayed', int(score), id)
  q.later = true
end

local function mark_due(q)
  local first = call('ZRANGE', q.base .. 'delayed', 0, 0, 'WITHSCORES')
  if first[2] then call('ZADD', q.base .. 'marker', int(tonumber(first[2]) / 4096), '1') end
end

-- Take an id out of the ready jobs, wherever they are kept.
local function unqueue(q, id, priority)
  if priority ~= 0 and call('ZREM', q.base .. 'prioritized', id) == 1 then return true end
  if call('LREM', q.base .. 'wait', -1, id) == 1 then return true end
  if call('LREM', q.base .. 'paused', -1, id) == 1 then return true end
  return call('ZREM', q.base .. 'prioritized', id) == 1
end

-- Places that nothing in the same call looks at are filled together when the call ends.
local function places_of(q, set)
  local places = q.places
  if not places then
    places = {}
    q.places = places
  end
  local list = places[set]
  if not list then
    list = {}
    places[set] = list
  end
  return list
end
local function place(q, set, ...)
  local list = places_of(q, set)
  for i = 1, select('#', ...) do list[#list + 1] = select(i, ...) end
end
local function append(list, more)
  local size = #list
  for i = 1, #more do list[size + i] = more[i] end
end
local function place_all(q, set, members) append(places_of(q, set), members) end
local function fill(q)
  for set, list in pairs(q.places or {}) do
    if set == 'line' then
      sliced('LPUSH', line(q), list)
    else
      sliced(set == 'active' and 'LPUSH' or 'ZADD', q.base .. set, list)
    end
  end
  q.places = nil
end

-- Locks are given up together when the call ends.
local function free_locks(q)
  if q.unlocked then
    for i = 1, #q.unlocked, 1000 do
      call('DEL', unpack(q.unlocked, i, math.min(i + 999, #q.unlocked)))
    end
    if call('EXISTS', q.base .. 'stalled') == 1 then sliced('SREM', q.base .. 'stalled', q.freed) end
    q.unlocked, q.freed = nil, nil
  end
end

local function unlock(q, id)
  q.unlocked, q.freed = q.unlocked or {}, q.freed or {}
  q.unlocked[#q.unlocked + 1] = q.base .. id .. ':lock'
  q.freed[#q.freed + 1] = id
end

-- Jobs mostly end in the order in which they began: then they are the last of the list.
local function leave_active(q, ids)
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

-- Take a job out of the place that its state means; whether it was there.
local function leave(q, id, state, priority)
  if state == 'RUNNING' then
    unlock(q, id)
    return call('LREM', q.base .. 'active', -1, id) == 1
  elseif state == 'SCHEDULED' then
    return unqueue(q, id, priority)
  elseif state == 'DELAYED' or state == 'RETRYING' then
    return call('ZREM', q.base .. 'delayed', id) == 1
  elseif state == 'PENDING' then
    return call('ZREM', q.base .. 'waiting-children', id) == 1
  elseif state == 'COMPLETED' then
    return call('ZREM', q.base .. 'completed', id) == 1
  end
  return call('ZREM', q.base .. 'failed', id) == 1
end
