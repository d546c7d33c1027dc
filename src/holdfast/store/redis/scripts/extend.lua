-- extend: renews leases of RUNNING jobs under their token, also expired ones.
-- edges: none
-- ARGV[7] msgpack: a list of {id, token}
-- returns: per fence false, or {lease end, hf:rest}
-- needs: base queue job links forget flow sync
local answers = {}
for i, fence in ipairs(cmsgpack.unpack(ARGV[7])) do
  local j = find(fence[1])
  answers[i] = false
  if j and j.state == 'RUNNING' and j.lease_end and holds(j, fence[2]) then
    serve(j.q)
    local ttl = j.ttl or tonumber(ARGV[5])
    j.lease_end = now + ttl
    j.now[LEASE_END] = int(j.lease_end)
    call('HSET', j.key, 'hf:now', pack_now(j))
    call('SET', j.key .. ':lock', fence[2], 'PX', int(math.max(1, ttl / 1000)))
    call('SREM', j.q.base .. 'stalled', j.id)
    set_index('over', j.job_id, math.min(j.lease_end, j.expires))
    answers[i] = {int(j.lease_end), call('HGET', j.key, 'hf:rest')}
  end
end
flush()
return answers
