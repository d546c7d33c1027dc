-- sweep: queues met for the first time, or after their stream ran past us, are walked in steps.
local PLACES = {'wait', 'paused', 'active', 'prioritized', 'delayed', 'waiting-children',
  'completed', 'failed'}
local STEP = 500

local function walk(q, where, cursor)
  local key = q.base .. PLACES[where]
  if where <= 3 then
    local ids = call('LRANGE', key, cursor, cursor + STEP - 1)
    for _, id in ipairs(ids) do reconcile(q, id) end
    return #ids == STEP and cursor + STEP or nil
  end
  local page = call('ZSCAN', key, cursor, 'COUNT', STEP)
  for i = 1, #page[2], 2 do reconcile(q, page[2][i]) end
  return page[1] ~= '0' and page[1] or nil
end

local function sweep()
  local pending = call('HGETALL', shared .. 'sweeps')
  for i = 1, #pending, 2 do
    local where, cursor = string.match(pending[i + 1], '^(%d+):(%d+)$')
    where = math.max(1, tonumber(where))
    local rest = walk(queue(pending[i]), where, cursor)
    if rest then
      call('HSET', shared .. 'sweeps', pending[i], where .. ':' .. rest)
    elseif where < #PLACES then
      call('HSET', shared .. 'sweeps', pending[i], (where + 1) .. ':0')
    else
      call('HDEL', shared .. 'sweeps', pending[i])
    end
  end
end

-- BullMQ removes old ended jobs without a word. Where we count more than there are, look for them.
local WEEDS = 4000
local function weed(names)
  local excess, held = 0, call('HGETALL', shared .. 'tally')
  for i = 1, #held, 2 do
    local state = string.match(held[i], '^[^:]*:[^:]*:([^:]*):')
    if TERMINAL[state] then excess = excess + held[i + 1] end
  end
  for _, name in ipairs(names) do
    local base = prefix .. ':' .. name .. ':'
    excess = excess - call('ZCARD', base .. 'completed') - call('ZCARD', base .. 'failed')
  end
  if excess <= 0 then return end
  for state in pairs(TERMINAL) do
    local cursor = call('HGET', shared .. 'weeds', state) or '0'
    local page = call('ZSCAN', shared .. 's:' .. state, cursor, 'COUNT', math.min(4 * excess, WEEDS))
    for i = 1, #page[2], 2 do
      local hid = page[2][i]
      if record_of(hid) and call('EXISTS', key_of(hid)) == 0 then forget(hid, state) end
    end
    call('HSET', shared .. 'weeds', state, page[1])
  end
end
