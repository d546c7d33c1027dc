-- get: returns jobs as they are now.
-- edges: none
-- ARGV[7] msgpack: a list of ids
-- returns: per id a reply or false
-- needs: base queue job links forget flow sync
local replies = {}
for i, job_id in ipairs(cmsgpack.unpack(ARGV[7])) do
  local j = find(job_id)
  replies[i] = j and reply(j) or false
  if not j and record_of(job_id) then forget(job_id) end
end
flush()
return replies
