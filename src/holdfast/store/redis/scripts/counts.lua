-- counts: returns the store's counters with measures, queues or limits.
-- edges: none of its own; follows BullMQ clients
-- ARGV[7] 'stats', 'queues' or 'limits'; ARGV[8] namespace, or '*'; ARGV[9], ARGV[10] first and last
-- minute of the measures
-- returns: {tally, more}: per minute {minute, measures}; or per queue {name, paused, ageing, has
-- settings, since when a job is ready};
-- or {limits, windows, running, BullMQ's own limits per queue, now}
-- needs: base queue job links forget flow sync names
local namespace = ARGV[8]
follow_some(namespace)
flush()
local more = {}

-- When the oldest of the first ready jobs of each place became ready, in microseconds; 0: none is.
-- Node may use any priority: of those below our lowest level, the first stands for all.
local function ready_since(base)
  local firsts, oldest = {}, 0
  for _, list in ipairs({'wait', 'paused'}) do firsts[#firsts + 1] = attempt('LINDEX', base .. list, -1) end
  for level = 1, 5 do
    local high = level < 5 and '(' .. int((level + 1) * 4294967296) or '+inf'
    local found = attempt('ZRANGEBYSCORE', base .. 'prioritized', int(level * 4294967296), high, 'LIMIT', 0, 1)
    firsts[#firsts + 1] = found[1]
  end
  for _, id in ipairs(firsts) do
    if type(id) == 'string' then
      local v = attempt('HMGET', base .. id, 'hf:now', 'timestamp')
      local at = v[1] and tonumber(unpack_now(v[1])[SCHEDULED_AT]) or (within(v[2], MAX_MILLIS) or 0) * 1000
      if at > 0 and (oldest == 0 or at < oldest) then oldest = at end
    end
  end
  return int(oldest)
end
local function settings_of(name)
  local q, paused = open_queues[name], 0
  if q then
    paused = q.paused and 1 or 0
  else
    paused = attempt('HEXISTS', prefix .. ':' .. name .. ':meta', 'paused') == 1 and 1 or 0
  end
  return {name, paused, int(within(call('HGET', shared .. 'ageing', name), MAX_EXACT) or 0),
    call('HEXISTS', shared .. 'settings', name), ready_since(prefix .. ':' .. name .. ':')}
end
if ARGV[7] == 'stats' then
  local suffix = (namespace == '*' or namespace == '') and '' or '@' .. namespace
  for _, minute in ipairs(call('ZRANGEBYSCORE', shared .. 'minutes' .. suffix, ARGV[9], ARGV[10])) do
    if namespace ~= '' or not string.find(minute, '@', 1, true) then
      more[#more + 1] = {minute, call('HGETALL', shared .. 'minute:' .. minute)}
    end
  end
elseif ARGV[7] == 'queues' then
  for i, name in ipairs(names_within(namespace)) do more[i] = settings_of(name) end
elseif ARGV[7] == 'limits' then
  for i, name in ipairs({'limits', 'windows', 'running'}) do
    more[i] = call('HGETALL', shared .. name)
  end
  more[4], more[5] = {}, int(now)
  for _, name in ipairs(names_within(namespace)) do
    local meta = attempt('HMGET', prefix .. ':' .. name .. ':meta', 'concurrency', 'max')
    local q = (meta[1] or meta[2]) and queue(name)
    if q and (q.concurrency or q.max) then
      local started, left = limiter_of(q)
      if ARGV[2] ~= '' or left <= 0 then started, left = 0, 0 end
      more[4][#more[4] + 1] = {name, q.concurrency or 0, q.max or 0, q.duration or 0,
        int(started), int(now + left * 1000)}
    end
  end
end
return {tallies_within(namespace), more}
