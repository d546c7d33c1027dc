-- add: write new jobs, or nothing where a key is taken or a dependency is missing.
-- edges: (new) -> PENDING -> SCHEDULED | DELAYED, as decided by the caller
-- ARGV[7] '1' for all or nothing; ARGV[8], ARGV[9] id and token of the fence, or ''
-- ARGV[10] msgpack: a list of jobs and of groups of jobs, see new_jobs in calls.py
-- returns: 'STALE', or per job 1 when simply accepted, else {status, id, missing, ripe}
-- needs: base queue job links forget flow sync
local aliases, keys, fresh

local function exists(hid)
  if fresh[hid] then return true end
  if record_of(hid) then return true end
  return string.find(hid, ':', 1, true) ~= nil and find(hid) ~= nil
end

local function holder_of(key)
  local held = keys[key] or call('HGET', shared .. 'keys', key)
  if not held then return nil end
  local digest, expires, owner = string.match(held, '^([^|]*)|([^|]*)|(.*)$')
  if not fresh[owner] and not record_of(owner) then return nil end
  if expires ~= '' and tonumber(expires) <= now then return nil end
  return digest, owner
end

local function dependencies(job)
  local found, met = {}, {}
  for _, parent in ipairs(job.after) do
    parent = aliases[parent] or parent
    if not met[parent] then
      met[parent] = true
      found[#found + 1] = parent
    end
  end
  return found
end

local function judge(job)
  if exists(job.id) then return {'ACCEPTED', job.id} end
  if job.key then
    local digest, owner = holder_of(job.key)
    if owner and digest ~= job.digest then return {'CONFLICT', owner} end
    if owner then
      aliases[job.id] = owner
      return {'DUPLICATE', owner}
    end
  end
  local missing = {}
  for _, parent in ipairs(dependencies(job)) do
    if not exists(parent) then missing[#missing + 1] = parent end
  end
  if #missing > 0 then return {'MISSING', job.id, missing} end
  fresh[job.id] = true
  if job.key then keys[job.key] = job.digest .. '|' .. job.expires .. '|' .. job.id end
  return {'ACCEPTED', job.id}
end

local function enter(j, job)
  local q, id = j.q, j.id
  tell(q, 'added', 'jobId', id, 'name', j.type)
  if j.state == 'SCHEDULED' then
    if j.priority == 0 then
      place(q, 'line', id)
      q.rung = true
    else
      push(q, id, j.priority)
    end
    tell(q, 'waiting', 'jobId', id)
  elseif j.state == 'DELAYED' then
    postpone(q, id, job.due)
    tell(q, 'delayed', 'jobId', id, 'delay', int(job.due))
  else
    call('ZADD', q.base .. 'waiting-children', now_ms, id)
    tell(q, 'waiting-children', 'jobId', id)
  end
end

local function tie(j, job, parents)
  local any, fan_in = false, job.kind == 'FAN_IN'
  call('HSET', shared .. 'kinds', j.hid, job.kind)
  for _, parent in ipairs(parents) do
    any = link(j.hid, parent, fan_in) or any
    if fan_in then
      for _, each in ipairs(spawned(parent, {})) do any = link(j.hid, each, true) or any end
    end
  end
  if ripe(j.hid) then rank('ripe', j.hid, j.n) end
  return any
end

local function write(job)
  local q = queue(job.queue)
  touch(q)
  q.numbered = (q.numbered or 0) + 1
  local j = {
    q = q, id = job.id, hid = job.id, key = q.base .. job.id, ttl = true, out = job.fields,
    type = job.type, level = job.level, from_level = job.level, priority = job.level, hn = 0,
    ats = 0, limit = job.limit, n = draw('number', 1), p = blank(),
  }
  for i, value in ipairs(job.now) do j.p[i] = value end
  j.exp = tonumber(j.p[EXP])
  j.p[NUM], j.p[HELD], j.p[CRT] = int(j.n), job.held, job.created
  for _, edge in ipairs(job.edges) do go(j, edge[1], edge[2], edge[3], edge[4], edge[5]) end
  local parents = dependencies(job)
  if #parents > 0 then put(j, 'hf:deps', cjson.encode(parents)) end
  save(j)
  enter(j, job)
  rank('created', j.hid, j.n)
  rank('t:' .. j.type, j.hid, j.n)
  for _, name in ipairs(job.index) do rank(name, j.hid, j.n) end
  if job.trace then call('HSET', shared .. 'traces', j.hid, job.trace) end
  if job.key then
    call('HSET', shared .. 'keys', job.key, job.digest .. '|' .. job.expires .. '|' .. job.id)
    if job.expires ~= '' then call('ZADD', shared .. 'expiring', job.expires, job.key) end
  end
  local any = #parents > 0 and tie(j, job, parents)
  if job.spawner then
    call('ZADD', shared .. 'spawn:' .. job.spawner, j.n, j.hid)
    for _, waiting in ipairs(call('SMEMBERS', shared .. 'f:' .. job.spawner)) do
      if state_of(waiting) == 'PENDING' then link(waiting, j.hid, true) end
    end
  end
  return any
end

-- Plain jobs that differ by id and payload only: what they share is worked out once, and each
-- index gets all of them in one command.
local function write_group(g)
  local ids, size, q = g.ids, #g.ids, queue(g.queue)
  if size == 0 then return end
  touch(q)
  q.numbered = (q.numbered or 0) + size
  local base, payloads, type, level = q.base, g.payloads, g.type, g.level
  local fields, edges = g.fields, {}
  for i, edge in ipairs(g.edges) do edges[i] = edge[5] end
  fields[#fields + 1], fields[#fields + 2] = 'hf:h1', table.concat(edges, '\n')
  local start, rest = g.now .. '|', '|1|0||0||' .. g.created
  local expires = string.match(g.now, '^' .. ANY5 .. ANY .. ANY .. '([^|]*)')
  local before, behind, record = g.options[1], g.options[2], level .. ':' .. g.queue .. ':' .. type
  local numbers, ends, known, ready = {}, {}, {}, {}
  local pc = level > 0 and call('INCRBY', base .. 'pc', size) - size
  local number = draw('number', size) - size
  for i = 1, size do
    local id, n, at = ids[i], string.format('%.0f', number + i), 2 * i
    call('HSET', base .. id, 'data', payloads[i], 'opts', before .. id .. behind,
      'hf:now', start .. n .. rest, unpack(fields))
    tell(q, 'added', 'jobId', id, 'name', type)
    tell(q, 'waiting', 'jobId', id)
    numbers[at - 1], numbers[at] = n, id
    ends[at - 1], ends[at] = expires, id
    known[at - 1], known[at] = id, record
    if pc then
      ready[at - 1], ready[at] = int(level * 4294967296 + (pc + i) % 4294967296), id
    else
      ready[i] = id
    end
    fresh[id], looked_up[id] = nil, record
  end
  q.rung = true
  sliced('ZADD', shared .. 'created', numbers)
  sliced('ZADD', shared .. 't:' .. type, numbers)
  sliced('ZADD', shared .. 's:SCHEDULED', numbers)
  sliced('ZADD', shared .. 'moved', journal_all(ids, type, g.queue, edges))
  sliced('ZADD', shared .. 'over', ends)
  sliced('HSET', shared .. 'jobs', known)
  place_all(q, pc and 'prioritized' or 'line', ready)
  local kind = kind_of(q, type, level)
  count(kind, 'SCHEDULED', size)
  measure(kind.where, type, 'submitted', g.edges[1][4], nil, size)
end

local function main()
  local atomic = ARGV[7] == '1'
  if ARGV[8] ~= '' then
    local by = find(ARGV[8])
    if not by or by.state ~= 'RUNNING' or by.tok ~= ARGV[9] then
      flush()
      return 'STALE'
    end
  end

  local jobs = cmsgpack.unpack(ARGV[10])
  for _, job in ipairs(jobs) do
    local q = queue(job.queue)
    if q.strange then
      flush()
      return redis.error_reply('ERR ' .. q.strange)
    end
  end
  aliases, keys, fresh = {}, {}, {}
  local answers, refused = {}, false
  local ids = {}
  for _, job in ipairs(jobs) do
    for _, id in ipairs(job.ids or {job.id}) do ids[#ids + 1] = id end
  end
  look_up(ids)
  for _, job in ipairs(jobs) do
    if job.ids then
      -- Nothing but an id that is there already can be said against a plain job.
      local new, payloads = {}, {}
      for n, id in ipairs(job.ids) do
        if not exists(id) then
          fresh[id] = true
          new[#new + 1], payloads[#new + 1] = id, job.payloads[n]
        end
        answers[#answers + 1] = 1
      end
      job.ids, job.payloads = new, payloads
    else
      local answer = judge(job)
      answers[#answers + 1], job.answer = answer, answer
      if answer[1] == 'CONFLICT' or answer[1] == 'MISSING' then refused = true end
    end
  end
  if atomic and refused then
    for i, answer in ipairs(answers) do
      if answer == 1 then
        answers[i] = {'ABORTED', ids[i]}
      elseif answer[1] == 'ACCEPTED' then
        answer[1] = 'ABORTED'
      end
    end
    flush()
    return answers
  end
  for _, job in ipairs(jobs) do
    local answer = job.answer
    if job.ids then
      write_group(job)
    else
      if fresh[job.id] then
        fresh[job.id] = nil
        if write(job) then answer[4] = 1 end
      end
      answer[3], answer[4] = answer[3] or {}, answer[4] or 0
    end
  end
  for _, q in pairs(open_queues) do
    if q.numbered then call('INCRBY', q.base .. 'id', q.numbered) end
  end
  flush()
  return answers
end
