-- base: time, numbers, and index writes that are collected and done once per call.
-- Every script has KEYS[1] = <prefix>:hf:jobs, ARGV[1] = prefix, ARGV[2] = microseconds or '',
-- ARGV[3] events kept, ARGV[4] and ARGV[5] lifetime and lease of foreign jobs in microseconds,
-- ARGV[6] '1' to share queues with clients of any version.
-- Functions of a library outlive the call: what belongs to one call is made in begin.
local call, ARGV, prefix, shared, now, now_ms
local written, ranked, records, looked_up, counters, drawn, sums, readings
local beginnings = {} -- what else begins with each call
local function begin(args)
  call, ARGV, prefix, shared = redis.call, args, args[1], args[1] .. ':hf:'
  now = tonumber(args[2])
  if not now then
    local t = call('TIME')
    now = t[1] * 1000000 + t[2]
  end
  now_ms = math.floor(now / 1000)
  written, ranked, records, looked_up, counters, drawn, sums, readings = {}, {}, {}, {}, {}, {}, {}, {}
  for _, fresh in ipairs(beginnings) do fresh() end
end

local TERMINAL = {COMPLETED = true, FAILED = true, DEAD_LETTER = true, CANCELLED = true}

-- Numbers of microseconds have too many digits for Lua's own way of writing them; the same few
-- instants are written again and again.
local function int(n)
  local text = written[n]
  if not text then
    text = string.format('%.0f', n)
    written[n] = text
  end
  return text
end

-- Whoever can reach the server can write anything into a hash: a number is one from 0 to most.
local function within(value, most)
  local n = tonumber(value)
  if n and n >= 0 and n <= most then return math.floor(n) end
  return nil
end
local MOST_COUNT, MOST_PRIORITY, MOST_MILLIS = 1e9, 2097152, 4102444800000 -- until the year 2100

-- name of a sorted set -> member -> score, or false to remove; the last word counts
local function rank(name, member, score)
  local set = ranked[name]
  if not set then
    set = {}
    ranked[name] = set
  end
  set[member] = score or false
end

-- id -> 'level:queue:type', or false to forget
local function record_of(hid)
  local known = records[hid]
  if known == nil then known = looked_up[hid] end
  if known == nil then known = call('HGET', shared .. 'jobs', hid) end
  return known
end
-- Look up many records at once, for a call that changes none of them before it asks.
local function look_up(hids)
  for i = 1, #hids, 1000 do
    local last = math.min(i + 999, #hids)
    for n, record in ipairs(call('HMGET', shared .. 'jobs', unpack(hids, i, last))) do
      looked_up[hids[i + n - 1]] = record
    end
  end
end
local function read_record(value)
  return string.match(value, '^([^:]*):([^:]*):(.*)$')
end

-- counters of the whole store: the first numbers of a call are drawn there, what comes on top is
-- written back once
local function draw(name, size)
  local n = counters[name]
  if n then
    n = n + size
  else
    n = call('INCRBY', shared .. name, size)
    drawn[name] = n
  end
  counters[name] = n
  return n
end
local function flush_counters()
  for name, n in pairs(counters) do
    if drawn[name] ~= n then call('SET', shared .. name, int(n)) end
  end
end

-- hash -> field -> change; a sum that comes to nothing goes, but for the tallies: there are few
local function add_to(hash, field, change)
  local fields = sums[hash]
  if not fields then
    fields = {}
    sums[hash] = fields
  end
  fields[field] = (fields[field] or 0) + change
end

-- minute -> field -> {count, largest microseconds}
local function bucket(micros)
  if micros <= 1 then return 0 end
  local mantissa, exponent = math.frexp(micros)
  return math.ceil((exponent + math.log(mantissa) / math.log(2)) * 4)
end
local function measure(where, type, name, at, micros, times)
  local minute = math.floor(at / 60000000)
  local fields = readings[minute]
  if not fields then
    fields = {}
    readings[minute] = fields
  end
  local field = where .. name .. ':' .. (micros and bucket(micros) or 0) .. ':' .. type
  local held = fields[field]
  if held then
    held[1] = held[1] + (times or 1)
    held[2] = math.max(held[2], micros or 0)
  else
    fields[field] = {times or 1, micros or 0}
  end
end

local function sliced(command, key, list)
  for i = 1, #list, 1000 do
    call(command, key, unpack(list, i, math.min(i + 999, #list)))
  end
end

local function flush_ranked()
  for name, set in pairs(ranked) do
    local adds, removals = {}, {}
    for member, score in pairs(set) do
      if score then
        adds[#adds + 1] = score
        adds[#adds + 1] = member
      else
        removals[#removals + 1] = member
      end
    end
    sliced('ZADD', shared .. name, adds)
    sliced('ZREM', shared .. name, removals)
  end
  ranked = {}
end

local function flush_records()
  local sets, gone = {}, {}
  for hid, value in pairs(records) do
    if value then
      sets[#sets + 1] = hid
      sets[#sets + 1] = value
    else
      gone[#gone + 1] = hid
    end
  end
  sliced('HSET', shared .. 'jobs', sets)
  sliced('HDEL', shared .. 'jobs', gone)
  records = {}
end

local function flush_sums()
  for hash, fields in pairs(sums) do
    for field, change in pairs(fields) do
      local sum = change ~= 0 and call('HINCRBY', shared .. hash, field, change)
      if sum == 0 and hash ~= 'tally' then call('HDEL', shared .. hash, field) end
    end
  end
  sums = {}
end

local function flush_readings()
  for minute, fields in pairs(readings) do
    local key = shared .. 'minute:' .. int(minute)
    local is_new = false
    for field, held in pairs(fields) do
      is_new = call('HINCRBY', key, 'n:' .. field, held[1]) == held[1] or is_new
      if held[2] > 0 and held[2] > tonumber(call('HGET', key, 't:' .. field) or 0) then
        call('HSET', key, 't:' .. field, int(held[2]))
      end
    end
    if is_new then call('ZADD', shared .. 'minutes', minute, int(minute)) end
  end
  readings = {}
end
