-- claim: take ready jobs under a new lease.
-- edges: SCHEDULED -> RUNNING; a job that BullMQ has doomed goes on to FAILED or DEAD_LETTER
-- ARGV[7] how many; ARGV[8] worker; ARGV[9] token; ARGV[10] msgpack {queues, types or false}
-- returns: images of the jobs taken; an error when no queue wanted can be shared
-- needs: base queue job links forget flow sync gate
local room, worker, token = tonumber(ARGV[7]), ARGV[8], ARGV[9]
local want = cmsgpack.unpack(ARGV[10])
local types
if want[2] then
  types = {}
  for _, type in ipairs(want[2]) do types[type] = true end
end
local WIDE = {}
for i, name in ipairs(CORE) do WIDE[i] = name end
for i, name in ipairs(OWN) do WIDE[#CORE + i] = name end
local SCAN = 1000 -- ready jobs looked at in one queue before the call gives up on finding a fit
local taken, strangers = {}, 0

local function start(q, j)
  local ttl = j.ttl or tonumber(ARGV[5])
  j.ats = j.ats + 1
  j.tok, j.wrk, j.unt = token, worker, now + ttl
  put(j, 'ats', j.ats)
  put(j, 'processedOn', int(now_ms))
  put(j, 'pb', worker)
  put(j, 'hf:tok', token)
  j.run = math.max(now, j.upd)
  j.p[RUN], j.p[UNT] = int(j.run), int(j.unt)
  step(j, 'claim', 'RUNNING', now, 'claimed')
  free_locks(q)
  call('SET', j.key .. ':lock', token, 'PX', int(math.max(1, math.ceil(ttl / 1000))))
  place(q, 'active', j.id)
  tell(q, 'active', 'jobId', j.id, 'prev', 'waiting')
end

-- BullMQ's word on a job that stalled too often or whose child failed: fail it, do not run it.
local function fail_doomed(q, j)
  local doom = doom_of(j)
  start(q, j)
  local dead = string.find(doom, 'stalled', 1, true) and 'DEAD_LETTER' or 'FAILED'
  j.atm = j.atm + 1
  put(j, 'atm', j.atm)
  put(j, 'failedReason', doom)
  add_trace(j, doom)
  put(j, 'finishedOn', int(now_ms))
  j.unt = nil
  j.p[FIN], j.p[UNT], j.p[FF] = int(now), '', '1'
  step(j, dead == 'FAILED' and 'fail' or 'exhaust', dead, now, doom)
  fill(q)
  leave(q, j.id, 'RUNNING', j.priority)
  call('HDEL', j.key, 'defa')
  call('ZADD', q.base .. 'failed', int(now_ms), j.id)
  tell(q, 'failed', 'jobId', j.id, 'failedReason', doom, 'prev', 'active')
  if j.atm >= (tonumber(options_of(j).attempts) or 0) then tell_exhausted(j, j.atm) end
  save(j)
  if j.kids then spread(j.hid, j.state) end
  if parent_key_of(j) then tell_parent(j, false, doom) end
  if deduplication_of(j) then free_key(j) end
end

-- The common case, a ready job of ours with nothing in its way, goes without a table for the job.
local READY = '^SCHEDULED|(%d+)|(%d+)|([^|]*)|(%d+)|[^|]*|([^|]*)|(%d+)|[^|]*|(%d+)|(%d+)|%d+|([^|]*)|([^|]*)||(%d+)$'
local MOMENT, MILLIS, WHO = int(now), int(now_ms), cjson.encode(worker)
local waits, moves, begun, ends = {}, {}, {}, {}
local function take(q, id, key, v)
  local rev, upd, due, sch, fin, exp, num, told, held, stalls, made = string.match(v[10] or '', READY)
  if not rev or tonumber(upd) > now then return false end
  local ttl, ats, level, type = tonumber(v[8]), int((tonumber(v[3]) or 0) + 1), level_of(tonumber(v[2]) or 0), v[1]
  local edges, over, n = int(told + 1), now + ttl, 2 * #begun
  local json = '["claim","SCHEDULED","RUNNING",' .. MOMENT .. ',"claimed",' .. int((tonumber(v[4]) or 0) + 1) ..
    ',' .. ats .. ',' .. WHO .. ',null]'
  local packed = 'RUNNING|' .. int(rev + 1) .. '|' .. MOMENT .. '|' .. due .. '|' .. sch .. '|' .. MOMENT .. '|' .. fin ..
    '|' .. exp .. '|' .. int(over) .. '|' .. num .. '|' .. edges .. '|' .. ats .. '|' .. held .. '|' .. stalls ..
    '||' .. made
  call('HSET', key, 'ats', ats, 'processedOn', MILLIS, 'pb', worker, 'hf:tok', token, 'hf:h' .. edges, json,
    'hf:now', packed)
  call('SET', key .. ':lock', token, 'PX', int(math.max(1, math.ceil(ttl / 1000))))
  tell(q, 'active', 'jobId', id, 'prev', 'waiting')
  place(q, 'active', id)
  moves[n + 1], moves[n + 2] = journal(id, type, q.name, json), id
  ends[n + 1], ends[n + 2] = math.min(over, tonumber(exp)), id
  begun[#begun + 1] = id
  local kind = kind_of(q, type, level)
  local since = waits[kind]
  if not since then
    since = {}
    waits[kind] = since
  end
  since[sch] = (since[sch] or 0) + 1
  v[3], v[10], v[11], v[13] = ats, packed, token, worker
  taken[#taken + 1] = {id, q.name, v}
  room = room - 1
  return true
end
local function write_taken()
  flush_ranked() -- what was noticed before is older than what is written here
  sliced('ZADD', shared .. 'moved', moves)
  sliced('ZADD', shared .. 'over', ends)
  sliced('ZREM', shared .. 's:SCHEDULED', begun)
  for kind, since in pairs(waits) do
    for sch, times in pairs(since) do
      measure(kind.where, kind.type, 'wait', now, now - tonumber(sch), times)
      count(kind, 'SCHEDULED', -times)
      count(kind, 'RUNNING', times)
    end
  end
end

-- Whether the job at hand was taken (true), is to be passed over (false) or does not exist (nil).
local function try(q, id)
  local key = q.base .. id
  local v = call('HMGET', key, unpack(WIDE))
  if not v[1] then return nil end
  if types and not types[v[1]] then
    strangers = strangers + 1
    return false
  end
  if q.free and v[8] and not v[5] and not v[9] and take(q, id, key, v) then return true end
  local j = loaded(q, id, key, v)
  if not j.n or j.state ~= 'SCHEDULED' then
    reconcile(q, id)
    j = load(q, id)
  end
  if doom_of(j) then
    fail_doomed(q, j)
    return true
  end
  if not admits(q, j) then return false end
  start(q, j)
  save(j)
  taken[#taken + 1] = image(j)
  room = room - 1
  return true
end

-- Node takes from the tail of the list; what is passed over keeps its place there.
local function from_list(q)
  local key, passed, looked = q.base .. 'wait', 0, 0
  while room > 0 and looked < SCAN do
    local size = math.min(math.max(room, 16), 256)
    local ids = call('LRANGE', key, -(passed + size), -(passed + 1))
    if #ids == 0 then return end
    looked = looked + #ids
    local cut, scattered, kept = 0, {}, 0
    for i = #ids, 1, -1 do
      if room == 0 then break end
      if try(q, ids[i]) == false then
        kept = kept + 1
      elseif passed + kept == 0 then
        cut = cut + 1
      else
        scattered[#scattered + 1] = ids[i]
      end
    end
    if cut > 0 then call('LTRIM', key, 0, -(cut + 1)) end
    for _, id in ipairs(scattered) do call('LREM', key, -1, id) end
    passed = passed + kept
  end
  return looked >= SCAN
end

-- More jobs of other types than a call looks at must not hide what lies behind them: they go to
-- the back of the line, in their order.
local function rotate_list(q)
  local key = q.base .. 'wait'
  local ids = call('LRANGE', key, -SCAN, -1)
  call('LTRIM', key, 0, -(#ids + 1))
  for i = #ids, 1, -1 do call('LPUSH', key, ids[i]) end
  q.rung = true
end
local function rotate_levels(q)
  local ids = call('ZRANGE', q.base .. 'prioritized', 0, SCAN - 1, 'WITHSCORES')
  for i = 1, #ids, 2 do
    push(q, ids[i], math.floor(tonumber(ids[i + 1]) / 4294967296))
  end
end

local function from_levels(q)
  local key, passed, looked = q.base .. 'prioritized', 0, 0
  while room > 0 and looked < SCAN do
    local ids = call('ZRANGE', key, passed, passed + math.min(math.max(room, 16), 256) - 1)
    if #ids == 0 then
      if passed == 0 then call('DEL', q.base .. 'pc') end
      return
    end
    looked = looked + #ids
    local gone, kept = {}, 0
    for _, id in ipairs(ids) do
      if room == 0 then break end
      if try(q, id) == false then kept = kept + 1 else gone[#gone + 1] = id end
    end
    sliced('ZREM', key, gone)
    passed = passed + kept
  end
  return looked >= SCAN
end

local refused, others = nil, false
for _, name in ipairs(want[1]) do
  if room > 0 then
    local q = queue(name)
    if q.strange then refused = q.strange else others = true end
    if not q.paused and not q.strange then
      q.free = not limits(q)
      local before = #taken
      strangers = 0
      if from_list(q) and strangers >= SCAN then rotate_list(q) end
      strangers = 0
      if from_levels(q) and strangers >= SCAN then rotate_levels(q) end
      if #taken > before and (call('LLEN', q.base .. 'wait') > 0 or
        call('ZCARD', q.base .. 'prioritized') > 0) then q.rung = true end
    end
  end
end
write_taken()
settle()
flush()
if refused and not others then return redis.error_reply('ERR ' .. refused) end
return taken
