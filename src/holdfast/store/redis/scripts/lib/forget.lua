-- forget: drop every trace of a job that is gone or goes.
local STATES = {'COMPLETED', 'FAILED', 'DEAD_LETTER', 'CANCELLED', 'SCHEDULED', 'DELAYED',
  'RETRYING', 'PENDING'}
local function last_state(hid)
  for _, state in ipairs(STATES) do
    local moved = (ranked['s:' .. state] or {})[hid]
    if moved or moved == nil and call('ZSCORE', shared .. 's:' .. state, hid) then return state end
  end
  return 'RUNNING'
end

local function forget(hid, state)
  local record = record_of(hid)
  local kept = call('HGET', shared .. 'traces', hid)
  if record then
    local level, queue_name, type = read_record(record)
    state = state or last_state(hid)
    add_to('tally', queue_name .. ':' .. level .. ':' .. state .. ':' .. type, -1)
    if state ~= 'RUNNING' then rank('s:' .. state, hid) end
    rank('t:' .. type, hid)
    rank('over', hid)
    rank('created', hid)
    rank('moved', hid)
    rank('ripe', hid)
    records[hid] = false
  end
  local spawner
  if kept then
    local trace = cjson.decode(kept)
    spawner = trace.spawner
    for _, tag in ipairs(trace.index or {}) do rank(tag, hid) end
    if trace.key then
      local holder = call('HGET', shared .. 'keys', trace.key)
      if holder and string.match(holder, '^[^|]*|[^|]*|(.*)$') == hid then
        call('HDEL', shared .. 'keys', trace.key)
        call('ZREM', shared .. 'expiring', trace.key)
      end
    end
    call('HDEL', shared .. 'traces', hid)
  end
  unlink(hid, spawner)
end

-- Delete a job with everything that BullMQ keeps beside it.
local function erase(q, id)
  local key = q.base .. id
  call('DEL', key, key .. ':logs', key .. ':dependencies', key .. ':processed', key .. ':failed',
    key .. ':unsuccessful', key .. ':lock')
end
