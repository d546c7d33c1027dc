-- sync: notice what BullMQ clients did. Their events lie in the queue's stream behind the last
-- one this store has seen; each job named there is compared with what we know of it.
local CATCH_UP = 1000

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

local function hop(j, from, to)
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
    if to == 'PENDING' then return 'give_back', 'RETRYING', 'waits for its children' end
    if j.stalled then return 'lapse', 'RETRYING', 'stalled' end
    return 'retry', 'RETRYING', 'retried by a BullMQ worker'
  end
  return 'reopen', to == 'DELAYED' and to or 'SCHEDULED', 'retried by a BullMQ client'
end

local function effect(j, event, to, at)
  if event == 'claim' then
    j.run, j.tok = at, call('GET', j.key .. ':lock') or ''
    local left = call('PTTL', j.key .. ':lock')
    j.unt = now + math.max(0, left) * 1000
    j.p[RUN], j.p[UNT] = int(at), int(j.unt)
    put(j, 'hf:tok', j.tok)
    if not j.wrk then
      j.wrk = 'bullmq'
      put(j, 'pb', j.wrk)
    end
  elseif to == 'SCHEDULED' then
    j.sch = at
    j.p[SCH] = int(at)
  elseif TERMINAL[to] then
    j.p[FIN] = int(at)
  end
  if event ~= 'claim' and event ~= 'lapse' and j.was_running then
    j.unt, j.p[UNT] = nil, ''
  end
  if to == 'FAILED' or to == 'DEAD_LETTER' or event == 'retry' or event == 'lapse' then
    j.p[FF] = '1'
  end
end

local function moment(j, event, to)
  if event == 'submit' then return j.created end
  if event == 'claim' and j.processed then return j.processed * 1000 end
  if TERMINAL[to] and j.finished then return j.finished * 1000 end
  return now
end

-- Lead a job along the table to where BullMQ has put it.
local function follow(j, to, due)
  local first = j.ats > tonumber(j.p[SEEN]) and j.state ~= nil
  for _ = 1, 9 do
    if j.state == to and not first then break end
    local again = first and j.state == 'RUNNING'
    first = false
    local event, state, reason = hop(j, j.state, again and 'SCHEDULED' or to)
    local at = moment(j, event, state)
    if j.state == 'RUNNING' and to == 'PENDING' and event == 'give_back' then state = to end
    j.was_running = j.state == 'RUNNING'
    effect(j, event, state, at)
    step(j, event, state, at, reason)
    j.p[SEEN] = j.ats
  end
  if due then
    j.p[DUE] = int(math.floor(due / 4096) * 1000)
  end
  save(j)
  if TERMINAL[j.state] and j.kids then spread(j.hid, j.state) end
  if j.was ~= 'PENDING' then rank('ripe', j.hid) end
end

local function introduce(j)
  j.n = draw('number', 1)
  j.exp = math.max(now, j.created) + j.delay * 1000 + tonumber(ARGV[4])
  j.p[NUM], j.p[EXP], j.p[CRT] = int(j.n), int(j.exp), int(j.created)
  rank('created', j.hid, j.n)
  rank('t:' .. j.type, j.hid, j.n)
  touch(j.q)
end

local function reconcile(q, id)
  local j = load(q, id)
  if not j then
    if record_of(q.name .. ':' .. id) then forget(q.name .. ':' .. id) end
    local record = record_of(id)
    if record then
      local _, name = read_record(record)
      if name == q.name then
        spread(id, 'CANCELLED')
        forget(id)
      end
    end
    return nil
  end
  local v = call('HMGET', j.key, 'timestamp', 'delay', 'stc', 'processedOn', 'finishedOn')
  j.created, j.delay = (within(v[1], MOST_MILLIS) or 0) * 1000, within(v[2], MOST_MILLIS) or 0
  j.processed, j.finished = within(v[4], MOST_MILLIS), within(v[5], MOST_MILLIS)
  local to, due = place_of(q, id)
  if to == 'FAILED' then
    if j.state and TERMINAL[j.state] and j.state ~= 'COMPLETED' and j.ats <= tonumber(j.p[SEEN]) then
      to = j.state
    else
      local attempts = within(options_of(j).attempts, MOST_COUNT) or 1
      if j.atm >= math.max(1, attempts) and attempts > 1 then to = 'DEAD_LETTER' end
    end
  elseif to == 'DELAYED' and (j.atm > 0 or j.state == 'RUNNING' or j.state == 'RETRYING') then
    to = 'RETRYING'
  end
  local known = tonumber(j.p[DUE])
  if due and known and math.floor(due / 4096) == math.floor(known / 1000) then due = nil end
  j.stalled = v[3] and v[3] ~= j.p[STC]
  if j.stalled then j.p[STC] = v[3] end
  local record = record_of(j.hid)
  local old_level = record and read_record(record)
  if not old_level then j.recorded = nil end
  if not j.n then introduce(j) end
  if old_level and tonumber(old_level) ~= j.level then
    add_to('tally', q.name .. ':' .. old_level .. ':' .. j.state .. ':' .. j.type, -1)
    add_to('tally', q.name .. ':' .. j.level .. ':' .. j.state .. ':' .. j.type, 1)
    j.rev = j.rev + 1
    j.p[REV] = j.rev
    j.changed, j.recorded = true, nil
  end
  if j.state ~= to or j.ats > tonumber(j.p[SEEN]) or due or j.changed or j.stalled then follow(j, to, due) end
  return j
end

adopt = function(q, id)
  local j = load(q, id)
  if j and j.n and q.caught_up then return j end
  reconcile(q, id)
  return load(q, id)
end

-- Read what others wrote to the queue's stream since we last looked.
catch_up = function(q)
  local stream = q.base .. 'events'
  local last = call('XREVRANGE', stream, '+', '-', 'COUNT', 1)
  last = last[1] and last[1][1]
  local seen = call('GET', q.base .. 'hf:seen')
  q.known = seen and true
  if not last or last == seen then
    q.caught_up = true
    if not last or seen then return end
  end
  if not seen then
    touch(q)
    call('HSETNX', shared .. 'sweeps', q.name, '0:0')
    seen = '0-0'
    if call('XLEN', stream) > CATCH_UP then
      call('SET', q.base .. 'hf:seen', last)
      q.caught_up = true
      return
    end
  end
  local first = call('XRANGE', stream, '-', '+', 'COUNT', 1)[1][1]
  local entries = call('XRANGE', stream, '(' .. seen, '+', 'COUNT', CATCH_UP)
  local names, met = {}, {}
  for _, entry in ipairs(entries) do
    for i = 1, #entry[2], 2 do
      if entry[2][i] == 'jobId' and not met[entry[2][i + 1]] then
        met[entry[2][i + 1]] = true
        names[#names + 1] = entry[2][i + 1]
      end
    end
  end
  for _, id in ipairs(names) do reconcile(q, id) end
  local reached = entries[#entries] and entries[#entries][1] or last
  call('SET', q.base .. 'hf:seen', reached)
  q.caught_up = reached == last
  local function ms(id) return tonumber(string.match(id, '^(%d+)')) end
  if seen ~= '0-0' and ms(first) > ms(seen) then call('HSETNX', shared .. 'sweeps', q.name, '0:0') end
end

-- Jobs that this very call moved on behalf of a BullMQ flow are noticed before it ends.
local function settle()
  for _, q in pairs(open_queues) do
    for _, id in ipairs(q.touched or {}) do reconcile(q, id) end
    q.touched = nil
  end
end
