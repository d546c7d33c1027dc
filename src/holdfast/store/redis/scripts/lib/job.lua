-- job: reading a job's hash, going along edges, writing it back with its index entries.
-- What scripts must know of a job is packed into one field, hf:now, because every field costs:
-- STATE|revision|updated|due|scheduled|started|finished|expires|lease end|number|stories|
-- starts seen|held|stalls seen|failed by BullMQ|created; times in microseconds, '' for none.
-- The stories are hf:h1, hf:h2, ...: the edges it went along in one call, a line for each.
local CORE = {
  'name', 'priority', 'ats', 'atm', 'defa', 'deid', 'parentKey', 'hf:ttl', 'hf:limit', 'hf:now',
  'hf:tok', 'hf:kids', 'pb',
}
local OWN = {'data', 'progress', 'hf:job', 'hf:rest', 'hf:deps', 'hf:pg', 'hf:cp'}
-- What a reader of our own job does without until it has ended.
local NODE = {'opts', 'returnvalue', 'failedReason', 'stacktrace', 'rjk', 'hf:res'}
local INDEX = {}
for i = 1, #CORE do INDEX[CORE[i]] = i end -- a library that is being loaded can do no more
local STATE, REV, UPD, DUE, SCH, RUN, FIN, EXP, UNT, NUM, TOLD, SEEN, HELD, STC, FF, CRT =
  1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16
local ANY, EACH = '[^|]*|', '([^|]*)|'
local ANY5, EACH5 = ANY .. ANY .. ANY .. ANY .. ANY, EACH .. EACH .. EACH .. EACH .. EACH
local PACKED = '^' .. EACH5 .. EACH5 .. EACH5 .. '([^|]*)$'
local function unpacked(now_field) return {string.match(now_field, PACKED)} end
local function blank()
  return {'', '0', '0', '', '', '', '', '', '', '', '0', '0', '', '0', '', '0'}
end

local function level_of(priority) return math.max(0, math.min(4, priority)) end

-- No more than 32 fields: a larger table costs twice as much. Others are read where needed.
local function loaded(q, id, key, v)
  local ttl, priority = tonumber(v[8]), within(v[2], MOST_PRIORITY) or 0
  local level = level_of(priority)
  local p = v[10] and unpacked(v[10]) or blank()
  local state, sch = v[10] and p[STATE] or nil, tonumber(p[SCH])
  return {
    q = q, id = id, key = key, hid = ttl and id or (q.name .. ':' .. id), out = {}, values = v,
    p = p, type = v[1], priority = priority, level = level, from_level = level, ttl = ttl,
    ats = within(v[3], MOST_COUNT) or 0, atm = within(v[4], MOST_COUNT) or 0, limit = v[9], state = state,
    was = state, rev = tonumber(p[REV]), upd = tonumber(p[UPD]), sch = sch, sch_before = sch,
    run = tonumber(p[RUN]), exp = tonumber(p[EXP]), unt = tonumber(p[UNT]), n = tonumber(p[NUM]),
    hn = tonumber(p[TOLD]), tok = v[11], kids = v[12], wrk = v[13], recorded = level,
  }
end
local function load(q, id)
  local key = q.base .. id
  local v = call('HMGET', key, unpack(CORE))
  return v[1] and loaded(q, id, key, v) or nil
end
local function doom_of(j) return j.values[5] end
local function deduplication_of(j) return j.values[6] end
local function parent_key_of(j) return j.values[7] end

-- What a reader gets: id, queue, the core fields as they are now, the rest.
local function image(j)
  local values = j.values
  local function more(names)
    local from = #values
    for i, value in ipairs(call('HMGET', j.key, unpack(names))) do values[from + i] = value end
  end
  if #values == #CORE then more(OWN) end
  if not j.ttl or j.p[FF] ~= '' or j.state == 'COMPLETED' then more(NODE) end
  return {j.hid, j.q.name, values}
end

local function put(j, field, value)
  local out, index = j.out, INDEX[field]
  local n = #out
  out[n + 1], out[n + 2] = field, value
  if index and j.values then j.values[index] = tostring(value) end
end

local function pack(j)
  local packed = table.concat(j.p, '|')
  if j.values then j.values[10] = packed end
  return packed
end

local COUNTED = {
  COMPLETED = 'completed', FAILED = 'failed', DEAD_LETTER = 'dead_letter',
  CANCELLED = 'cancelled', RETRYING = 'retried',
}

-- level and type of a queue's jobs -> the names of their counters
local function kind_of(q, type, level)
  local by_type = q.kinds[level]
  if not by_type then
    by_type = {}
    q.kinds[level] = by_type
  end
  local kind = by_type[type]
  if not kind then
    kind = {where = q.name .. ':' .. level .. ':', type = type, tally = {}}
    by_type[type] = kind
  end
  return kind
end
local function count(kind, state, change)
  local field = kind.tally[state]
  if not field then
    field = kind.where .. state .. ':' .. kind.type
    kind.tally[state] = field
  end
  add_to('tally', field, change)
end

-- Events that one call tells lie packed in one entry of the stream, whose id is the last one's
-- number. What jobs in a row went through alike is written once: {type, queue, edges, ids} stands
-- for all edges of the first job, then all of the second, and so on.
local TOLD_TOGETHER = 64
local TRIM_EVERY = 64
local stories, story_count, told_here
beginnings[#beginnings + 1] = function() stories, story_count, told_here = {}, 0, 0 end
local function write_stories()
  if story_count == 0 then return end
  local stream, entry = shared .. 'events', cmsgpack.pack(stories)
  local function add() return pcall(call, 'XADD', stream, int(counters.told) .. '-0', 'n', story_count, 'e', entry) end
  if not add() then
    -- A script that failed half way has told more than it counted.
    local last = call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
    counters.told = (last and tonumber(string.match(last[1], '^%d+')) or 0) + story_count
    assert(add())
  end
  told_here = told_here + story_count
  stories, story_count = {}, 0
end
local function journal(hid, type, queue_name, json)
  if story_count >= TOLD_TOGETHER then write_stories() end
  stories[#stories + 1] = {type, queue_name, {json}, {hid}}
  story_count = story_count + 1
  return draw('told', 1)
end
-- The same for jobs that went through the same; returns pairs of last number and id.
local function journal_all(hids, type, queue_name, edges)
  local size, width, numbers = #hids, #edges, {}
  local room = math.max(1, math.floor(TOLD_TOGETHER / width))
  for first = 1, size, room do
    write_stories()
    local ids = {unpack(hids, first, math.min(first + room - 1, size))}
    stories[1], story_count = {type, queue_name, edges, ids}, #ids * width
    local told = draw('told', story_count) - story_count
    for i, hid in ipairs(ids) do
      local n = #numbers
      numbers[n + 1], numbers[n + 2] = told + i * width, hid
    end
  end
  return numbers
end

-- Go along one edge: history, event stream, counters and measures.
local function go(j, event, from, to, at, json)
  j.story = j.story and j.story .. '\n' .. json or json
  rank('moved', j.hid, journal(j.hid, j.type, j.q.name, json))
  local kind = kind_of(j.q, j.type, j.level)
  if from then
    count(j.from_level == j.level and kind or kind_of(j.q, j.type, j.from_level), from, -1)
  else
    measure(kind.where, j.type, 'submitted', at)
  end
  j.from_level = j.level
  count(kind, to, 1)
  if event == 'claim' and j.sch_before then
    measure(kind.where, j.type, 'wait', at, at - j.sch_before)
  elseif from == 'RUNNING' and j.run then
    measure(kind.where, j.type, 'run', at, at - j.run)
  end
  if COUNTED[to] then measure(kind.where, j.type, COUNTED[to], at) end
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
  local attempt, moment = j.atm, int(at)
  if to == 'RUNNING' then attempt = j.atm + 1 end
  local json = '["' .. event .. '",' .. (from and '"' .. from .. '"' or 'null') .. ',"' .. to ..
    '",' .. moment .. ',' .. cjson.encode(reason) .. ',' .. attempt .. ',' .. j.ats ..
    ',' .. cjson.encode(j.wrk or '') .. ',' .. (failure or 'null') .. ']'
  j.rev = from and j.rev + 1 or 0
  go(j, event, from, to, at, json)
  local p = j.p
  p[STATE], p[REV], p[UPD] = to, j.rev, moment
end

-- Write a job back, and its places in the indexes.
local function save(j)
  if j.story then
    j.hn = j.hn + 1
    put(j, 'hf:h' .. j.hn, j.story)
    j.story = nil
  end
  j.p[TOLD], j.p[SEEN] = j.hn, j.ats
  put(j, 'hf:now', pack(j))
  call('HSET', j.key, unpack(j.out))
  j.out = {}
  if j.recorded ~= j.level then
    records[j.hid] = j.level .. ':' .. j.q.name .. ':' .. j.type
    j.recorded = j.level
  end
  if j.was ~= j.state then
    -- Running jobs need no index: they are few, and in their queue's list.
    if j.was and j.was ~= 'RUNNING' then rank('s:' .. j.was, j.hid) end
    if j.state ~= 'RUNNING' then rank('s:' .. j.state, j.hid, j.n) end
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

-- Find a job by the id that holdfast knows it by; in a queue, if that is known.
local adopt
local function find_in(name, hid)
  local id = hid
  if string.sub(hid, 1, #name + 1) == name .. ':' then id = string.sub(hid, #name + 2) end
  return adopt(queue(name), id)
end
local function find(hid)
  local record = record_of(hid)
  if record then
    local _, name = read_record(record)
    return find_in(name, hid)
  end
  local name, id = string.match(hid, '^([^:]+):(.+)$')
  if not name or call('EXISTS', prefix .. ':' .. name .. ':' .. id) == 0 then return nil end
  return adopt(queue(name), id)
end

local function flush()
  write_stories()
  flush_ranked()
  flush_records()
  flush_sums()
  flush_readings()
  flush_counters()
  for _, q in pairs(open_queues) do
    free_locks(q)
    fill(q)
    if q.rung then ring(q) end
    if q.later then mark_due(q) end
    if q.last then
      touch(q)
      if q.caught_up then call('SET', q.base .. 'hf:seen', q.last) end
    end
  end
  if told_here > 0 and counters.told % TRIM_EVERY < told_here then
    local first = int(math.max(0, counters.told - tonumber(ARGV[3])))
    call('XTRIM', shared .. 'events', 'MINID', '~', first .. '-0')
  end
end
