-- swap: write decided jobs whose stored revision, token and lease end are still as decided upon.
-- edges: whatever the caller decided
-- ARGV[7] msgpack: a list of changes and of groups of completions, see changes in alike.py
-- returns: per change 1 when simply written, {1, ripe} when written, else {0, image or false}
-- needs: base queue job links forget flow sync
local PREVIOUS = {
  RUNNING = 'active', DELAYED = 'delayed', RETRYING = 'delayed', PENDING = 'waiting-children',
  COMPLETED = 'completed', FAILED = 'failed', DEAD_LETTER = 'failed', CANCELLED = 'failed',
  SCHEDULED = 'waiting',
}
local limited, answers

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
local RUNNING = '^RUNNING|(%d+)|' .. ANY5 .. ANY .. ANY .. '(%d+)(|%d+|%d+|[^|]*|[^|]*|[^|]*|%d+)$'
-- What stands behind the number: worked out once for all that stand there with the same.
local function told_after(g, behind, starts)
  if g.behind ~= behind or g.starts ~= starts then
    local told, stalls, made = string.match(behind, '^|(%d+)|%d+|[^|]*|([^|]*)|[^|]*|(%d+)$')
    local stories = int(told + 1)
    g.behind, g.starts, g.story = behind, starts, 'hf:h' .. stories
    g.after = '|' .. stories .. '|' .. starts .. '||' .. stalls .. '||' .. made
  end
  return g.after
end
local function quick(g, q, id, value)
  local key = q.base .. id
  local v = call('HMGET', key, unpack(DONE))
  local rev, num, behind = string.match(v[1] or '', RUNNING)
  if tonumber(rev) ~= g.rev or v[2] ~= g.token or not q.caught_up or not v[5] then return nil end
  if v[6] or v[7] or v[8] or v[9] or level_of(tonumber(v[3]) or 0) ~= g.level then return nil end
  local packed = g.now .. '|' .. num .. told_after(g, behind, v[4])
  call('HSET', key, 'atm', g.atm, 'finishedOn', g.finished, 'returnvalue', value, g.story, g.edge,
    'hf:now', packed, unpack(g.more))
  tell(q, 'completed', 'jobId', id, 'returnvalue', value, 'prev', 'active')
  return num
end
local function spelt_out(g, id, value)
  local now = {}
  for each in string.gmatch(g.now .. '|', '([^|]*)|') do now[#now + 1] = each end
  local fields = {'atm', g.atm}
  for _, each in ipairs(g.more) do fields[#fields + 1] = each end
  return {
    id = id, queue = g.queue, rev = g.rev, token = g.token, now = now, held = '', state = 'COMPLETED',
    level = g.level, atm = g.atm, fields = fields, finished = g.finished, value = value,
    edges = {{'complete', 'RUNNING', 'COMPLETED', g.at, g.edge}},
  }
end

local function change(c)
  local j = find_in(c.queue, c.id)
  if not j then return {0, false} end
  if not matches(j, c) then return {0, image(j)} end
  return {1, write(j, c) and 1 or 0}
end

local function note_done(g, q, ids, numbers)
  local size, ends = #ids, {}
  if size == 0 then return end
  for i, id in ipairs(ids) do ends[2 * i - 1], ends[2 * i] = g.finished, id end
  leave_active(q, ids)
  sliced('ZADD', shared .. 'moved', journal_all(ids, g.type, q.name, {g.edge}))
  sliced('ZADD', shared .. 's:COMPLETED', numbers)
  sliced('ZREM', shared .. 'over', ids)
  place_all(q, 'completed', ends)
  local kind = kind_of(q, g.type, g.level)
  measure(kind.where, kind.type, 'run', g.at, g.at - g.began, size)
  measure(kind.where, kind.type, 'completed', g.at, nil, size)
  count(kind, 'RUNNING', -size)
  count(kind, 'COMPLETED', size)
end

local function complete(g)
  local q, ids, numbers = queue(g.queue), {}, {}
  flush_ranked() -- what was noticed before is older than what is written here
  for i, id in ipairs(g.ids) do
    local num = quick(g, q, id, g.values[i])
    if num then
      local size = #ids
      ids[size + 1] = id
      numbers[2 * size + 1], numbers[2 * size + 2] = num, id
      answers[#answers + 1] = 1
    else
      note_done(g, q, ids, numbers)
      ids, numbers = {}, {}
      answers[#answers + 1] = change(spelt_out(g, id, g.values[i]))
    end
  end
  note_done(g, q, ids, numbers)
  if limited or q.concurrency then q.rung = true end
end

local function main()
  limited, answers = call('EXISTS', shared .. 'limits') == 1, {}
  for _, c in ipairs(cmsgpack.unpack(ARGV[7])) do
    if c.ids then complete(c) else answers[#answers + 1] = change(c) end
  end
  for _, q in pairs(open_queues) do fill(q) end
  settle()
  flush()
  return answers
end
