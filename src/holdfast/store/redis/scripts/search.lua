-- search: walks one index from a position and returns the jobs that match.
-- edges: none of its own; follows BullMQ clients
-- ARGV[7] msgpack {indexes, ascending, from, look: limit of entries, jobs: limit of replies, filters}
-- returns: {replies, positions, how many match, last position or '', tally when requested, pairs of
-- id and size of a result that was left out}
-- needs: base queue job links forget flow sync names
local want = cmsgpack.unpack(ARGV[7])
local function set_of(list)
  if #list == 0 then return nil end
  local set = {}
  for _, each in ipairs(list) do set[tostring(each)] = true end
  return set
end
local states, types = set_of(want.states), set_of(want.types)
local queues, levels = set_of(want.queues), set_of(want.levels)
for _, name in ipairs(want.queues) do
  if call('EXISTS', prefix .. ':' .. name .. ':meta') == 1 then register(queue(name)) end
end
if #want.queues == 0 then
  follow_some(want.namespace)
else
  for _, name in ipairs(want.queues) do queue(name) end
end
flush()

local function is_within(name)
  if want.namespace == '*' then return true end
  if want.namespace == '' then return not string.find(name, '/', 1, true) end
  return namespace_of(name) == want.namespace
end

local id_prefix = want.id_prefix
local function matches(job_id)
  local record = record_of(job_id)
  if not record then return false end
  local level, name, type = read_record(record)
  if types and not types[type] then return false end
  if not is_within(name) or queues and not queues[name] then return false end
  if levels and not levels[level] then return false end
  if states and not states[state_of(job_id) or ''] then return false end
  for _, index in ipairs(want.within) do
    if not call('ZSCORE', shared .. index, job_id) then return false end
  end
  if want.created_after or want.created_before or want.updated_after then
    local packed = unpack_now(call('HGET', key_of(job_id), 'hf:now') or '')
    local created, updated = tonumber(packed[CREATED] or 0) or 0, tonumber(packed[UPDATED] or 0) or 0
    if want.created_after and created < want.created_after then return false end
    if want.created_before and created >= want.created_before then return false end
    if want.updated_after and updated < want.updated_after then return false end
  end
  return true
end

-- Some jobs as an index would list them: pairs of place and id.
local function listed(found)
  local ids = {}
  table.sort(found, function(a, b)
    if want.ascending then return a[1] < b[1] end
    return a[1] > b[1]
  end)
  for _, each in ipairs(found) do
    local is_after = not want.from or want.ascending and each[1] > want.from or
      not want.ascending and each[1] < want.from
    if is_after and #ids < want.look * 2 then
      ids[#ids + 1] = each[2]
      ids[#ids + 1] = int(each[1])
    end
  end
  return ids
end

-- Running jobs have no index.
local function running()
  local found = {}
  for _, name in ipairs(queues and want.queues or names_within(want.namespace)) do
    for _, id in ipairs(attempt('LRANGE', prefix .. ':' .. name .. ':active', 0, -1)) do
      local j = load_job(queue(name), id)
      if j and j.number and j.state == 'RUNNING' then found[#found + 1] = {j.number, j.job_id} end
    end
  end
  return listed(found)
end

-- The index of a namespace lacks the jobs that older versions wrote: it counts only when it has as
-- many as the counters.
local FEW = 5000 -- up to so many jobs of a namespace are sorted by their newest transition
local namespace_index = want.namespace ~= '*' and want.namespace ~= '' and 'n:' .. want.namespace
if namespace_index then
  local jobs, tally = 0, tallies_within(want.namespace)
  for i = 2, #tally, 2 do jobs = jobs + tally[i] end
  if call('ZCARD', shared .. namespace_index) ~= jobs then namespace_index = nil end
end

local function moved_within()
  local found = {}
  for _, id in ipairs(call('ZRANGE', shared .. namespace_index, 0, -1)) do
    local place = call('ZSCORE', shared .. 'moved', id)
    if place then found[#found + 1] = {tonumber(place), id} end
  end
  return listed(found)
end

-- The index with the fewest jobs; all have the same places, except moved.
local function smallest(indexes)
  local best, size
  if namespace_index then indexes[#indexes + 1] = namespace_index end
  for _, index in ipairs(indexes) do
    local jobs = call('ZCARD', shared .. index)
    if not size or jobs < size then best, size = index, jobs end
  end
  return best
end

local bound = want.from and '(' .. int(want.from) or nil
local first = want.indexes[1]
local ids
if first == 's:RUNNING' then
  ids = running()
elseif first == 'moved' and namespace_index and call('ZCARD', shared .. namespace_index) <= FEW then
  ids = moved_within()
else
  local index = shared .. (first == 'moved' and first or smallest(want.indexes))
  if want.ascending then
    ids = call('ZRANGEBYSCORE', index, bound or '-inf', '+inf', 'WITHSCORES', 'LIMIT', 0, want.look)
  else
    ids = call('ZREVRANGEBYSCORE', index, bound or '+inf', '-inf', 'WITHSCORES', 'LIMIT', 0, want.look)
  end
end
local replies, positions, left_out, count = {}, {}, {}, 0
if not id_prefix then
  local job_ids = {}
  for i = 1, #ids, 2 do job_ids[#job_ids + 1] = ids[i] end
  cache_records(job_ids)
end
for i = 1, #ids, 2 do
  local is_candidate, ok, is_match = not id_prefix or string.sub(ids[i], 1, #id_prefix) == id_prefix, false, false
  if is_candidate then ok, is_match = guarded(ids[i], matches, ids[i]) end
  if ok and is_match then
    count = count + 1
    if #replies < want.jobs then
      local j = find(ids[i])
      if j then
        replies[#replies + 1] = reply(j, want.most_bytes)
        positions[#positions + 1] = ids[i + 1]
        if j.left_out then append(left_out, {j.job_id, j.left_out}) end
      end
    end
  end
end
local last = #ids >= want.look * 2 and ids[#ids] or ''
flush()
local tally = want.tally and tallies_within(want.namespace) or {}
return {replies, positions, count, last, tally, left_out}
