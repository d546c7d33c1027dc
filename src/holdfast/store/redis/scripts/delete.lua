-- delete: deletes ended jobs on which no live job depends.
-- edges: none
-- ARGV[7] msgpack: a list of ids
-- returns: per id 1 or 0
-- needs: base queue job links forget flow sync
local answers = {}
for i, job_id in ipairs(cmsgpack.unpack(ARGV[7])) do
  local j = find(job_id)
  answers[i] = 0
  if j and TERMINAL[j.state] and not has_live_children(job_id) then
    answers[i] = 1
    remove_from_place(j.q, j.id, j.state, j.priority)
    erase_child(j)
    if deduplication_of(j) then forget_deduplication(j) end
    forget(job_id, j.state)
    emit(j.q, 'removed', 'jobId', j.id, 'prev', j.state == 'COMPLETED' and 'completed' or 'failed')
  end
end
reconcile_moved()
flush()
return answers
