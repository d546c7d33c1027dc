-- add: writes new jobs, except those whose key is taken or whose dependency is missing.
-- edges: (new) -> PENDING -> SCHEDULED | DELAYED, as decided by the caller
-- ARGV[7] '1' for all or nothing; ARGV[8], ARGV[9] id and token of the fence, or ''
-- ARGV[10] msgpack: a list of jobs and of groups of jobs, see new_jobs in add.py
-- ARGV[11] and on: large payloads, for which numbers stand in ARGV[10]
-- returns: 'STALE', or per job 1 when accepted, else {status, id, missing, a dependency has ended,
-- the job that holds the key was deleted}
-- needs: base queue job links forget flow sync duplicates
local aliases, keys, new_ids

local function exists(job_id)
  if new_ids[job_id] then return true end
  if record_of(job_id) then return true end
  return string.find(job_id, ':', 1, true) ~= nil and find(job_id) ~= nil
end

local function owner_of(key)
  local packed = keys[key] or call('HGET', shared .. 'keys', key)
  if not packed then return nil end
  local digest, expires, owner = string.match(packed, '^([^|]*)|([^|]*)|(.*)$')
  if expires == '' then
    if not new_ids[owner] and not record_of(owner) then return nil end
  elseif tonumber(expires) <= now then
    return nil
  end
  return digest, owner
end

local function dependencies(job)
  local found, seen = {}, {}
  for _, parent in ipairs(job.after) do
    parent = aliases[parent] or parent
    if not seen[parent] then
      seen[parent] = true
      found[#found + 1] = parent
    end
  end
  return found
end

-- The id of the job that holds a deduplication id. Only ours have a UUID.
local UUID = '^%x+%-%x+%-%x+%-%x+%-%x+$'
local function owner_id_of(q, owner)
  local foreign = q.name .. ':' .. owner
  if new_ids[owner] or record_of(owner) or not exists(foreign) and string.find(owner, UUID) then return owner end
  return foreign
end

local function check(job)
  if exists(job.id) then return {'ACCEPTED', job.id} end
  if job.key then
    local digest, owner = owner_of(job.key)
    if owner == job.id then return {'ACCEPTED', job.id} end -- a repeat of a deleted job
    local deleted = owner and not exists(owner) and 1 or 0
    if owner and digest ~= job.digest then return {'CONFLICT', owner, {}, 0, deleted} end
    if owner then
      aliases[job.id] = owner
      return {'DUPLICATE', owner, {}, 0, deleted}
    end
  end
  local owner = job.de and duplicates.owner(queue(job.queue), job)
  if owner == job.id then return {'ACCEPTED', job.id} end -- a repeat of a deleted job
  if owner then
    local owner_id = owner_id_of(queue(job.queue), owner)
    -- A job that depends on itself only asks who holds the id.
    job.is_duplicate = job.after[1] ~= job.id
    aliases[job.id] = owner_id
    return {'DUPLICATE', owner_id, {}, 0, exists(owner_id) and 0 or 1}
  end
  local missing = {}
  for _, parent in ipairs(dependencies(job)) do
    if not exists(parent) then missing[#missing + 1] = parent end
  end
  if #missing > 0 then return {'MISSING', job.id, missing} end
  if job.de then duplicates.claim(job) end
  new_ids[job.id] = true
  if job.key then keys[job.key] = job.digest .. '|' .. job.expires .. '|' .. job.id end
  return {'ACCEPTED', job.id}
end

local function put_in_place(j, job)
  local q, id = j.q, j.id
  emit(q, 'added', 'jobId', id, 'name', j.type)
  if j.state == 'SCHEDULED' then
    if j.priority == 0 then
      buffer(q, 'ready', id)
      q.needs_marker = true
    else
      push(q, id, j.priority)
    end
    emit(q, 'waiting', 'jobId', id)
  elseif j.state == 'DELAYED' then
    postpone(q, id, job.due)
    emit(q, 'delayed', 'jobId', id, 'delay', int(job.due))
  else
    call('ZADD', q.base .. 'waiting-children', now_ms, id)
    emit(q, 'waiting-children', 'jobId', id)
  end
end

-- Link a job to its parents; return whether any of them has ended.
local function add_links(j, job, parents)
  local any_ended, fan_in = false, job.kind == 'FAN_IN'
  call('HSET', shared .. 'kinds', j.job_id, job.kind)
  for _, parent in ipairs(parents) do
    any_ended = link(j.job_id, parent, fan_in) or any_ended
    if fan_in then
      for _, each in ipairs(spawned(parent, {})) do
        any_ended = link(j.job_id, each, true) or any_ended
      end
    end
  end
  show_children(j.job_id)
  if is_verdict_due(j.job_id) then set_index('ripe', j.job_id, j.number) end
  return any_ended
end

local function write(job)
  local q = queue(job.queue)
  register(q)
  q.added = (q.added or 0) + 1
  if job.de then duplicates.take_key(q, job) end
  local j = {
    q = q, id = job.id, job_id = job.id, key = q.base .. job.id, ttl = true, fields = job.fields,
    type = job.type, level = job.level, counted_level = job.level, priority = job.level,
    histories = 0, starts = 0, limit_key = job.limit, number = take_numbers('number', 1),
    now = new_now(),
  }
  for i, value in ipairs(job.now) do j.now[i] = value end
  j.expires = tonumber(j.now[EXPIRES])
  j.now[NUMBER], j.now[HELD], j.now[CREATED] = int(j.number), job.held, job.created
  for _, edge in ipairs(job.edges) do record_edge(j, edge[1], edge[2], edge[3], edge[4], edge[5]) end
  local parents = dependencies(job)
  if #parents > 0 then put(j, 'hf:deps', cjson.encode(parents)) end
  save(j)
  put_in_place(j, job)
  set_index('created', j.job_id, j.number)
  set_index('t:' .. j.type, j.job_id, j.number)
  index_namespace(q.name, j.job_id, j.number)
  for _, name in ipairs(job.index) do set_index(name, j.job_id, j.number) end
  if job.trace then call('HSET', shared .. 'traces', j.job_id, job.trace) end
  if job.key then
    call('HSET', shared .. 'keys', job.key, job.digest .. '|' .. job.expires .. '|' .. job.id)
    if job.expires ~= '' then call('ZADD', shared .. 'expiring', job.expires, job.key) end
  end
  local any_ended = #parents > 0 and add_links(j, job, parents)
  if job.spawner then
    call('ZADD', shared .. 'spawn:' .. job.spawner, j.number, j.job_id)
    for _, waiting in ipairs(call('SMEMBERS', shared .. 'f:' .. job.spawner)) do
      if state_of(waiting) == 'PENDING' then
        link(waiting, j.job_id, true)
        show_child(waiting_job(waiting), j.job_id)
      end
    end
  end
  return any_ended
end

-- Plain jobs that differ by id and payload only: what they share is computed once, and each index
-- receives all of them in one command.
local function write_group(g)
  local ids, size, q = g.ids, #g.ids, queue(g.queue)
  if size == 0 then return end
  register(q)
  q.added = (q.added or 0) + size
  local base, payloads, type, level = q.base, g.payloads, g.type, g.level
  local fields, edges = g.fields, {}
  for i, edge in ipairs(g.edges) do edges[i] = edge[5] end
  fields[#fields + 1], fields[#fields + 2] = 'hf:h1', table.concat(edges, '\n')
  local start, rest = g.now .. '|', '|1|0||0||' .. g.created
  local expires = string.match(g.now, '^' .. ANY5 .. ANY .. ANY .. '([^|]*)')
  local before, after, record = g.options[1], g.options[2], level .. ':' .. g.queue .. ':' .. type
  local numbers, expirations, known, ready = {}, {}, {}, {}
  local pc = level > 0 and call('INCRBY', base .. 'pc', size) - size
  local number = take_numbers('number', size) - size
  for i = 1, size do
    local id, n, at = ids[i], string.format('%.0f', number + i), 2 * i
    call('HSET', base .. id, 'data', payloads[i], 'opts', before .. id .. after,
      'hf:now', start .. n .. rest, unpack(fields))
    emit(q, 'added', 'jobId', id, 'name', type)
    emit(q, 'waiting', 'jobId', id)
    numbers[at - 1], numbers[at] = n, id
    expirations[at - 1], expirations[at] = expires, id
    known[at - 1], known[at] = id, record
    if pc then
      ready[at - 1], ready[at] = int(level * 4294967296 + (pc + i) % 4294967296), id
    else
      ready[i] = id
    end
    new_ids[id], record_cache[id] = nil, record
  end
  q.needs_marker = true
  call_in_slices('ZADD', shared .. 'created', numbers)
  call_in_slices('ZADD', shared .. 't:' .. type, numbers)
  local namespace = namespace_of(g.queue)
  if namespace then call_in_slices('ZADD', shared .. 'n:' .. namespace, numbers) end
  call_in_slices('ZADD', shared .. 's:SCHEDULED', numbers)
  call_in_slices('ZADD', shared .. 'moved', add_events(ids, type, g.queue, edges))
  call_in_slices('ZADD', shared .. 'over', expirations)
  call_in_slices('HSET', shared .. 'jobs', known)
  buffer_all(q, pc and 'prioritized' or 'ready', ready)
  local kind = kind_of(q, type, level)
  count(kind, 'SCHEDULED', size)
  measure(kind.prefix, type, 'submitted', g.edges[1][4], nil, size)
end

local function payload_of(value)
  if type(value) == 'number' then return ARGV[10 + value] end
  return value
end

local function main()
  local atomic = ARGV[7] == '1'
  if ARGV[8] ~= '' then
    local spawner = find(ARGV[8])
    if not spawner or spawner.state ~= 'RUNNING' or not holds(spawner, ARGV[9]) then
      flush()
      return 'STALE'
    end
  end

  local jobs = cmsgpack.unpack(ARGV[10])
  for _, job in ipairs(jobs) do
    local q = queue(job.queue)
    if q.unsupported then
      flush()
      return redis.error_reply('ERR ' .. q.unsupported)
    end
  end
  aliases, keys, new_ids = {}, {}, {}
  local answers, refused = {}, false
  local ids = {}
  for _, job in ipairs(jobs) do
    for _, id in ipairs(job.ids or {job.id}) do ids[#ids + 1] = id end
  end
  cache_records(ids)
  for _, job in ipairs(jobs) do
    if job.ids then
      -- A plain job is always accepted; one whose id exists is not written again.
      local new, payloads = {}, {}
      for n, id in ipairs(job.ids) do
        if not exists(id) then
          new_ids[id] = true
          new[#new + 1], payloads[#new + 1] = id, payload_of(job.payloads[n])
        end
        answers[#answers + 1] = 1
      end
      job.ids, job.payloads = new, payloads
    else
      job.fields[2] = payload_of(job.fields[2])
      local answer = check(job)
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
      if new_ids[job.id] then
        new_ids[job.id] = nil
        if write(job) then answer[4] = 1 end
      elseif job.is_duplicate then
        duplicates.record(queue(job.queue), job)
      end
      answer[3], answer[4] = answer[3] or {}, answer[4] or 0
    end
  end
  for _, q in pairs(open_queues) do
    if q.added then call('INCRBY', q.base .. 'id', q.added) end
  end
  flush()
  return answers
end
