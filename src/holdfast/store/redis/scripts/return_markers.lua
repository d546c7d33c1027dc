-- return_markers: adds the markers of queues that still have ready jobs, for another process. Jobs that
-- wait for a limit need none: whatever frees the limit adds one.
-- edges: none
-- ARGV[7] msgpack: a list of names
-- returns: the names of those queues
-- needs: base
local names = {}
for _, name in ipairs(cmsgpack.unpack(ARGV[7])) do
  local base = prefix .. ':' .. name .. ':'
  if call('HEXISTS', base .. 'meta', 'paused') == 0 and has_claimable(name) then
    call('ZADD', base .. 'marker', 0, '0')
    names[#names + 1] = name
  end
end
return names
