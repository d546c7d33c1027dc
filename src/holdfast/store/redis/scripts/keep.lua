-- keep: keep or drop small records. A hash of 'version|data' per kind, their keys in order, and the
-- set 'kept' of all kinds.
-- edges: none
-- ARGV[7] packed drafts: kind, key, whether to drop, version or -1; ARGV[8...] their data
-- returns: per draft its new version, 0 when it is gone, -1 when refused
-- needs: base
local answers = {}
for i, draft in ipairs(cmsgpack.unpack(ARGV[7])) do
  local kind, key, drop, version = unpack(draft)
  local kept = shared .. 'record:' .. kind
  local order = shared .. 'records:' .. kind
  local stored = call('HGET', kept, key)
  local had = stored and tonumber(string.match(stored, '^(%d+)|')) or 0
  if version ~= -1 and version ~= had then
    answers[i] = -1
  elseif drop then
    call('HDEL', kept, key)
    call('ZREM', order, key)
    answers[i] = 0
  else
    call('HSET', kept, key, int(had + 1) .. '|' .. ARGV[7 + i])
    call('ZADD', order, 0, key)
    if had == 0 then call('SADD', shared .. 'kept', kind) end
    answers[i] = had + 1
  end
end
return answers
