-- base: time, numbers, and writes to indexes and counters, collected and done once per call.
-- Every script has KEYS[1] = <prefix>:hf:jobs, ARGV[1] = prefix, ARGV[2] = microseconds or '',
-- ARGV[3] events kept, ARGV[4] and ARGV[5] lifetime and lease of foreign jobs in microseconds,
-- ARGV[6] JSON: further settings of the URL, see for_scripts in settings.py.
-- Variables of a library outlive a call, so begin resets what belongs to one call.
local call, attempt, ARGV, prefix, shared, now, now_ms
local formatted, index_changes, records, record_cache
local counters, stored_counters, sum_changes, measures
local resets = {} -- functions of other parts that begin calls
local function begin(args)
  call, attempt, ARGV, prefix, shared = redis.call, redis.pcall, args, args[1], args[1] .. ':hf:'
  now = tonumber(args[2])
  if not now then
    local t = call('TIME')
    now = t[1] * 1000000 + t[2]
  end
  now_ms = math.floor(now / 1000)
  formatted, index_changes, records, record_cache = {}, {}, {}, {}
  counters, stored_counters, sum_changes, measures = {}, {}, {}, {}
  for _, reset in ipairs(resets) do reset() end
end

-- Decoded again only when the text differs: it is mostly that of the call before.
local settings, settings_text
local function setting(name)
  if settings_text ~= ARGV[6] then settings, settings_text = cjson.decode(ARGV[6]), ARGV[6] end
  return settings[name]
end

-- The history of a job goes on from its newest time if that is a little ahead, by the estimate of a
-- process. A later time was written before the clock was set back.
local SET_BACK = 2000000
local function not_before(at, updated)
  return updated and updated > at and updated < at + SET_BACK and updated or at
end

local TERMINAL = {COMPLETED = true, FAILED = true, DEAD_LETTER = true, CANCELLED = true}

-- Lua's own conversion rounds numbers of microseconds. The cache pays because a call writes the
-- same few instants many times.
local function int(n)
  local text = formatted[n]
  if not text then
    text = string.format('%.0f', n)
    formatted[n] = text
  end
  return text
end

-- Any client of the server can write anything into a hash: accept numbers from 0 to max only.
local function within(value, max)
  local n = tonumber(value)
  if n and n >= 0 and n <= max then return math.floor(n) end
  return nil
end
local MAX_COUNT, MAX_PRIORITY, MAX_MILLIS = 1e9, 2097152, 4102444800000 -- until the year 2100
local MAX_EXACT = 9007199254740992 -- beyond it a double skips whole numbers
local MAX_COUNTER = 2 ^ 53

-- The milliseconds of a delayed job's score, which may be infinite.
local function score_ms(score)
  return within(score / 4096, MAX_MILLIS) or score > 0 and MAX_MILLIS or 0
end

-- Named locks: 'holds' by name, 'held' their names in order, 'ends' their names by end. Older versions
-- write 'holds' only; whenever the others lack entries they are written again.
local function put_hold(name, ends, rest)
  call('HSET', shared .. 'holds', name, int(ends) .. '|' .. rest)
  call('ZADD', shared .. 'held', 0, name)
  call('ZADD', shared .. 'ends', int(ends), name)
end
local function list_holds()
  if call('ZCARD', shared .. 'held') == call('HLEN', shared .. 'holds') then return end
  local found = call('HGETALL', shared .. 'holds')
  call('DEL', shared .. 'held', shared .. 'ends')
  for i = 1, #found, 2 do
    call('ZADD', shared .. 'held', 0, found[i])
    call('ZADD', shared .. 'ends', tonumber(string.match(found[i + 1], '^(%d+)|')) or 0, found[i])
  end
end

-- An item that raises an error is set aside: it is reported as a lock, for a day, and the call goes
-- on with the others. Errors of the server itself, such as OOM, are no fault of an item.
local ASIDE_FOR, MOST_ASIDE = 86400000000, 1000
local FAULTS = {'WRONGTYPE', 'not an integer', 'not a valid float', 'not a float', 'out of range',
  'overflow', 'attempt to', 'bad argument', 'too many results to unpack', 'Invalid stream ID', 'is NaN'}
local function set_aside(item, fault)
  local text = type(fault) == 'table' and tostring(fault.err) or tostring(fault)
  local is_fault = false
  for i = 1, #FAULTS do is_fault = is_fault or string.find(text, FAULTS[i], 1, true) end
  if not is_fault then error(fault, 0) end
  local name = 'quarantine:' .. string.sub(item, 1, 200)
  local aside = call('ZLEXCOUNT', shared .. 'held', '[quarantine:', '(quarantine;')
  if aside < MOST_ASIDE or call('HEXISTS', shared .. 'holds', name) == 1 then
    put_hold(name, now + ASIDE_FOR, '10|quarantine' .. string.sub(text, 1, 300))
  end
  return text
end
-- Call a function for an item; return whether it succeeded, and its result or the error's text.
local function guarded(item, f, ...)
  local ok, found = pcall(f, ...)
  if ok then return true, found end
  return false, set_aside(item, found)
end

-- name of a sorted set -> member -> score, or false to remove; the last call wins
local function set_index(name, member, score)
  local set = index_changes[name]
  if not set then
    set = {}
    index_changes[name] = set
  end
  set[member] = score or false
end

-- id -> 'level:queue:type', or false to delete
local function record_of(job_id)
  local known = records[job_id]
  if known == nil then known = record_cache[job_id] end
  if known == nil then known = call('HGET', shared .. 'jobs', job_id) end
  if known and not string.find(known, '^[^:]*:[^:]*:') then return false end
  return known
end
-- Read many records at once, for a call that reads them before it changes any.
local function cache_records(job_ids)
  for i = 1, #job_ids, 1000 do
    local last = math.min(i + 999, #job_ids)
    for n, record in ipairs(call('HMGET', shared .. 'jobs', unpack(job_ids, i, last))) do
      record_cache[job_ids[i + n - 1]] = record
    end
  end
end
local function read_record(value)
  return string.match(value, '^([^:]*):([^:]*):(.*)$')
end

-- Counters of the whole store: the first numbers of a call are taken on the server; the sum of
-- later ones is written once.
local function repair_counter(name, fault)
  set_aside('counter ' .. name, fault)
  local last = call('ZREVRANGE', shared .. 'created', 0, 0, 'WITHSCORES')[2]
  if name == 'told' then
    local event = call('XREVRANGE', shared .. 'events', '+', '-', 'COUNT', 1)[1]
    last = event and string.match(event[1], '^%d+')
  end
  call('SET', shared .. name, int(within(last, MAX_EXACT) or 0))
end
local function take_numbers(name, size)
  local n = counters[name]
  if n then
    n = n + size
  else
    n = attempt('INCRBY', shared .. name, size)
    if type(n) == 'table' then
      repair_counter(name, n)
      n = call('INCRBY', shared .. name, size)
    end
    stored_counters[name] = n
  end
  counters[name] = n
  return n
end
local function flush_counters()
  for name, n in pairs(counters) do
    if stored_counters[name] ~= n then call('SET', shared .. name, int(n)) end
  end
end

-- hash -> field -> change; fields whose sum is 0 are deleted, except tallies, which are few
local function add_to(hash, field, change)
  local fields = sum_changes[hash]
  if not fields then
    fields = {}
    sum_changes[hash] = fields
  end
  fields[field] = (fields[field] or 0) + change
end

-- A queue's name, or a counter that begins with one, in an order in which those of a namespace are
-- a range. Names without a slash follow a colon, which no name has.
local function ranked(name)
  return string.find(name, '^[^:]*/') and name or ':' .. name
end
local function namespace_of(name) return string.match(name, '^([^:/]+)/') end

-- The fields of tally by namespace, and those of RUNNING jobs by type.
local function index_tally(field)
  if call('ZADD', shared .. 'tallied', 0, ranked(field)) == 0 then return end
  local state, type = string.match(field, '^[^:]*:[^:]*:([^:]*):(.*)$')
  if state == 'RUNNING' then call('ZADD', shared .. 'ran', 0, type .. '\n' .. field) end
end

-- Older versions do not write these indexes; whenever they lack entries they are written again.
local function list_tallies()
  if call('ZCARD', shared .. 'tallied') == call('HLEN', shared .. 'tally') then return end
  call('DEL', shared .. 'tallied')
  for _, field in ipairs(call('HKEYS', shared .. 'tally')) do index_tally(field) end
end

local function index_namespace(queue_name, job_id, number)
  local namespace = namespace_of(queue_name)
  if namespace then set_index('n:' .. namespace, job_id, number) end
end

-- Whether a worker should look at the ready jobs of a queue: some are not parked, see parked.lua, or no
-- worker with a handler for their type has looked at them.
local function has_claimable(name)
  local base = prefix .. ':' .. name .. ':'
  local ready = call('LLEN', base .. 'wait') + call('ZCARD', base .. 'prioritized')
  return ready > 0 and (ready > call('ZCARD', shared .. 'parked:' .. name) or
    call('ZCOUNT', shared .. 'lanes:' .. name, -1, -1) > 0)
end

-- When the earliest delayed job of each queue is due, or earlier: promote looks at the queue then.
local function note_due(q, due_ms)
  local known = tonumber(call('ZSCORE', shared .. 'due', q.name) or nil)
  if not known or known > due_ms then call('ZADD', shared .. 'due', int(due_ms), q.name) end
end

-- minute, or minute@namespace -> field -> {count, largest microseconds}
local function bucket(micros)
  if micros <= 1 then return 0 end
  local mantissa, exponent = math.frexp(micros)
  return math.ceil((exponent + math.log(mantissa) / math.log(2)) * 4)
end
local function measure(kind_prefix, type, name, at, micros, times)
  local minute, namespace = int(math.floor(at / 60000000)), namespace_of(kind_prefix)
  if namespace then minute = minute .. '@' .. namespace end
  local fields = measures[minute]
  if not fields then
    fields = {}
    measures[minute] = fields
  end
  local field = kind_prefix .. name .. ':' .. (micros and bucket(micros) or 0) .. ':' .. type
  local sum = fields[field]
  if sum then
    sum[1] = sum[1] + (times or 1)
    sum[2] = math.max(sum[2], micros or 0)
  else
    fields[field] = {times or 1, micros or 0}
  end
end

-- Lua limits how many values unpack returns.
local function call_in_slices(command, key, list)
  for i = 1, #list, 1000 do
    call(command, key, unpack(list, i, math.min(i + 999, #list)))
  end
end

local function flush_indexes()
  for name, set in pairs(index_changes) do
    local adds, removals = {}, {}
    for member, score in pairs(set) do
      if score then
        adds[#adds + 1] = score
        adds[#adds + 1] = member
      else
        removals[#removals + 1] = member
      end
    end
    call_in_slices('ZADD', shared .. name, adds)
    call_in_slices('ZREM', shared .. name, removals)
  end
  index_changes = {}
end

local function flush_records()
  local sets, removed = {}, {}
  for job_id, value in pairs(records) do
    if value then
      sets[#sets + 1] = job_id
      sets[#sets + 1] = value
    else
      removed[#removed + 1] = job_id
    end
  end
  call_in_slices('HSET', shared .. 'jobs', sets)
  call_in_slices('HDEL', shared .. 'jobs', removed)
  records = {}
end

-- A counter that is no number starts again.
local function increment(key, field, change)
  local sum = attempt('HINCRBY', key, field, change)
  if type(sum) == 'number' then return sum end
  set_aside('counter ' .. field, sum)
  call('HSET', key, field, change)
  return change
end

local function flush_sums()
  for hash, fields in pairs(sum_changes) do
    for field, change in pairs(fields) do
      local sum = change ~= 0 and increment(shared .. hash, field, change)
      if hash == 'tally' then
        if sum == change then index_tally(field) end
      elseif sum == 0 then
        call('HDEL', shared .. hash, field)
      end
    end
  end
  sum_changes = {}
end

local function flush_measures()
  for minute, fields in pairs(measures) do
    local key = shared .. 'minute:' .. minute
    local is_new = false
    for field, sum in pairs(fields) do
      is_new = increment(key, 'n:' .. field, sum[1]) == sum[1] or is_new
      if sum[2] > 0 and sum[2] > (within(call('HGET', key, 't:' .. field), MAX_EXACT) or 0) then
        call('HSET', key, 't:' .. field, int(sum[2]))
      end
    end
    if is_new then
      local number, namespace = string.match(minute, '^(%d+)(.*)$')
      call('ZADD', shared .. 'minutes', number, minute)
      if namespace ~= '' then call('ZADD', shared .. 'minutes' .. namespace, number, minute) end
    end
  end
  measures = {}
end
