-- swap: write decided jobs whose stored revision, token and lease end are still as decided upon.
-- edges: whatever the caller decided
-- ARGV[7] msgpack: a list of changes, see change and completion in calls.py
-- returns: per change {1, ripe} when written, else {0, image or false}
-- needs: base queue job links forget flow sync
local PREVIOUS = {
  RUNNING = 'active', DELAYED = 'delayed', RETRYING = 'delayed', PENDING = 'waiting-children',
  COMPLETED = 'completed', FAILED = 'failed', DEAD_LETTER = 'failed', CANCELLED = 'failed',
  SCHEDULED = 'waiting',
}
local limited = call('EXISTS', shared .. 'limits') == 1

local function matches(j, c)
  if j.rev ~= c.rev then return false end
  if c.token and c.token ~= j.tok then return false end
  return not c['until'] or j.unt == c['until']
end

local function finish(j, c, prev)
  local q, completed = j.q, c.state == 'COMPLETED'
  local keep = not j.ttl and kept_by(options_of(j), completed)
  put(j, 'finishedOn', int(c.finished))
  if completed then
    put(j, 'returnvalue', c.value)
    tell(q, 'completed', 'jobId', j.id, 'returnvalue', c.value, 'prev', prev)
  else
    call('HDEL', j.key, 'defa')
    tell(q, 'failed', 'jobId', j.id, 'failedReason', c.reason, 'prev', prev)
    if c.exhausted and prev == 'active' then tell_exhausted(j, c.atm) end
  end
  save(j)
  local ripened = j.kids and spread(j.hid, c.state)
  if parent_key_of(j) then tell_parent(j, completed, completed and c.value or c.reason) end
  if deduplication_of(j) then free_key(j) end
  if keep and keep.count == 0 then
    erase(q, j.id)
    forget(j.hid, j.state)
  else
    place(q, completed and 'completed' or 'failed', int(c.finished), j.id)
    if keep then
      fill(q)
      evict(j, completed, keep)
    end
  end
  return ripened
end

local function enter(j, c, prev)
  local q = j.q
  if c.state == 'SCHEDULED' then
    put(j, 'delay', 0)
    push(q, j.id, j.priority)
    tell(q, 'waiting', 'jobId', j.id, 'prev', prev)
  elseif c.state == 'RUNNING' then
    free_locks(q)
    call('SET', j.key .. ':lock', j.tok, 'PX', int(math.max(1, (j.ttl or tonumber(ARGV[5])) / 1000)))
    call('LPUSH', q.base .. 'active', j.id)
    tell(q, 'active', 'jobId', j.id, 'prev', prev)
  elseif c.state == 'RETRYING' and not j.ttl and c.at_once then
    -- BullMQ knows no delay of nothing: its job is ready again at once.
    push(q, j.id, j.priority)
    tell(q, 'waiting', 'jobId', j.id, 'prev', prev)
    q.touched = q.touched or {}
    q.touched[#q.touched + 1] = j.id
  elseif c.state == 'DELAYED' or c.state == 'RETRYING' then
    put(j, 'delay', int(math.max(0, c.due - now_ms)))
    postpone(q, j.id, c.due)
    tell(q, 'delayed', 'jobId', j.id, 'delay', int(c.due))
  end
  save(j)
end

local function write(j, c)
  local old, priority = j.state, j.priority
  if c.drop then call('HDEL', j.key, unpack(c.drop)) end
  if c.level ~= j.level then
    j.level, j.priority = c.level, c.level
    put(j, 'priority', c.level)
  end
  local p = j.p
  for i, value in ipairs(c.now) do p[i] = value end
  p[HELD], p[FF] = c.held, ''
  j.rev, j.run, j.exp, j.unt, j.sch =
    tonumber(p[REV]), tonumber(p[RUN]), tonumber(p[EXP]), tonumber(p[UNT]), tonumber(p[SCH])
  for _, edge in ipairs(c.edges) do go(j, edge[1], edge[2], edge[3], edge[4], edge[5]) end
  for i = 1, #c.fields, 2 do put(j, c.fields[i], c.fields[i + 1]) end
  if c.stack then add_trace(j, c.stack) end
  if #c.edges == 0 then
    save(j)
    return j.kids and TERMINAL[j.state] and spread(j.hid, j.state)
  end
  if TERMINAL[old] then fill(j.q) end
  leave(j.q, j.id, old, priority)
  if old == 'PENDING' then rank('ripe', j.hid) end
  if old == 'RUNNING' and (limited or j.q.concurrency) then j.q.rung = true end
  if TERMINAL[c.state] then return finish(j, c, PREVIOUS[old]) end
  enter(j, c, PREVIOUS[old])
  return false
end

-- The common case, a job of ours that simply completed, goes without a table for the job.
local DONE = {'hf:now', 'hf:tok', 'priority', 'ats', 'hf:ttl', 'hf:kids', 'parentKey', 'deid', 'hf:limit'}
local RUNNING = '^RUNNING|(%d+)|' .. string.rep('[^|]*|', 7) .. '(%d+)|(%d+)|%d+|[^|]*|([^|]*)|[^|]*|(%d+)$'
local ID, QUEUE, REVISION, TOKEN, NOW, EDGE, MADE, VALUE, ENDED, BEGAN, AT, LEVEL, TYPE, MORE =
  1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14
local runs = {}
local function run_times(q, type, level, at)
  local minute, kind = math.floor(at / 60000000), kind_of(q, type, level)
  runs[minute] = runs[minute] or {}
  runs[minute][kind] = runs[minute][kind] or {}
  return runs[minute][kind]
end
local function quick(c)
  local q, id = queue(c[QUEUE]), c[ID]
  local key = q.base .. id
  local v = call('HMGET', key, unpack(DONE))
  local rev, num, told, stalls, made = string.match(v[1] or '', RUNNING)
  if tonumber(rev) ~= c[REVISION] or v[2] ~= c[TOKEN] or not q.caught_up or not v[5] then return false end
  if v[6] or v[7] or v[8] or v[9] or level_of(tonumber(v[3]) or 0) ~= c[LEVEL] then return false end
  local edges, ended, value = told + 1, int(c[ENDED]), c[VALUE]
  call('HSET', key, 'atm', c[MADE], 'finishedOn', ended, 'returnvalue', value, 'hf:h' .. edges, c[EDGE],
    'hf:now', c[NOW] .. '|' .. num .. '|' .. edges .. '|' .. v[4] .. '||' .. stalls .. '||' .. made,
    unpack(c[MORE]))
  tell(q, 'completed', 'jobId', id, 'returnvalue', value, 'prev', 'active')
  leave(q, id, 'RUNNING')
  place(q, 'completed', ended, id)
  rank('moved', id, journal(id, c[TYPE], q.name, c[EDGE]))
  rank('s:COMPLETED', id, num)
  rank('over', id)
  if limited or q.concurrency then q.rung = true end
  local times, took = run_times(q, c[TYPE], c[LEVEL], c[AT]), c[AT] - c[BEGAN]
  times[took] = (times[took] or 0) + 1
  return true
end
local function count_completed()
  for minute, kinds in pairs(runs) do
    for kind, times in pairs(kinds) do
      for took, many in pairs(times) do
        measure(kind.where, kind.type, 'run', minute * 60000000, took, many)
        measure(kind.where, kind.type, 'completed', minute * 60000000, nil, many)
        count(kind, 'RUNNING', -many)
        count(kind, 'COMPLETED', many)
      end
    end
  end
end
local function spelt_out(c)
  local now = {}
  for value in string.gmatch(c[NOW] .. '|', '([^|]*)|') do now[#now + 1] = value end
  local fields = {'atm', c[MADE]}
  for _, each in ipairs(c[MORE]) do fields[#fields + 1] = each end
  return {
    id = c[ID], queue = c[QUEUE], rev = c[REVISION], token = c[TOKEN], now = now, held = '',
    state = 'COMPLETED', level = c[LEVEL], atm = c[MADE], fields = fields, finished = c[ENDED],
    value = c[VALUE], edges = {{'complete', 'RUNNING', 'COMPLETED', c[AT], c[EDGE]}},
  }
end

local function change(c)
  local j = find_in(c.queue, c.id)
  if not j then return {0, false} end
  if not matches(j, c) then return {0, image(j)} end
  return {1, write(j, c) and 1 or 0}
end

local WRITTEN, answers = {1, 0}, {}
for i, c in ipairs(cmsgpack.unpack(ARGV[7])) do
  if c.id then
    answers[i] = change(c)
  else
    answers[i] = quick(c) and WRITTEN or change(spelt_out(c))
  end
end
count_completed()
for _, q in pairs(open_queues) do fill(q) end
settle()
flush()
return answers
