-- peek: returns what is stored beside a job: its history, hf:rest, its log, its parents,
-- its children, the jobs that wait or waited for it.
-- edges: none
-- ARGV[7] 'history', 'rest', 'logs', 'parents', 'children' or 'followers'; ARGV[8] msgpack: a list of ids
-- returns: per id a list of strings
-- needs: base queue job links forget flow sync
local what = ARGV[7]
local function add_histories(found, key, from, last)
  for first = from, last, 100 do
    local names = {}
    for i = first, math.min(last, first + 99) do names[#names + 1] = 'hf:h' .. i end
    for _, edge in ipairs(call('HMGET', key, unpack(names))) do found[#found + 1] = edge end
  end
  return found
end
local function details(j)
  if what == 'rest' then return {call('HGET', j.key, 'hf:rest')} end
  if what == 'logs' then return call('LRANGE', j.key .. ':logs', 0, -1) end
  return add_histories({}, j.key, 1, j.histories)
end

-- The history or log of a job that is as stored, without the rest of the job: half the time.
local PLACES = '^' .. ANY5 .. ANY .. ANY .. ANY .. ANY .. '([^|]+)|([^|]*)|([^|]*)|'
local function details_as_stored(job_id)
  local record = record_of(job_id)
  if not record then return nil end
  local _, name = read_record(record)
  local q = queue(name)
  if not q.caught_up then return nil end
  local key = q.base .. id_in(name, job_id)
  if what == 'logs' then return call('LRANGE', key .. ':logs', 0, -1) end
  local v = call('HMGET', key, 'hf:now', 'ats', 'hf:h1', 'hf:h2', 'hf:h3', 'hf:h4')
  local _, histories, starts = string.match(v[1] or '', PLACES)
  histories = within(histories, MAX_COUNT)
  if not histories or (within(v[2], MAX_COUNT) or 0) ~= tonumber(starts) then return nil end
  local found = {}
  for i = 1, math.min(histories, 4) do found[i] = v[i + 2] end
  return add_histories(found, key, 5, histories)
end

-- The jobs that a job spawned itself, then the children that BullMQ clients gave it.
local function children_of(job_id)
  local found, seen, j = {}, {}, find(job_id)
  local function add(child)
    if not seen[child] and (record_of(child) or find(child)) then found[#found + 1] = child end
    seen[child] = true
  end
  for _, each in ipairs(call('ZRANGE', shared .. 'spawn:' .. job_id, 0, -1)) do add(each) end
  local keys = j and call('SMEMBERS', j.key .. ':dependencies') or {}
  for _, each in ipairs(j and call('HKEYS', j.key .. ':processed') or {}) do keys[#keys + 1] = each end
  for _, each in ipairs(j and call('HKEYS', j.key .. ':failed') or {}) do keys[#keys + 1] = each end
  table.sort(keys)
  local links = call('HGETALL', shared .. 'p:' .. job_id)
  for i = 1, #links, 2 do seen[links[i]] = true end
  for _, key in ipairs(keys) do
    local place = string.sub(key, #prefix + 2)
    local id = string.match(place, '^[^:]*:(.*)$')
    if id then add(record_of(id) and id or place) end
  end
  return found
end

local function followers_of(job_id)
  local found = {}
  for _, each in ipairs(call('SMEMBERS', shared .. 'c:' .. job_id)) do
    if record_of(each) then found[#found + 1] = each end
  end
  return found
end

local answers = {}
local ids = cmsgpack.unpack(ARGV[8])
local is_quick = what == 'history' or what == 'logs'
if is_quick then cache_records(ids) end
for i, job_id in ipairs(ids) do
  if what == 'parents' then
    answers[i] = call('HGETALL', shared .. 'p:' .. job_id)
  elseif what == 'children' then
    answers[i] = children_of(job_id)
  elseif what == 'followers' then
    answers[i] = followers_of(job_id)
  else
    answers[i] = is_quick and details_as_stored(job_id)
    if not answers[i] then
      local j = find(job_id)
      answers[i] = j and details(j) or {}
    end
  end
end
flush()
return answers
