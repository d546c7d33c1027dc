-- return_markers: adds the markers of queues that still have ready jobs, for another process. No marker
-- is needed for parked jobs that wait for a limit: who frees it adds one.
-- edges: none
-- ARGV[7] msgpack: a list of names
-- returns: the names of those queues
-- needs: base
local function has_others(name, ready)
  return ready > call('ZCARD', shared .. 'parked:' .. name) or
    call('ZCOUNT', shared .. 'lanes:' .. name, -1, -1) > 0
end
local names = {}
for _, name in ipairs(cmsgpack.unpack(ARGV[7])) do
  local base = prefix .. ':' .. name .. ':'
  local ready = call('LLEN', base .. 'wait') + call('ZCARD', base .. 'prioritized')
  if ready > 0 and call('HEXISTS', base .. 'meta', 'paused') == 0 and has_others(name, ready) then
    call('ZADD', base .. 'marker', 0, '0')
    names[#names + 1] = name
  end
end
return names
