-- search: walks one index from a position and returns the jobs that match.
-- edges: none of its own; follows BullMQ clients
-- ARGV[7] msgpack {index, ascending, from, look: limit of entries, jobs: limit of replies, filters}
-- returns: {replies, positions, how many match, last position or '', tally when requested}
-- needs: base queue job links forget flow sync
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
for _, name in ipairs(call('SMEMBERS', shared .. 'queues')) do queue(name) end
flush()

local function matches(job_id)
  local record = record_of(job_id)
  if not record then return false end
  local level, name, type = read_record(record)
  if types and not types[type] then return false end
  if queues and not queues[name] or levels and not levels[level] then return false end
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

-- The running jobs, which have no index, as an index would list them.
local function running()
  local found, ids = {}, {}
  for _, q in pairs(open_queues) do
    for _, id in ipairs(attempt('LRANGE', q.base .. 'active', 0, -1)) do
      local j = load_job(q, id)
      if j and j.number and j.state == 'RUNNING' then found[#found + 1] = {j.number, j.job_id} end
    end
  end
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

local bound = want.from and '(' .. int(want.from) or nil
local ids
if want.index == 's:RUNNING' then
  ids = running()
elseif want.ascending then
  ids = call('ZRANGEBYSCORE', shared .. want.index, bound or '-inf', '+inf', 'WITHSCORES',
    'LIMIT', 0, want.look)
else
  ids = call('ZREVRANGEBYSCORE', shared .. want.index, bound or '+inf', '-inf', 'WITHSCORES',
    'LIMIT', 0, want.look)
end
local replies, positions, count = {}, {}, 0
for i = 1, #ids, 2 do
  local ok, is_match = guarded(ids[i], matches, ids[i])
  if ok and is_match then
    count = count + 1
    if #replies < want.jobs then
      local j = find(ids[i])
      if j then
        replies[#replies + 1] = reply(j)
        positions[#positions + 1] = ids[i + 1]
      end
    end
  end
end
local last = #ids >= want.look * 2 and ids[#ids] or ''
flush()
return {replies, positions, count, last, want.tally and call('HGETALL', shared .. 'tally') or {}}
