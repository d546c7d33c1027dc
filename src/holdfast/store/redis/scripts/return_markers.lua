-- return_markers: adds the markers of queues that still have ready jobs, for another process.
-- edges: none
-- ARGV[7] msgpack: a list of names
-- returns: the names of those queues
-- needs: base
local names = {}
for _, name in ipairs(cmsgpack.unpack(ARGV[7])) do
  local base = prefix .. ':' .. name .. ':'
  if call('HEXISTS', base .. 'meta', 'paused') == 0 and
    (call('LLEN', base .. 'wait') > 0 or call('ZCARD', base .. 'prioritized') > 0) then
    call('ZADD', base .. 'marker', 0, '0')
    names[#names + 1] = name
  end
end
return names
