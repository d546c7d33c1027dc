-- keep: writes or deletes small records. Each kind has a hash of 'version|data' and a sorted set of
-- its keys; the set 'kept' holds all kinds.
-- edges: none
-- ARGV[7] msgpack: a list of {kind, key, whether to delete, version or -1}; ARGV[8...] their data
-- returns: per write its new version, 0 when deleted, -1 when refused
-- needs: base
local answers = {}
for i, write in ipairs(cmsgpack.unpack(ARGV[7])) do
  local kind, key, is_deletion, version = unpack(write)
  local hash = shared .. 'record:' .. kind
  local order = shared .. 'records:' .. kind
  local stored = call('HGET', hash, key)
  local stored_version = stored and tonumber(string.match(stored, '^(%d+)|')) or 0
  if version ~= -1 and version ~= stored_version then
    answers[i] = -1
  elseif is_deletion then
    call('HDEL', hash, key)
    call('ZREM', order, key)
    answers[i] = 0
  else
    call('HSET', hash, key, int(stored_version + 1) .. '|' .. ARGV[7 + i])
    call('ZADD', order, 0, key)
    if stored_version == 0 then call('SADD', shared .. 'kept', kind) end
    answers[i] = stored_version + 1
  end
end
return answers
