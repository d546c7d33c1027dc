-- extend: renew leases of RUNNING jobs under their token; an expired one nobody took as well.
-- edges: none
-- ARGV[7] msgpack: a list of {id, token}
-- returns: per fence false, or {until, mutable blob}
-- needs: base queue job links forget flow sync
local answers = {}
for i, fence in ipairs(cmsgpack.unpack(ARGV[7])) do
  local j = find(fence[1])
  answers[i] = false
  if j and j.state == 'RUNNING' and j.tok == fence[2] and j.unt then
    local ttl = j.ttl or tonumber(ARGV[5])
    j.unt = now + ttl
    j.p[UNT] = int(j.unt)
    call('HSET', j.key, 'hf:now', pack(j))
    call('SET', j.key .. ':lock', fence[2], 'PX', int(math.max(1, ttl / 1000)))
    call('SREM', j.q.base .. 'stalled', j.id)
    rank('over', j.hid, math.min(j.unt, j.exp))
    answers[i] = {int(j.unt), call('HGET', j.key, 'hf:rest')}
  end
end
flush()
return answers
