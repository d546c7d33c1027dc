-- register: adds queues of BullMQ clients to those this store knows.
-- edges: none of its own; follows BullMQ clients
-- ARGV[7] msgpack: a list of names
-- returns: why queues are not supported, because of the last client that used them
-- needs: base queue job links forget flow sync
local reasons = {}
for _, name in ipairs(cmsgpack.unpack(ARGV[7])) do
  local base = prefix .. ':' .. name .. ':'
  if call('EXISTS', base .. 'meta') == 1 then
    local q = queue(name)
    register(q)
    if not q.is_broken then reasons[#reasons + 1] = q.unsupported end
  end
end
flush()
return reasons
