-- dependents: PENDING jobs, not held, on which a verdict may be due, oldest first.
-- edges: none
-- ARGV[7] how many
-- returns: per job {image, {parent, state, ...}}
-- needs: base queue job links forget flow sync
local limit = tonumber(ARGV[7])
for _, name in ipairs(call('SMEMBERS', shared .. 'queues')) do queue(name) end
flush_ranked()
flush_records()
local found, from = {}, 0
while #found < limit do
  local ids = call('ZRANGE', shared .. 'ripe', from, from + 499)
  if #ids == 0 then break end
  from = from + #ids
  for _, hid in ipairs(ids) do
    local j = #found < limit and find(hid)
    if j and j.state == 'PENDING' and j.p[HELD] ~= '1' then
      local edges, parents = call('HGETALL', shared .. 'p:' .. hid), {}
      for i = 1, #edges, 2 do
        local place, state = string.match(edges[i + 1], '^(%d+):(.*)$')
        parents[i] = place
        if state == '' then state = state_of(edges[i]) or 'CANCELLED' end
        parents[i] = {tonumber(place), edges[i], state}
      end
      found[#found + 1] = {image(j), {}}
      for _, edge in pairs(parents) do table.insert(found[#found][2], edge) end
    end
  end
end
flush()
return found
