-- meet: get to know queues that BullMQ clients use.
-- edges: none; notices what others did
-- ARGV[7] msgpack: a list of names
-- returns: why queues cannot be shared with the last client that used them
-- needs: base queue job links forget flow sync
local strangers = {}
for _, name in ipairs(cmsgpack.unpack(ARGV[7])) do
  local base = prefix .. ':' .. name .. ':'
  if call('EXISTS', base .. 'meta') == 1 then
    local q = queue(name)
    touch(q)
    strangers[#strangers + 1] = q.strange
  end
end
flush()
return strangers
