-- sync: follows what BullMQ clients did. Their events are in the queue's stream after the last one
-- this store has read; each job named there is compared with its stored state.
local CATCH_UP = 1000

-- The state that a job's place in BullMQ means; for a delayed job also its score.
local function place_of(q, id)
  local base = q.base
  if call('ZSCORE', base .. 'completed', id) then return 'COMPLETED' end
  if call('ZSCORE', base .. 'failed', id) then return 'FAILED' end
  local due = call('ZSCORE', base .. 'delayed', id)
  if due then return 'DELAYED', tonumber(due) end
  if call('ZSCORE', base .. 'prioritized', id) then return 'SCHEDULED' end
  if call('ZSCORE', base .. 'waiting-children', id) then return 'PENDING' end
  if call('LPOS', base .. 'active', id) then return 'RUNNING' end
  return 'SCHEDULED'
end

-- The state of a delayed job. One that was ready, or had an attempt, was started and delayed again.
local STARTED_BEFORE = {SCHEDULED = true, RUNNING = true, RETRYING = true}
local function delayed_state(j)
  return (j.attempts > 0 or STARTED_BEFORE[j.state or '']) and 'RETRYING' or 'DELAYED'
end

-- The next edge of the state machine for a job that BullMQ has moved from one state to another. The
-- table in model/lifecycle.py is the authority; tests/store/redis/test_next_edge.py compares them.
local function next_edge(from, to, stalled)
  if not from then return 'submit', 'PENDING', 'submitted by a BullMQ client' end
  if from == 'PENDING' then
    if to == 'DELAYED' then return 'delay', to, 'delayed by a BullMQ client' end
    return 'enqueue', 'SCHEDULED', 'nothing to wait for'
  elseif from == 'DELAYED' or from == 'RETRYING' then
    return 'due', 'SCHEDULED', 'time reached'
  elseif from == 'SCHEDULED' then
    return 'claim', 'RUNNING', 'claimed by a BullMQ worker'
  elseif from == 'RUNNING' then
    if to == 'COMPLETED' then return 'complete', to, 'handler returned' end
    if to == 'FAILED' then return 'fail', to, 'failed by a BullMQ worker' end
    if to == 'DEAD_LETTER' then return 'exhaust', to, 'failed by a BullMQ worker' end
    if to == 'CANCELLED' then return 'cancel', to, 'failed by a BullMQ worker' end
    if to == 'PENDING' then return 'wait', to, 'waits for its children' end
    if stalled then return 'lapse', 'RETRYING', 'stalled' end
    return 'retry', 'RETRYING', 'retried by a BullMQ worker'
  end
  return 'reopen', to == 'DELAYED' and to or 'SCHEDULED', 'retried by a BullMQ client'
end

local function apply_edge(j, event, to, at)
  if event == 'claim' then
    j.started, j.token = at, call('GET', j.key .. ':lock') or ''
    local left = call('PTTL', j.key .. ':lock')
    j.lease_end = now + math.max(0, left) * 1000
    j.now[STARTED], j.now[LEASE_END] = int(at), int(j.lease_end)
    put(j, 'hf:tok', j.token)
    put(j, 'hf:node', j.token)
    if not j.worker then
      j.worker = 'bullmq'
      put(j, 'pb', j.worker)
    end
  elseif to == 'SCHEDULED' then
    j.scheduled = at
    j.now[SCHEDULED_AT] = int(at)
  elseif TERMINAL[to] then
    j.now[FINISHED] = int(at)
  end
  if event ~= 'claim' and event ~= 'lapse' and j.was_running then
    j.lease_end, j.now[LEASE_END] = nil, ''
  end
  if TERMINAL[to] and to ~= 'COMPLETED' or event == 'retry' or event == 'lapse' then
    j.now[FOREIGN_FAILURE] = '1'
  end
end

local function edge_time(j, event, to)
  if event == 'submit' then return j.created end
  if event == 'claim' and j.processed then return j.processed * 1000 end
  if TERMINAL[to] and j.finished then return j.finished * 1000 end
  return now
end

-- Move a job edge by edge to the state that its place in BullMQ means.
local function follow(j, to, due)
  local restarted = j.starts > tonumber(j.now[STARTS_SEEN]) and j.state ~= nil
  if j.state == 'SCHEDULED' then unpark(j.q.name, j.id) end
  for _ = 1, 9 do
    if j.state == to and not restarted then break end
    local taken_over = restarted and j.state == 'RUNNING'
    restarted = false
    local event, state, reason = next_edge(j.state, taken_over and 'SCHEDULED' or to, j.stalled)
    local at = edge_time(j, event, state)
    j.was_running = j.state == 'RUNNING'
    apply_edge(j, event, state, at)
    move(j, event, state, at, reason)
    j.now[STARTS_SEEN] = j.starts
  end
  if due then
    j.now[DUE] = int(score_ms(due) * 1000)
    note_due(j.q, score_ms(due))
  end
  save(j)
  if TERMINAL[j.state] and j.has_children then notify_children(j.job_id, j.state) end
  if j.saved_state ~= 'PENDING' then set_index('ripe', j.job_id) end
end

local function register_job(j)
  j.number = take_numbers('number', 1)
  j.expires = math.max(now, j.created) + j.delay * 1000 + tonumber(ARGV[4])
  j.now[NUMBER], j.now[EXPIRES], j.now[CREATED] = int(j.number), int(j.expires), int(j.created)
  set_index('created', j.job_id, j.number)
  set_index('t:' .. j.type, j.job_id, j.number)
  index_namespace(j.q.name, j.job_id, j.number)
  register(j.q)
end

-- Forget a job whose hash is gone. It ended as its last event says: BullMQ deletes a job at its end
-- when removeOnComplete or removeOnFail requires it. Without such an event it counts as cancelled.
local ENDS = {COMPLETED = 'complete', FAILED = 'fail', DEAD_LETTER = 'exhaust'}
local function vanish(q, job_id, last)
  local level, name, type = read_record(record_of(job_id) or '')
  if name ~= q.name or not last and not q.caught_up then return end
  local state = last_state(job_id)
  local to = last and last.state
  if to and not TERMINAL[state] then
    local value, failure, result = cjson.encode(last.value), 'null', 'null'
    if to == 'COMPLETED' then
      result = value
    else
      failure = '{"category":"TEMPORARY","message":' .. value .. '}'
    end
    add_event(job_id, type, name, '["' .. ENDS[to] .. '","RUNNING","' .. to .. '",' .. int(now) ..
      ',"ended by a BullMQ client",1,1,"bullmq",' .. failure .. ',' .. result .. ']')
    measure(kind_of(q, type, level).prefix, type, COUNTED[to], now)
  end
  local ended = to or TERMINAL[state] and state
  notify_children(job_id, ended or 'CANCELLED', to and last.value, not ended)
  forget(job_id, state)
end

-- A function may have 200 local variables, so those that only reconcile needs are in a block.
local reconcile
do
-- How a job of ours ends that Node failed for a child: like the first dependency that failed.
local function inherited_end(j)
  if not string.find(call('HGET', j.key, 'failedReason') or '', '^child .* failed$') then return nil end
  local first, found = math.huge, nil
  local links = call('HGETALL', shared .. 'p:' .. j.job_id)
  for i = 1, #links, 2 do
    local place, state = string.match(links[i + 1], '^(%d+):(.*)$')
    if state == '' and record_of(links[i]) then
      local _, name = read_record(record_of(links[i]))
      reconcile(queue(name), string.sub(key_of(links[i]), #prefix + #name + 3))
      state = state_of(links[i])
    end
    if TERMINAL[state] and state ~= 'COMPLETED' and tonumber(place) < first then
      first, found = tonumber(place), state
    end
  end
  return found
end

-- The state of a job of ours that waits for others, by the place to which BullMQ released it. With a
-- deferred failure it waits on, for our verdict. Its time is an instant, to BullMQ a delay.
local function released_state(j, to, due)
  if to == 'SCHEDULED' and deferred_failure_of(j) then return 'PENDING' end
  local own_due = tonumber(j.now[DUE])
  if to ~= 'DELAYED' or not own_due then return to, due end
  call('ZADD', j.q.base .. 'delayed', int(math.floor(own_due / 1000) * 4096), j.id)
  j.q.needs_due_marker = true
  return to, nil
end

-- Compare a job with its place in BullMQ and follow it there; return nil when it was deleted.
local function reconcile_unguarded(q, id, last)
  local j = load_job(q, id)
  if not j then
    vanish(q, q.name .. ':' .. id, last)
    vanish(q, id, last)
    return nil
  end
  local v = call('HMGET', j.key, 'timestamp', 'delay', 'stc', 'processedOn', 'finishedOn')
  j.created, j.delay = (within(v[1], MAX_MILLIS) or 0) * 1000, within(v[2], MAX_MILLIS) or 0
  j.processed, j.finished = within(v[4], MAX_MILLIS), within(v[5], MAX_MILLIS)
  local to, due = place_of(q, id)
  if j.ttl and j.state == 'PENDING' then to, due = released_state(j, to, due) end
  if to == 'FAILED' then
    local restarted = j.starts > tonumber(j.now[STARTS_SEEN])
    if j.state and TERMINAL[j.state] and j.state ~= 'COMPLETED' and not restarted then
      to = j.state
    else
      local attempts = within(options_of(j).attempts, MAX_COUNT) or 1
      if j.attempts >= math.max(1, attempts) and attempts > 1 then to = 'DEAD_LETTER' end
      to = j.ttl and inherited_end(j) or to
    end
  elseif to == 'DELAYED' then
    to = delayed_state(j)
  end
  local known = tonumber(j.now[DUE])
  if due and known and score_ms(due) == math.floor(known / 1000) then due = nil end
  j.stalled = v[3] and v[3] ~= j.now[STALLS]
  if j.stalled then j.now[STALLS] = v[3] end
  local record = record_of(j.job_id)
  local old_level = record and read_record(record)
  if not old_level then j.recorded_level = nil end
  if not j.number then register_job(j) end
  if old_level and tonumber(old_level) ~= j.level then
    add_to('tally', q.name .. ':' .. old_level .. ':' .. j.state .. ':' .. j.type, -1)
    add_to('tally', q.name .. ':' .. j.level .. ':' .. j.state .. ':' .. j.type, 1)
    j.revision = j.revision + 1
    j.now[REVISION] = j.revision
    j.changed, j.recorded_level = true, nil
  end
  local restarted = j.starts > tonumber(j.now[STARTS_SEEN])
  if j.state ~= to or restarted or due or j.changed or j.stalled then follow(j, to, due) end
  return j
end

reconcile = function(q, id, last)
  local ok, j = guarded(q.name .. ':' .. id, reconcile_unguarded, q, id, last)
  return ok and j or nil
end
end

-- Load a job as it is now, which is as stored when all events of its queue were read.
load_current = function(q, id)
  local j = load_job(q, id)
  if j and j.number and q.caught_up and not was_started_again(j) then return j end
  return reconcile(q, id) and load_job(q, id)
end

-- How a job ended according to its newest event; false when that event is no end.
local function end_told(event, before)
  local name = event.event
  if name == 'completed' then return {state = 'COMPLETED', value = event.returnvalue or 'null'} end
  if name == 'failed' then return {state = 'FAILED', value = event.failedReason or ''} end
  if name == 'retries-exhausted' and before and (tonumber(event.attemptsMade) or 0) > 1 then
    before.state = 'DEAD_LETTER'
  end
  return (name == 'retries-exhausted' or name == 'removed') and before or false
end

-- Node's obliterate deletes jobs and stream without an event; a sweep finds the jobs that are gone.
local GONE = 9 -- the step of a sweep after those of all places
local function note_obliterated(q) call('HSETNX', shared .. 'sweeps', q.name, GONE .. ':0') end

-- Read the events of a queue's stream that were written since the last call.
catch_up = function(q)
  local stream = q.base .. 'events'
  local last = call('XREVRANGE', stream, '+', '-', 'COUNT', 1)
  last = last[1] and last[1][1]
  local seen = call('HGET', shared .. 'seen', q.name)
  if seen and not string.find(seen, '^%d+%-%d+$') then seen = nil end
  q.is_registered = seen and true
  if not last or last == seen then
    q.caught_up = true
    if not last and seen and call('EXISTS', stream) == 0 then note_obliterated(q) end
    if not last or seen then return end
  end
  if not seen then
    register(q)
    call('HSETNX', shared .. 'sweeps', q.name, '0:0')
    seen = '0-0'
    if call('XLEN', stream) > CATCH_UP then
      call('HSET', shared .. 'seen', q.name, last)
      q.caught_up = true
      return
    end
  end
  local first = call('XRANGE', stream, '-', '+', 'COUNT', 1)[1][1]
  local entries = call('XRANGE', stream, '(' .. seen, '+', 'COUNT', CATCH_UP)
  local ids, ends = {}, {}
  for _, entry in ipairs(entries) do
    local event = {}
    for i = 1, #entry[2], 2 do event[entry[2][i]] = entry[2][i + 1] end
    local id = event.jobId
    if id then
      if ends[id] == nil then ids[#ids + 1] = id end
      ends[id] = end_told(event, ends[id])
    end
  end
  local reached = entries[#entries] and entries[#entries][1] or last
  call('HSET', shared .. 'seen', q.name, reached)
  q.caught_up = reached == last
  for _, id in ipairs(ids) do reconcile(q, id, ends[id] or nil) end
  local function ms(id) return tonumber(string.match(id, '^(%d+)')) end
  if seen ~= '0-0' and ms(first) > ms(seen) then call('HSETNX', shared .. 'sweeps', q.name, '0:0') end
end

-- Reconcile the jobs that this call has moved by the rules of BullMQ. Their places are read, so what
-- is still buffered is written first: the call may have claimed or ended such a job, too.
local function reconcile_moved()
  for _, q in pairs(open_queues) do write_buffers(q) end
  for _, q in pairs(open_queues) do
    for _, id in ipairs(q.moved or {}) do reconcile(q, id) end
    q.moved = nil
  end
end
