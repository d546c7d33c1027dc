-- scan: walk one index from a place on and return the jobs that fit.
-- edges: none
-- ARGV[7] msgpack {index, ascending, from or '', limit looked at, limit of images, filters}
-- returns: {images, places, how many fit, place reached or '', tally when asked for}
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
  if call('EXISTS', prefix .. ':' .. name .. ':meta') == 1 then touch(queue(name)) end
end
for _, name in ipairs(call('SMEMBERS', shared .. 'queues')) do queue(name) end
flush()

local function fits(hid)
  local record = record_of(hid)
  if not record then return false end
  local level, name, type = read_record(record)
  if types and not types[type] then return false end
  if queues and not queues[name] or levels and not levels[level] then return false end
  if states and not states[state_of(hid) or ''] then return false end
  for _, index in ipairs(want.within) do
    if not call('ZSCORE', shared .. index, hid) then return false end
  end
  if want.created_after or want.created_before or want.updated_after then
    local at = unpacked(call('HGET', key_of(hid), 'hf:now') or '')
    local created, updated = tonumber(at[CRT] or 0) or 0, tonumber(at[UPD] or 0) or 0
    if want.created_after and created < want.created_after then return false end
    if want.created_before and created >= want.created_before then return false end
    if want.updated_after and updated < want.updated_after then return false end
  end
  return true
end

-- The jobs that run now, as an index would list them.
local function running()
  local found, ids = {}, {}
  for _, q in pairs(open_queues) do
    for _, id in ipairs(call('LRANGE', q.base .. 'active', 0, -1)) do
      local j = load(q, id)
      if j and j.n and j.state == 'RUNNING' then found[#found + 1] = {j.n, j.hid} end
    end
  end
  table.sort(found, function(a, b)
    if want.ascending then return a[1] < b[1] end
    return a[1] > b[1]
  end)
  for _, each in ipairs(found) do
    local behind = not want.from or want.ascending and each[1] > want.from or
      not want.ascending and each[1] < want.from
    if behind and #ids < want.look * 2 then
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
local images, places, count = {}, {}, 0
for i = 1, #ids, 2 do
  if fits(ids[i]) then
    count = count + 1
    if #images < want.jobs then
      local j = find(ids[i])
      if j then
        images[#images + 1] = image(j)
        places[#places + 1] = ids[i + 1]
      end
    end
  end
end
local reached = #ids >= want.look * 2 and ids[#ids] or ''
flush()
return {images, places, count, reached, want.tally and call('HGETALL', shared .. 'tally') or {}}
