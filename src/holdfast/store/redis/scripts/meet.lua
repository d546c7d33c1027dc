-- meet: get to know queues that BullMQ clients use.
-- edges: none; notices what others did
-- ARGV[6] msgpack: a list of names
-- returns: per queue the version that its last client wrote, or ''
-- needs: base queue job links forget flow sync
local versions = {}
for i, name in ipairs(cmsgpack.unpack(ARGV[6])) do
  local base = prefix .. ':' .. name .. ':'
  versions[i] = call('HGET', base .. 'meta', 'version') or ''
  if call('EXISTS', base .. 'meta') == 1 then touch(queue(name)) end
end
flush()
return versions
