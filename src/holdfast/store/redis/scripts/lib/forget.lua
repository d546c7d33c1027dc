-- forget: deletes every trace of a job, except a key with a window, which outlives it.
local STATES = {'COMPLETED', 'FAILED', 'DEAD_LETTER', 'CANCELLED', 'SCHEDULED', 'DELAYED',
  'RETRYING', 'PENDING'}
local function last_state(job_id)
  for _, state in ipairs(STATES) do
    local change = (index_changes['s:' .. state] or {})[job_id]
    if change or change == nil and call('ZSCORE', shared .. 's:' .. state, job_id) then return state end
  end
  return 'RUNNING'
end

local function forget(job_id, state)
  local record = record_of(job_id)
  local packed_trace = call('HGET', shared .. 'traces', job_id)
  if record then
    local level, queue_name, type = read_record(record)
    state = state or last_state(job_id)
    add_to('tally', queue_name .. ':' .. level .. ':' .. state .. ':' .. type, -1)
    if state ~= 'RUNNING' then set_index('s:' .. state, job_id) end
    if state == 'SCHEDULED' then unpark(queue_name, id_in(queue_name, job_id)) end
    set_index('t:' .. type, job_id)
    index_namespace(queue_name, job_id)
    set_index('over', job_id)
    set_index('created', job_id)
    set_index('moved', job_id)
    set_index('ripe', job_id)
    records[job_id] = false
  end
  local spawner
  if packed_trace then
    local trace = cjson.decode(packed_trace)
    spawner = trace.spawner
    for _, name in ipairs(trace.index or {}) do set_index(name, job_id) end
    if trace.key then
      local holder = call('HGET', shared .. 'keys', trace.key)
      if holder and string.match(holder, '^[^|]*||(.*)$') == job_id then
        call('HDEL', shared .. 'keys', trace.key)
      end
    end
    call('HDEL', shared .. 'traces', job_id)
  end
  unlink(job_id, spawner)
end

-- Delete a job's keys, with those that BullMQ keeps beside it.
local function erase(q, id)
  local key = q.base .. id
  call('DEL', key, key .. ':logs', key .. ':dependencies', key .. ':processed', key .. ':failed',
    key .. ':unsuccessful', key .. ':lock')
end
