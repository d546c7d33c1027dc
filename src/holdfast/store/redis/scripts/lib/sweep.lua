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
