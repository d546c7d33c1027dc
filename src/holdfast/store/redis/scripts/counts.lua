-- counts: returns the store's counters with measures, queues or limits.
-- edges: none of its own; follows BullMQ clients
-- ARGV[7] 'stats', 'queues' or 'limits'; ARGV[8] namespace, or '*'; ARGV[9] first minute of the
-- measures
-- returns: {tally, more}: per minute {minute, measures}; or per queue {name, paused, ageing, has settings};
-- or {limits, windows, running, BullMQ's own limits per queue, now}
-- needs: base queue job links forget flow sync names
local namespace = ARGV[8]
follow_some(namespace)
flush()
local more = {}
local function settings_of(name)
  local q, paused = open_queues[name], 0
  if q then
    paused = q.paused and 1 or 0
  else
    paused = attempt('HEXISTS', prefix .. ':' .. name .. ':meta', 'paused') == 1 and 1 or 0
  end
  return {name, paused, int(within(call('HGET', shared .. 'ageing', name), MAX_EXACT) or 0),
    call('HEXISTS', shared .. 'settings', name)}
end
if ARGV[7] == 'stats' then
  local suffix = (namespace == '*' or namespace == '') and '' or '@' .. namespace
  for _, minute in ipairs(call('ZRANGEBYSCORE', shared .. 'minutes' .. suffix, ARGV[9], '+inf')) do
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
