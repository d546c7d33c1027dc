-- claim: take ready jobs under a new lease.
-- edges: SCHEDULED -> RUNNING; a job that BullMQ has doomed goes on to FAILED or DEAD_LETTER
-- ARGV[7] how many; ARGV[8] worker; ARGV[9] token; ARGV[10] msgpack {queues, types or false}
-- returns: images of the jobs taken, or {id, data} of one that is like the one before but for that;
-- an error when no queue wanted can be shared
-- needs: base queue job links forget flow sync limits
local SCAN = 1000 -- ready jobs looked at in one queue before the call gives up on finding a fit
local room, worker, token, types, taken, strangers

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

-- The common case, a ready job of ours that was never started and has nothing in its way, goes
-- without a table for the job. Those in a row mostly differ by id, payload and number only: what
-- becomes of them is worked out once.
local BRIEF = {
  'name', 'hf:now', 'data', 'priority', 'ats', 'defa', 'hf:ttl', 'hf:limit', 'hf:job', 'hf:rest',
  'hf:deps',
}
local PLAIN = '^(SCHEDULED|' .. ANY5 .. ANY .. ANY .. ANY .. ')(%d+)(|%d+|%d+|[^|]*|[^|]*||%d+)$'
local BEFORE = '^SCHEDULED|(%d+)|(%d+)|([^|]*)|(%d+)|[^|]*|([^|]*)|(%d+)|'
local FEW = 4 -- so many are as easily taken out of an index one by one
local stamp, millis, who, moves, ends, started, spans, group

local function is_like(v, other)
  for i = 4, #BRIEF do
    if v[i] ~= other[i] then return false end
  end
  return v[1] == other[1]
end
local function opened(q, v, before, behind)
  local rev, upd, due, sch, fin, exp = string.match(before or '', BEFORE)
  if not rev or not v[7] or v[5] or v[6] or v[8] or tonumber(upd) > now then return nil end
  local ttl, told, held, stalls, made = tonumber(v[7]), string.match(behind, '^|(%d+)|%d+|([^|]*)|([^|]*)||(%d+)$')
  local stories, over = int(told + 1), now + ttl
  return {
    q = q, v = v, before = before, behind = behind, ids = {}, story = 'hf:h' .. stories,
    over = math.min(over, tonumber(exp)), lock = int(math.max(1, math.ceil(ttl / 1000))), sch = tonumber(sch),
    edge = '["claim","SCHEDULED","RUNNING",' .. stamp .. ',"claimed",1,1,' .. who .. ',null]',
    now = 'RUNNING|' .. int(rev + 1) .. '|' .. stamp .. '|' .. due .. '|' .. sch .. '|' .. stamp .. '|' .. fin ..
      '|' .. exp .. '|' .. int(over) .. '|',
    rest = '|' .. stories .. '|1|' .. held .. '|' .. stalls .. '||' .. made,
  }
end
-- Note what was taken together before anything else is told.
local function close()
  local g = group
  if not g then return end
  group = nil
  local q, size, type = g.q, #g.ids, g.v[1]
  place_all(q, 'active', g.ids)
  append(moves, journal_all(g.ids, type, q.name, {g.edge}))
  for _, id in ipairs(g.ids) do
    ends[#ends + 1] = g.over
    ends[#ends + 1] = id
  end
  if g.in_turn and size > FEW then spans[#spans + 1] = {int(g.first), int(g.last), g.ids} else append(started, g.ids) end
  local kind = kind_of(q, type, level_of(tonumber(g.v[4]) or 0))
  measure(kind.where, kind.type, 'wait', now, now - g.sch, size)
  count(kind, 'SCHEDULED', -size)
  count(kind, 'RUNNING', size)
end
local function take(q, id, key, v)
  local before, num, behind = string.match(v[2] or '', PLAIN)
  local g = group
  if g and g.q == q and g.before == before and g.behind == behind and is_like(v, g.v) then
    taken[#taken + 1] = {id, v[3]}
  else
    g = opened(q, v, before, behind)
    if not g then return false end
    close()
    group = g
    taken[#taken + 1] = {id, q.name, {
      v[1], v[4], '1', false, false, false, false, v[7], false, g.now .. num .. g.rest, token, false, worker,
      v[3], false, v[9], v[10], v[11], false, false,
    }}
  end
  call('HSET', key, 'ats', 1, 'processedOn', millis, 'pb', worker, 'hf:tok', token, g.story, g.edge,
    'hf:now', g.now .. num .. g.rest)
  call('SET', key .. ':lock', token, 'PX', g.lock)
  tell(q, 'active', 'jobId', id, 'prev', 'waiting')
  local n = tonumber(num)
  g.in_turn = #g.ids == 0 or g.in_turn and n == g.last + 1
  g.first, g.last = g.first or n, n
  g.ids[#g.ids + 1] = id
  room = room - 1
  return true
end
-- Jobs that were submitted together have numbers in turn: one range is theirs alone.
local function unlist(key, span)
  if call('ZCOUNT', key, span[1], span[2]) == #span[3] then
    call('ZREMRANGEBYSCORE', key, span[1], span[2])
  else
    append(started, span[3])
  end
end
local function write_taken()
  close()
  flush_ranked() -- what was noticed before is older than what is written here
  sliced('ZADD', shared .. 'moved', moves)
  sliced('ZADD', shared .. 'over', ends)
  for _, span in ipairs(spans) do unlist(shared .. 's:SCHEDULED', span) end
  sliced('ZREM', shared .. 's:SCHEDULED', started)
end

-- Whether the job at hand was taken (true), is to be passed over (false) or does not exist (nil).
local function try(q, id)
  local key = q.base .. id
  local v = call('HMGET', key, unpack(BRIEF))
  if not v[1] then return nil end
  if types and not types[v[1]] then
    strangers = strangers + 1
    return false
  end
  if q.free and take(q, id, key, v) then return true end
  close()
  local j = load(q, id)
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

-- Node takes from the tail of the list; what is passed over keeps its place there. Returns whether
-- jobs are left, and whether the call gave up on looking at more of them.
local function from_list(q)
  local key, passed, looked = q.base .. 'wait', 0, 0
  while room > 0 and looked < SCAN do
    local size = math.min(math.max(room, 16), 256)
    local ids = call('LRANGE', key, -(passed + size), -(passed + 1))
    if #ids == 0 then return passed > 0, false end
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
    if #ids < size and room > 0 then return passed > 0, false end
  end
  return call('LLEN', key) > 0, looked >= SCAN
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
    local size = math.min(math.max(room, 16), 256)
    local ids = call('ZRANGE', key, passed, passed + size - 1)
    if #ids == 0 then
      if passed == 0 then call('DEL', q.base .. 'pc') end
      return passed > 0, false
    end
    looked = looked + #ids
    local gone, kept = {}, 0
    for _, id in ipairs(ids) do
      if room == 0 then break end
      if try(q, id) == false then kept = kept + 1 else gone[#gone + 1] = id end
    end
    if passed + kept == 0 then
      call('ZREMRANGEBYRANK', key, 0, #gone - 1)
    else
      sliced('ZREM', key, gone)
    end
    passed = passed + kept
    if #ids < size and room > 0 then return passed > 0, false end
  end
  return call('ZCARD', key) > 0, looked >= SCAN
end

local function main()
  local want = cmsgpack.unpack(ARGV[10])
  room, worker, token, types = tonumber(ARGV[7]), ARGV[8], ARGV[9], nil
  if want[2] then
    types = {}
    for _, type in ipairs(want[2]) do types[type] = true end
  end
  taken, strangers = {}, 0
  stamp, millis, who = int(now), int(now_ms), cjson.encode(worker)
  moves, ends, started, spans, group = {}, {}, {}, {}, nil
  local refused, others = nil, false
  for _, name in ipairs(want[1]) do
    if room > 0 then
      local q = queue(name)
      if q.strange then refused = q.strange else others = true end
      if not q.paused and not q.strange then
        q.free = not limits(q)
        local before = #taken
        strangers = 0
        local left, gave_up = from_list(q)
        if gave_up and strangers >= SCAN then rotate_list(q) end
        strangers = 0
        local more, gave_up_too = from_levels(q)
        if gave_up_too and strangers >= SCAN then rotate_levels(q) end
        if #taken > before and (left or more) then q.rung = true end
      end
    end
  end
  write_taken()
  settle()
  flush()
  if refused and not others then return redis.error_reply('ERR ' .. refused) end
  return taken
end
