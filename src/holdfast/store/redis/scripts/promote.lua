-- promote: makes due jobs ready, raises aged ones, and follows queues that BullMQ clients use.
-- edges: DELAYED -> SCHEDULED, RETRYING -> SCHEDULED
-- ARGV[7] how many
-- returns: {count, next due in microseconds or '', now}
-- needs: base queue job links forget flow sync names sweep ready
local limit = tonumber(ARGV[7])
local due, next_due = {}, nil

-- Queues that workers serve or that have due jobs, and some of the others, which all have their turn.
local names, listed, served = {}, {}, {}
local function look_at(found)
  for _, name in ipairs(found) do
    if not listed[name] and not queue(name).unsupported then names[#names + 1] = name end
    listed[name] = true
  end
end
look_at(served_names())
for _, name in ipairs(names) do served[name] = true end
look_at(call('ZRANGEBYSCORE', shared .. 'due', '-inf', int(now_ms), 'LIMIT', 0, math.max(limit, 1)))
look_at(call('ZRANGEBYSCORE', shared .. 'due', '(' .. int(now_ms), '+inf', 'LIMIT', 0, 1))
local followed = follow_some('*')
look_at(followed)

-- The score of a delayed job has milliseconds; hf:now has its exact instant, unless Node moved it.
local function due_of(j, score)
  local wire_ms = score_ms(score)
  local due = j and tonumber(j.now[DUE])
  if due and math.floor(due / 1000) == wire_ms then return due end
  return wire_ms * 1000
end

local function find_due(q)
  local found = call('ZRANGEBYSCORE', q.base .. 'delayed', '-inf', '(' .. int((now_ms + 1) * 4096),
    'WITHSCORES', 'LIMIT', 0, limit + 1)
  for i = 1, #found, 2 do
    local j = load_current(q, found[i])
    if j and (j.ttl or served[q.name]) then
      due[#due + 1] = {due_of(j, tonumber(found[i + 1])), j.number, j}
    elseif not j then
      call('ZREM', q.base .. 'delayed', found[i])
    end
  end
  local later = call('ZRANGEBYSCORE', q.base .. 'delayed', int((now_ms + 1) * 4096), '+inf',
    'WITHSCORES', 'LIMIT', 0, 1)
  if later[1] then
    local at = due_of(load_current(q, later[1]), tonumber(later[2]))
    if not next_due or at < next_due then next_due = at end
  end
end
for _, name in ipairs(names) do guarded('queue ' .. name, find_due, queue(name)) end
table.sort(due, function(a, b)
  if a[1] ~= b[1] then return a[1] < b[1] end
  return a[2] < b[2]
end)

local function promote(j)
  local q = j.q
  call('ZREM', q.base .. 'delayed', j.id)
  if j.state ~= 'DELAYED' and j.state ~= 'RETRYING' then follow(j, delayed_state(j)) end
  j.scheduled = now
  put(j, 'delay', 0)
  j.now[SCHEDULED_AT] = int(now)
  move(j, 'due', 'SCHEDULED', now, 'time reached')
  push(q, j.id, j.priority)
  emit(q, 'waiting', 'jobId', j.id, 'prev', 'delayed')
  save(j)
end

local count = 0
for _, entry in ipairs(due) do
  local at, j = entry[1], entry[3]
  if at <= now and count < limit then
    count = count + 1
    guarded(j.job_id, promote, j)
  elseif not next_due or at < next_due then
    next_due = at
  end
end

local function note_next_due(q)
  local first = attempt('ZRANGE', q.base .. 'delayed', 0, 0, 'WITHSCORES')
  if first[2] then
    call('ZADD', shared .. 'due', int(score_ms(tonumber(first[2]))), q.name)
  elseif not first.err then
    call('ZREM', shared .. 'due', q.name)
  end
end

local function raise_aged(q, interval)
  local ready = call('ZRANGE', q.base .. 'prioritized', 0, 999, 'WITHSCORES')
  for i = 1, #ready, 2 do
    local j = load_current(q, ready[i])
    if j and j.scheduled then
      local level = math.max(0, j.priority - math.floor((now - j.scheduled) / interval))
      if level == 0 then
        remove_ready(q, j.id, 1)
        insert(q, j)
      elseif level < math.floor(ready[i + 1] / 4294967296) then
        local score = level * 4294967296 + ready[i + 1] % 4294967296
        unpark(q.name, j.id)
        call('ZADD', q.base .. 'prioritized', exact(score), j.id)
      end
    end
  end
end

-- A worker that removed the marker and then died or hung has woken no other worker.
local function mark_ready(q)
  if served[q.name] and not q.paused and has_claimable(q.name) then
    q.needs_marker = true
  end
end
for _, name in ipairs(names) do guarded('queue ' .. name, mark_ready, queue(name)) end

flush_indexes()
local ageing = call('HGETALL', shared .. 'ageing')
for i = 1, #ageing, 2 do
  local q, interval = queue(ageing[i]), within(ageing[i + 1], MAX_EXACT)
  if interval and not q.unsupported then guarded('queue ' .. q.name, raise_aged, q, interval) end
end
sweep()
flush()
drop_vanished(followed)
for _, name in ipairs(names) do note_next_due(queue(name)) end
flush()
return {count, next_due and int(next_due) or '', int(now)}
