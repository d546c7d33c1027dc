-- counts: returns the store's counters with measures, queues or limits.
-- edges: none of its own; follows BullMQ clients
-- ARGV[7] 'stats', 'queues' or 'limits'; ARGV[8] first minute of the measures
-- returns: {tally, more}: measures per minute; or per queue {name, paused, ageing, has settings};
-- or {limits, windows, running, BullMQ's own limits per queue, now}
-- needs: base queue job links forget flow sync
local names = call('SMEMBERS', shared .. 'queues')
for _, name in ipairs(names) do queue(name) end
flush()
local more = {}
if ARGV[7] == 'stats' then
  for i, minute in ipairs(call('ZRANGEBYSCORE', shared .. 'minutes', ARGV[8], '+inf')) do
    more[i] = call('HGETALL', shared .. 'minute:' .. minute)
  end
elseif ARGV[7] == 'queues' then
  for i, name in ipairs(names) do
    more[i] = {name, open_queues[name].paused and 1 or 0,
      int(within(call('HGET', shared .. 'ageing', name), MAX_EXACT) or 0), call('HEXISTS', shared .. 'settings', name)}
  end
elseif ARGV[7] == 'limits' then
  for i, name in ipairs({'limits', 'windows', 'running'}) do
    more[i] = call('HGETALL', shared .. name)
  end
  more[4], more[5] = {}, int(now)
  for _, name in ipairs(names) do
    local q = open_queues[name]
    if q.concurrency or q.max then
      local started, left = limiter_of(q)
      if ARGV[2] ~= '' or left <= 0 then started, left = 0, 0 end
      more[4][#more[4] + 1] = {name, q.concurrency or 0, q.max or 0, q.duration or 0,
        int(started), int(now + left * 1000)}
    end
  end
end
return {call('HGETALL', shared .. 'tally'), more}
