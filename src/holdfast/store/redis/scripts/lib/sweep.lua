-- sweep: reconciles all jobs of a queue step by step, when it is new to this store or its stream was
-- trimmed before this store had read it.
local PLACES = {'wait', 'paused', 'active', 'prioritized', 'delayed', 'waiting-children',
  'completed', 'failed'}
local STEP = 500

-- Forget the jobs of a queue whose hashes are gone, then the queue if it has no keys any more.
local function sweep_gone(q, cursor)
  local page = call('HSCAN', shared .. 'jobs', cursor, 'COUNT', 4 * STEP)
  for i = 1, #page[2], 2 do
    local job_id = page[2][i]
    local _, name = read_record(page[2][i + 1])
    if name == q.name and call('EXISTS', key_of(job_id)) == 0 then vanish(q, job_id) end
  end
  if page[1] ~= '0' then return page[1] end
  if call('EXISTS', q.stream) == 1 then return nil end
  call('HDEL', shared .. 'seen', q.name)
  if call('EXISTS', q.base .. 'meta') == 0 then
    call('SREM', shared .. 'queues', q.name)
    call('ZREM', shared .. 'names', ranked(q.name))
    call('ZREM', shared .. 'due', q.name)
    call('ZREM', shared .. 'served', q.name)
  end
  return nil
end

local function sweep_place(q, place, cursor)
  if place == GONE then return sweep_gone(q, cursor) end
  local key = q.base .. PLACES[place]
  if place <= 3 then
    local ids = call('LRANGE', key, cursor, cursor + STEP - 1)
    for _, id in ipairs(ids) do reconcile(q, id) end
    return #ids == STEP and cursor + STEP or nil
  end
  local page = call('ZSCAN', key, cursor, 'COUNT', STEP)
  for i = 1, #page[2], 2 do reconcile(q, page[2][i]) end
  return page[1] ~= '0' and page[1] or nil
end

local function sweep()
  local pending = call('HSCAN', shared .. 'sweeps', 0, 'COUNT', 100)[2]
  for i = 1, #pending, 2 do
    local place, cursor = string.match(pending[i + 1], '^(%d):(%d+)$')
    place, cursor = math.max(1, tonumber(place) or 1), cursor or '0'
    local ok, rest = guarded('queue ' .. pending[i], sweep_place, queue(pending[i]), place, cursor)
    if ok and rest then
      call('HSET', shared .. 'sweeps', pending[i], place .. ':' .. rest)
    elseif place < #PLACES then
      call('HSET', shared .. 'sweeps', pending[i], (place + 1) .. ':0')
    else
      call('HDEL', shared .. 'sweeps', pending[i])
    end
  end
end

-- BullMQ deletes old ended jobs without an event. When we count more than exist, find those.
local VANISHED_STEP = 4000
local function drop_vanished(names)
  local excess = 0
  for _, name in ipairs(names) do
    local tally = tallies_of_queue(name)
    for i = 1, #tally, 2 do
      local state = string.match(tally[i], '^[^:]*:[^:]*:([^:]*):')
      if TERMINAL[state] then excess = excess + (within(tally[i + 1], MAX_COUNT) or 0) end
    end
    local base = prefix .. ':' .. name .. ':'
    local completed, failed = attempt('ZCARD', base .. 'completed'), attempt('ZCARD', base .. 'failed')
    excess = excess - (tonumber(completed) or 0) - (tonumber(failed) or 0)
  end
  if excess <= 0 then return end
  for state in pairs(TERMINAL) do
    local cursor = call('HGET', shared .. 'weeds', state) or '0'
    local page = call('ZSCAN', shared .. 's:' .. state, cursor, 'COUNT', math.min(4 * excess, VANISHED_STEP))
    for i = 1, #page[2], 2 do
      local job_id = page[2][i]
      if record_of(job_id) and call('EXISTS', key_of(job_id)) == 0 then forget(job_id, state) end
    end
    call('HSET', shared .. 'weeds', state, page[1])
  end
end
