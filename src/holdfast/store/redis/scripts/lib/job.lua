-- job: reads a job's hash, moves it along edges, and writes it back with its index entries.
-- What scripts read of a job is packed into one field, hf:now, because every field costs time:
-- STATE|revision|updated|due|scheduled|started|finished|expires|lease end|number|histories|
-- starts seen|held|stalls seen|failed by BullMQ|created; times in microseconds, '' for none.
-- The histories are hf:h1, hf:h2, ...: one per call that moved the job, with one line per edge.
-- A job's id is its BullMQ id; its job_id is holdfast's, '<queue>:<id>' for foreign jobs. Only
-- our own jobs have hf:ttl, so a job without a ttl is a foreign one.
local CORE = {
  'name', 'priority', 'ats', 'atm', 'defa', 'deid', 'parentKey', 'hf:ttl', 'hf:limit', 'hf:now',
  'hf:tok', 'hf:kids', 'pb',
}
local OWN = {'data', 'progress', 'hf:job', 'hf:rest', 'hf:deps', 'hf:pg', 'hf:cp'}
-- Fields that a reader of our own job needs only after its end.
local NODE = {'opts', 'returnvalue', 'failedReason', 'stacktrace', 'rjk', 'hf:res'}
local INDEX = {}
for i = 1, #CORE do INDEX[CORE[i]] = i end -- without ipairs, which a library lacks while it loads
local STATE, REVISION, UPDATED, DUE, SCHEDULED_AT, STARTED, FINISHED, EXPIRES = 1, 2, 3, 4, 5, 6, 7, 8
local LEASE_END, NUMBER, HISTORIES, STARTS_SEEN, HELD, STALLS, FOREIGN_FAILURE, CREATED =
  9, 10, 11, 12, 13, 14, 15, 16
local ANY, EACH = '[^|]*|', '([^|]*)|'
local ANY5, EACH5 = ANY .. ANY .. ANY .. ANY .. ANY, EACH .. EACH .. EACH .. EACH .. EACH
local PACKED = '^' .. EACH5 .. EACH5 .. EACH5 .. '([^|]*)$'
local function unpack_now(now_field) return {string.match(now_field, PACKED)} end
local function new_now()
  return {'', '0', '0', '', '', '', '', '', '', '', '0', '0', '', '0', '', '0'}
end

local function level_of(priority) return math.max(0, math.min(4, priority)) end

-- At most 32 fields, because a larger table costs twice as much. Others are read where needed.
local function job_of(q, id, key, v)
  local ttl = v[8] and (within(v[8], MAX_EXACT) or tonumber(ARGV[5]))
  local priority = within(v[2], MAX_PRIORITY) or 0
  local level = level_of(priority)
  local packed = v[10] and unpack_now(v[10])
  if not packed or not packed[1] then packed, v[10] = new_now(), false end
  local state, scheduled = v[10] and packed[STATE] or nil, tonumber(packed[SCHEDULED_AT])
  return {
    q = q, id = id, key = key, job_id = ttl and id or (q.name .. ':' .. id), fields = {}, values = v,
    now = packed, type = v[1], priority = priority, level = level, counted_level = level,
    recorded_level = level, ttl = ttl, starts = within(v[3], MAX_COUNT) or 0,
    attempts = within(v[4], MAX_COUNT) or 0, limit_key = v[9], state = state, saved_state = state,
    revision = tonumber(packed[REVISION]), updated = tonumber(packed[UPDATED]), scheduled = scheduled,
    scheduled_before = scheduled, started = tonumber(packed[STARTED]), expires = tonumber(packed[EXPIRES]),
    lease_end = tonumber(packed[LEASE_END]), number = tonumber(packed[NUMBER]),
    histories = tonumber(packed[HISTORIES]), token = v[11], has_children = v[12], worker = v[13],
  }
end
local function load_job(q, id)
  local key = q.base .. id
  local v = attempt('HMGET', key, unpack(CORE))
  if v.err then set_aside(q.name .. ':' .. id, v) end
  return v[1] and job_of(q, id, key, v) or nil
end
local function deferred_failure_of(j) return j.values[5] end
local function deduplication_of(j) return j.values[6] end
local function parent_key_of(j) return j.values[7] end

-- Whether a token may still answer for a RUNNING job. The lock decides, because events may be trimmed
-- before this store reads them. When the lock has expired, the last holder may answer as long as the
-- job is active and was not started again.
local function is_active(q, id) return call('LPOS', q.base .. 'active', id) and true or false end
local function was_started_again(j) return j.starts ~= tonumber(j.now[STARTS_SEEN]) end
local function holds(j, token)
  if j.token ~= token or was_started_again(j) then return false end
  local lock = call('GET', j.key .. ':lock')
  if lock then return lock == token end
  return is_active(j.q, j.id)
end

-- What a reader receives: id, queue, the core fields as they are now, the other fields. Contents with
-- more than most bytes are left out, without reading them; left_out is the size of such a result.
local function reply(j, most)
  local values = j.values
  local function is_large(name)
    local size = string.find(' data hf:cp returnvalue hf:res ', ' ' .. name .. ' ', 1, true) and call('HSTRLEN', j.key, name) or 0
    if size <= most then return false end
    if name == 'returnvalue' or name == 'hf:res' then j.left_out = size end
    return true
  end
  local function more(names)
    local from, read = #values, names
    if most then
      read = {}
      for i, name in ipairs(names) do read[i] = is_large(name) and 'hf:none' or name end
    end
    for i, value in ipairs(call('HMGET', j.key, unpack(read))) do values[from + i] = value end
  end
  if #values == #CORE then more(OWN) end
  if not j.ttl or j.now[FOREIGN_FAILURE] ~= '' or j.state == 'COMPLETED' then more(NODE) end
  return {j.job_id, j.q.name, values}
end

local function put(j, field, value)
  local fields, index = j.fields, INDEX[field]
  local n = #fields
  fields[n + 1], fields[n + 2] = field, value
  if index and j.values then j.values[index] = tostring(value) end
end

local function pack_now(j)
  local packed = table.concat(j.now, '|')
  if j.values then j.values[10] = packed end
  return packed
end

local COUNTED = {
  COMPLETED = 'completed', FAILED = 'failed', DEAD_LETTER = 'dead_letter',
  CANCELLED = 'cancelled', RETRYING = 'retried',
}

-- level and type of a queue's jobs -> the names of their counters and measures
local function kind_of(q, type, level)
  local by_type = q.kinds[level]
  if not by_type then
    by_type = {}
    q.kinds[level] = by_type
  end
  local kind = by_type[type]
  if not kind then
    kind = {prefix = q.name .. ':' .. level .. ':', type = type, tally = {}}
    by_type[type] = kind
  end
  return kind
end
local freed -- types, and lanes of limit keys, of which a job stopped running
resets[#resets + 1] = function() freed = {} end
local function count(kind, state, change)
  if state == 'RUNNING' and change < 0 then freed[kind.type] = true end
  local field = kind.tally[state]
  if not field then
    field = kind.prefix .. state .. ':' .. kind.type
    kind.tally[state] = field
  end
  add_to('tally', field, change)
end

-- The events of one call are packed into one entry of the stream, whose id is the number of the
-- last. Jobs in a row that took the same edges share one group: {type, queue, edges, ids} means
-- all edges of the first job, then all of the second, and so on.
local EVENTS_PER_ENTRY = 64
local TRIM_EVERY = 64
local event_groups, event_count, events_added
resets[#resets + 1] = function() event_groups, event_count, events_added = {}, 0, 0 end
local function write_events()
  if event_count == 0 then return end
  local stream, entry = shared .. 'events', cmsgpack.pack(event_groups)
  local function add()
    return pcall(call, 'XADD', stream, int(counters.told) .. '-0', 'n', event_count, 'e', entry)
  end
  if not add() then
    -- A script that failed half way has written events without counting them.
    local last = call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
    counters.told = (last and tonumber(string.match(last[1], '^%d+')) or 0) + event_count
    assert(add())
  end
  events_added = events_added + event_count
  event_groups, event_count = {}, 0
end
local function add_event(job_id, type, queue_name, json)
  if event_count >= EVENTS_PER_ENTRY then write_events() end
  event_groups[#event_groups + 1] = {type, queue_name, {json}, {job_id}}
  event_count = event_count + 1
  return take_numbers('told', 1)
end
-- The same for jobs that took the same edges; returns pairs of last number and id.
local function add_events(job_ids, type, queue_name, edges)
  local size, width, numbers = #job_ids, #edges, {}
  local room = math.max(1, math.floor(EVENTS_PER_ENTRY / width))
  for first = 1, size, room do
    write_events()
    local ids = {unpack(job_ids, first, math.min(first + room - 1, size))}
    event_groups[1], event_count = {type, queue_name, edges, ids}, #ids * width
    local before = take_numbers('told', event_count) - event_count
    for i, job_id in ipairs(ids) do
      local n = #numbers
      numbers[n + 1], numbers[n + 2] = before + i * width, job_id
    end
  end
  return numbers
end

-- Record one edge: in history, event stream, counters and measures.
local function record_edge(j, event, from, to, at, json)
  j.history = j.history and j.history .. '\n' .. json or json
  set_index('moved', j.job_id, add_event(j.job_id, j.type, j.q.name, json))
  local kind = kind_of(j.q, j.type, j.level)
  if from then
    count(j.counted_level == j.level and kind or kind_of(j.q, j.type, j.counted_level), from, -1)
  else
    measure(kind.prefix, j.type, 'submitted', at)
  end
  j.counted_level = j.level
  count(kind, to, 1)
  if event == 'claim' and j.scheduled_before then
    measure(kind.prefix, j.type, 'wait', at, at - j.scheduled_before)
  elseif from == 'RUNNING' and j.started then
    measure(kind.prefix, j.type, 'run', at, at - j.started)
  end
  if COUNTED[to] then measure(kind.prefix, j.type, COUNTED[to], at) end
  if j.limit_key then
    if to == 'RUNNING' then add_to('running', j.type .. ':' .. j.limit_key, 1) end
    if from == 'RUNNING' then
      add_to('running', j.type .. ':' .. j.limit_key, -1)
      freed[j.type .. '\n' .. j.limit_key] = true
    end
  end
  j.state = to
end

-- Move a job along an edge that a script decides, and write the record of that edge.
local function move(j, event, to, at, reason, failure)
  local from = j.state
  at = not_before(at, j.updated)
  j.updated = at
  local attempt, moment = j.attempts, int(at)
  if to == 'RUNNING' then attempt = j.attempts + 1 end
  local json = '["' .. event .. '",' .. (from and '"' .. from .. '"' or 'null') .. ',"' .. to ..
    '",' .. moment .. ',' .. cjson.encode(reason) .. ',' .. attempt .. ',' .. j.starts ..
    ',' .. cjson.encode(j.worker or '') .. ',' .. (failure or 'null') .. ']'
  j.revision = from and j.revision + 1 or 0
  record_edge(j, event, from, to, at, json)
  local packed = j.now
  packed[STATE], packed[REVISION], packed[UPDATED] = to, j.revision, moment
end

-- Write a job back, with its index entries.
local function save(j)
  if j.history then
    j.histories = j.histories + 1
    put(j, 'hf:h' .. j.histories, j.history)
    j.history = nil
  end
  j.now[HISTORIES], j.now[STARTS_SEEN] = j.histories, j.starts
  put(j, 'hf:now', pack_now(j))
  call('HSET', j.key, unpack(j.fields))
  j.fields = {}
  if j.recorded_level ~= j.level then
    records[j.job_id] = j.level .. ':' .. j.q.name .. ':' .. j.type
    j.recorded_level = j.level
  end
  if j.saved_state ~= j.state then
    -- Running jobs need no index: they are few, and in their queue's list.
    if j.saved_state and j.saved_state ~= 'RUNNING' then set_index('s:' .. j.saved_state, j.job_id) end
    if j.state ~= 'RUNNING' then set_index('s:' .. j.state, j.job_id, j.number) end
    j.saved_state = j.state
  end
  if TERMINAL[j.state] then
    set_index('over', j.job_id)
  elseif j.state == 'RUNNING' and j.lease_end then
    set_index('over', j.job_id, math.min(j.lease_end, j.expires))
  else
    set_index('over', j.job_id, j.expires)
  end
  j.scheduled_before = j.scheduled
end

-- The BullMQ id of a job.
local function id_in(name, job_id)
  if string.sub(job_id, 1, #name + 1) == name .. ':' then return string.sub(job_id, #name + 2) end
  return job_id
end
-- Find a job by its job_id; in a queue, if that is known.
local load_current
local function find_in(name, job_id) return load_current(queue(name), id_in(name, job_id)) end
local function find(job_id)
  local record = record_of(job_id)
  if record then
    local _, name = read_record(record)
    return find_in(name, job_id)
  end
  local name, id = string.match(job_id, '^([^:]+):(.+)$')
  if not name or call('EXISTS', prefix .. ':' .. name .. ':' .. id) == 0 then return nil end
  return load_current(queue(name), id)
end

-- Wake a worker for the parked jobs that may start after others stopped running.
local function wake_parked()
  if not next(freed) then return end
  for _, name in ipairs(call('SMEMBERS', shared .. 'parking')) do
    local is_open = false
    for lane in pairs(freed) do
      if call('ZSCORE', shared .. 'lanes:' .. name, lane) then
        if string.find(lane, '\n', 1, true) then call('ZADD', shared .. 'lanes:' .. name, 0, lane) end
        is_open = true
      end
    end
    if is_open then wake_queue(name) end
  end
end
local function flush_queue(q)
  delete_locks(q)
  write_buffers(q)
  if q.has_ended then emit_drained(q) end
  if q.needs_marker then add_marker(q) end
  if q.needs_due_marker then add_due_marker(q) end
  if q.last_event then
    register(q)
    if q.caught_up then call('HSET', shared .. 'seen', q.name, q.last_event) end
  end
end
local function flush()
  write_events()
  flush_indexes()
  flush_records()
  flush_sums()
  flush_measures()
  flush_counters()
  wake_parked()
  for _, q in pairs(open_queues) do guarded('queue ' .. q.name, flush_queue, q) end
  if events_added > 0 and counters.told % TRIM_EVERY < events_added then
    local first = int(math.max(0, counters.told - tonumber(ARGV[3])))
    call('XTRIM', shared .. 'events', 'MINID', '~', first .. '-0')
  end
end
