-- names: the queues and counters of one namespace, and which queues a call follows.
-- '*' stands for every namespace, '' for names without a slash.
local FOLLOWED = 500 -- queues that a call follows; where there are more, others follow in later calls

local function bounds_of(namespace)
  if namespace == '*' then return '-', '+' end
  if namespace == '' then return '[:', '(;' end
  return '[' .. namespace .. '/', '(' .. namespace .. '0'
end
local function unranked(names)
  for i, name in ipairs(names) do
    if string.sub(name, 1, 1) == ':' then names[i] = string.sub(name, 2) end
  end
  return names
end

-- Older versions do not write this index; whenever it lacks entries it is written again.
local function list_names()
  if call('ZCARD', shared .. 'names') == call('SCARD', shared .. 'queues') then return end
  local members = {}
  for _, name in ipairs(call('SMEMBERS', shared .. 'queues')) do
    members[#members + 1] = 0
    members[#members + 1] = ranked(name)
  end
  call('DEL', shared .. 'names')
  call_in_slices('ZADD', shared .. 'names', members)
end

local function names_within(namespace)
  list_names()
  return unranked(call('ZRANGEBYLEX', shared .. 'names', bounds_of(namespace)))
end

-- Follow what BullMQ clients did in the queues of a namespace, as many as one call may; return them.
local function follow_some(namespace)
  list_names()
  local key, low, high = shared .. 'names', bounds_of(namespace)
  local found
  if call('ZLEXCOUNT', key, low, high) <= FOLLOWED then
    found = call('ZRANGEBYLEX', key, low, high)
  else
    local last = call('HGET', shared .. 'turns', namespace)
    found = call('ZRANGEBYLEX', key, last and '(' .. last or low, high, 'LIMIT', 0, FOLLOWED)
    append(found, call('ZRANGEBYLEX', key, low, high, 'LIMIT', 0, FOLLOWED - #found))
    call('HSET', shared .. 'turns', namespace, found[#found])
  end
  for _, name in ipairs(unranked(found)) do queue(name) end
  return found
end

-- The counters between two bounds, as HGETALL returns them.
local function tallies_between(low, high)
  list_tallies()
  local fields, found = unranked(call('ZRANGEBYLEX', shared .. 'tallied', low, high)), {}
  for i = 1, #fields, 1000 do
    local last = math.min(i + 999, #fields)
    for n, count in ipairs(call('HMGET', shared .. 'tally', unpack(fields, i, last))) do
      found[#found + 1] = fields[i + n - 1]
      found[#found + 1] = count or '0'
    end
  end
  return found
end
local function tallies_within(namespace)
  if namespace == '*' then return call('HGETALL', shared .. 'tally') end
  return tallies_between(bounds_of(namespace))
end
local function tallies_of_queue(name)
  return tallies_between('[' .. ranked(name) .. ':', '(' .. ranked(name) .. ';')
end

local function served_names() -- a worker may also wait for queues that do not exist yet
  call('ZREMRANGEBYSCORE', shared .. 'served', '-inf', '(' .. int(now - SERVED_FOR))
  local found = {}
  for _, name in ipairs(call('ZRANGE', shared .. 'served', 0, -1)) do
    if call('SISMEMBER', shared .. 'queues', name) == 1 then found[#found + 1] = name end
  end
  return found
end
