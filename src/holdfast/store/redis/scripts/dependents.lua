-- dependents: returns PENDING jobs, not held, on which a verdict may be due, oldest first.
-- edges: none
-- ARGV[7] how many
-- returns: per job {reply, {{place, parent, state}, ...}}
-- needs: base queue job links forget flow sync names
local limit = tonumber(ARGV[7])
follow_some('*')
flush_indexes()
flush_records()
local found, from = {}, 0
while #found < limit do
  local ids = call('ZRANGE', shared .. 'ripe', from, from + 499)
  if #ids == 0 then break end
  from = from + #ids
  for _, job_id in ipairs(ids) do
    local j = #found < limit and find(job_id)
    if j and j.state == 'PENDING' and j.now[HELD] ~= '1' then
      local links, parents = call('HGETALL', shared .. 'p:' .. job_id), {}
      for i = 1, #links, 2 do
        local place, state = string.match(links[i + 1], '^(%d+):(.*)$')
        if state == '' then state = state_of(links[i]) or 'CANCELLED' end
        parents[#parents + 1] = {tonumber(place), links[i], state}
      end
      found[#found + 1] = {reply(j), parents}
    end
  end
end
flush()
return found
