-- get: returns jobs as they are now.
-- edges: none
-- ARGV[7] msgpack: a list of ids
-- returns: per id a reply or false
-- needs: base queue job links forget flow sync
local replies, ids = {}, cmsgpack.unpack(ARGV[7])
cache_records(ids)
for i, job_id in ipairs(ids) do
  local j = find(job_id)
  replies[i] = j and reply(j) or false
end
flush()
return replies
