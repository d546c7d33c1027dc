-- delete: delete ended jobs on which no live job depends.
-- edges: none
-- ARGV[7] msgpack: a list of ids
-- returns: per id 1 or 0
-- needs: base queue job links forget flow sync
local answers = {}
for i, hid in ipairs(cmsgpack.unpack(ARGV[7])) do
  local j = find(hid)
  answers[i] = 0
  if j and TERMINAL[j.state] and not needed(hid) then
    answers[i] = 1
    leave(j.q, j.id, j.state, j.priority)
    erase(j.q, j.id)
    forget(hid, j.state)
    tell(j.q, 'removed', 'jobId', j.id, 'prev', j.state == 'COMPLETED' and 'completed' or 'failed')
  end
end
flush()
return answers
