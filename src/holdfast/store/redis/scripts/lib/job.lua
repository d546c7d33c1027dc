-- job: reading a job's hash, going along edges, writing it back with its index entries.
local LIGHT = {
  'name', 'timestamp', 'delay', 'priority', 'ats', 'atm', 'stc', 'processedOn', 'finishedOn',
  'parentKey', 'parent', 'rjk', 'deid', 'defa', 'hf:ttl', 'hf:limit', 'hf:state', 'hf:rev',
  'hf:due', 'hf:sch', 'hf:run', 'hf:exp', 'hf:tok', 'hf:wrk', 'hf:unt', 'hf:n', 'hf:kids',
  'hf:hn', 'hf:ats', 'hf:held', 'hf:upd', 'pb',
}
local HEAVY = {
  'data', 'opts', 'returnvalue', 'failedReason', 'stacktrace', 'progress', 'hf:job', 'hf:rest',
  'hf:deps', 'hf:fin', 'hf:pg', 'hf:cp', 'hf:res', 'hf:ff', 'hf:crt',
}

local function level_of(priority) return math.max(0, math.min(4, priority)) end

local function load(q, id)
  local v = call('HMGET', q.base .. id, unpack(LIGHT))
  if not v[1] then return nil end
  local j = {q = q, id = id, key = q.base .. id, own = v[15] and true or false, out = {}}
  j.hid = j.own and id or (q.name .. ':' .. id)
  j.type = v[1]
  j.created = (tonumber(v[2]) or 0) * 1000
  j.delay = tonumber(v[3]) or 0
  j.priority = tonumber(v[4]) or 0
  j.level = level_of(j.priority)
  j.ats, j.atm, j.stc = tonumber(v[5]) or 0, tonumber(v[6]) or 0, tonumber(v[7]) or 0
  j.processed, j.finished = tonumber(v[8]), tonumber(v[9])
  j.parent_key, j.parent, j.rjk, j.deid, j.defa = v[10], v[11], v[12], v[13], v[14]
  j.ttl, j.limit = tonumber(v[15]), v[16]
  j.state, j.rev = v[17], tonumber(v[18]) or 0
  j.due, j.sch, j.run = tonumber(v[19]), tonumber(v[20]), tonumber(v[21])
  j.exp = tonumber(v[22])
  j.tok, j.wrk, j.unt = v[23], v[24], tonumber(v[25])
  j.n, j.kids, j.hn = tonumber(v[26]), v[27], tonumber(v[28]) or 0
  j.seen = tonumber(v[29]) or 0
  j.held, j.upd, j.pb = v[30] == '1', tonumber(v[31]) or 0, v[32]
  j.was, j.from_level, j.sch_before = j.state, j.level, j.sch
  return j
end

-- What a reader gets: id, queue, the light fields, the heavy fields, present as they are now.
local function image(j)
  local light = call('HMGET', j.key, unpack(LIGHT))
  local heavy = call('HMGET', j.key, unpack(HEAVY))
  local from = #light
  for i = 1, #heavy do light[from + i] = heavy[i] end
  return {j.hid, j.q.name, light}
end

local function put(j, field, value)
  j.out[#j.out + 1] = field
  j.out[#j.out + 1] = value
end

local COUNTED = {
  COMPLETED = 'completed', FAILED = 'failed', DEAD_LETTER = 'dead_letter',
  CANCELLED = 'cancelled', RETRYING = 'retried',
}

local function journal(j, json)
  local told = next_of('told')
  call('XADD', shared .. 'events', int(told) .. '-0', 'i', j.hid, 't', j.type, 'q', j.q.name,
    'e', json)
  return told
end

-- Go along one edge: history, event stream, counters and measures.
local function go(j, event, from, to, at, json)
  j.hn = j.hn + 1
  put(j, 'hf:h' .. j.hn, json)
  rank('moved', j.hid, journal(j, json))
  local where, level = j.q.name .. ':', ':' .. j.level .. ':'
  if from then
    add_to('tally', where .. j.from_level .. ':' .. from .. ':' .. j.type, -1)
  else
    measure(where .. j.level .. ':', j.type, 'submitted', at)
  end
  j.from_level = j.level
  add_to('tally', where .. j.level .. ':' .. to .. ':' .. j.type, 1)
  if event == 'claim' and j.sch_before then
    measure(where .. j.level .. ':', j.type, 'wait', at, at - j.sch_before)
  elseif from == 'RUNNING' and j.run then
    measure(where .. j.level .. ':', j.type, 'run', at, at - j.run)
  end
  if COUNTED[to] then measure(where .. j.level .. ':', j.type, COUNTED[to], at) end
  if j.limit then
    if to == 'RUNNING' then add_to('running', j.type .. ':' .. j.limit, 1) end
    if from == 'RUNNING' then add_to('running', j.type .. ':' .. j.limit, -1) end
  end
  j.state = to
end

-- An edge that a script itself decides: its audit record is written here.
local function step(j, event, to, at, reason, failure)
  local from = j.state
  at = math.max(at, j.upd or 0)
  j.upd = at
  local attempt = j.atm
  if to == 'RUNNING' then attempt = j.atm + 1 end
  local json = '["' .. event .. '",' .. (from and '"' .. from .. '"' or 'null') .. ',"' .. to ..
    '",' .. int(at) .. ',' .. cjson.encode(reason) .. ',' .. int(attempt) .. ',' .. int(j.ats) ..
    ',' .. cjson.encode(j.wrk or '') .. ',' .. (failure or 'null') .. ']'
  j.rev = j.rev + 1
  if not from then j.rev = 0 end
  go(j, event, from, to, at, json)
  put(j, 'hf:state', to)
  put(j, 'hf:rev', int(j.rev))
  put(j, 'hf:upd', int(at))
end

-- Write a job back, and its places in the indexes.
local function save(j)
  put(j, 'hf:hn', j.hn)
  put(j, 'hf:ats', j.ats)
  call('HSET', j.key, unpack(j.out))
  j.out = {}
  records[j.hid] = j.state .. ':' .. j.level .. ':' .. j.q.name .. ':' .. j.type
  if j.was ~= j.state then
    if j.was then rank('s:' .. j.was, j.hid) end
    rank('s:' .. j.state, j.hid, j.n)
    j.was = j.state
  end
  if TERMINAL[j.state] then
    rank('over', j.hid)
  elseif j.state == 'RUNNING' and j.unt then
    rank('over', j.hid, math.min(j.unt, j.exp))
  else
    rank('over', j.hid, j.exp)
  end
  j.sch_before = j.sch
end

-- Find a job by the id that holdfast knows it by.
local adopt
local function find(hid)
  local record = record_of(hid)
  local name, id
  if record then
    local _
    _, _, name = read_record(record)
    id = hid
    if string.sub(hid, 1, #name + 1) == name .. ':' then id = string.sub(hid, #name + 2) end
  else
    name, id = string.match(hid, '^([^:]+):(.+)$')
    if not name or call('EXISTS', prefix .. ':' .. name .. ':' .. id) == 0 then return nil end
  end
  local q = queue(name)
  return adopt(q, id)
end

local function flush()
  flush_ranked()
  flush_records()
  flush_sums()
  flush_readings()
  for name, n in pairs(counters) do call('SET', shared .. name, int(n)) end
  for _, q in pairs(open_queues) do
    if q.rung then ring(q) end
    if q.later then mark_due(q) end
    if q.last then
      touch(q)
      if q.caught_up then call('SET', q.base .. 'hf:seen', q.last) end
    end
  end
  if counters.told then call('XTRIM', shared .. 'events', 'MAXLEN', '~', ARGV[3]) end
end
