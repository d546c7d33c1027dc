-- adopt: writes jobs of another store with their state and history.
-- edges: none
-- ARGV[7] msgpack: a list of jobs, see exported_job in add.py
-- returns: per job 1 when written, 0 when its id exists
-- needs: base queue job links forget flow sync
local ENDED_PLACES = {
  COMPLETED = 'completed', FAILED = 'failed', DEAD_LETTER = 'failed', CANCELLED = 'failed',
}

local function put_in_place(j, job)
  local q, id, state = j.q, j.id, j.state
  emit(q, 'added', 'jobId', id, 'name', j.type)
  if state == 'SCHEDULED' then
    push(q, id, j.priority)
  elseif state == 'DELAYED' or state == 'RETRYING' then
    postpone(q, id, job.due)
  elseif state == 'PENDING' then
    call('ZADD', q.base .. 'waiting-children', now_ms, id)
  elseif state == 'RUNNING' then
    local left = int(math.max(1, (j.lease_end - now) / 1000))
    call('SET', j.key .. ':lock', job.token, 'PX', left)
    call('LPUSH', q.base .. 'active', id)
  else
    buffer(q, ENDED_PLACES[state], int(job.finished), id)
  end
end

-- Open what had failed before a job was retried; see end_on_retry in model/dependencies.py.
local function open_failed_before_retry(job_id)
  local v = call('HMGET', key_of(job_id), 'hf:now', 'hf:rest')
  local kind = call('HGET', shared .. 'kinds', job_id)
  if (decoded(v[2] or nil).generation or 1) == 1 or ENDED_SUFFICES[kind] then return end
  local edges, updated = shared .. 'p:' .. job_id, tonumber(unpack_now(v[1])[UPDATED])
  local links = call('HGETALL', edges)
  for i = 1, #links, 2 do
    local place, state = string.match(links[i + 1], '^(%d+):(.*)$')
    if state ~= '' and state ~= 'COMPLETED' then
      local finished = unpack_now(call('HGET', key_of(links[i]), 'hf:now'))[FINISHED]
      if tonumber(finished) <= updated then call('HSET', edges, links[i], place .. ':') end
    end
  end
end

-- Link a job to the dependencies that exist here, and for FAN_IN to the jobs they spawned.
local function add_links(j, job)
  local fan_in = job.kind == 'FAN_IN'
  call('HSET', shared .. 'kinds', j.job_id, job.kind)
  for _, parent in ipairs(job.after) do
    if record_of(parent) then
      link(j.job_id, parent, fan_in)
      if fan_in then
        for _, each in ipairs(spawned(parent, {})) do link(j.job_id, each, true) end
      end
    end
  end
  if j.state == 'PENDING' then open_failed_before_retry(j.job_id) end
  show_children(j.job_id)
  if j.state == 'PENDING' and is_verdict_due(j.job_id) then set_index('ripe', j.job_id, j.number) end
end

-- Add a job to those its spawner spawned, and link FAN_IN jobs that wait for the spawner to it.
local function add_to_spawner(j, spawner)
  call('ZADD', shared .. 'spawn:' .. spawner, j.number, j.job_id)
  for _, waiting in ipairs(call('SMEMBERS', shared .. 'f:' .. spawner)) do
    if state_of(waiting) == 'PENDING' then
      link(waiting, j.job_id, true)
      open_failed_before_retry(waiting)
      show_child(waiting_job(waiting), j.job_id)
      set_index('ripe', waiting, is_verdict_due(waiting) and number_of(waiting) or nil)
    end
  end
end

local function add_to_indexes(j, job)
  set_index('created', j.job_id, j.number)
  set_index('t:' .. j.type, j.job_id, j.number)
  index_namespace(j.q.name, j.job_id, j.number)
  for _, name in ipairs(job.index) do set_index(name, j.job_id, j.number) end
  if job.trace then call('HSET', shared .. 'traces', j.job_id, job.trace) end
  if job.key then
    call('HSET', shared .. 'keys', job.key, job.digest .. '|' .. job.expires .. '|' .. job.id)
    if job.expires ~= '' then call('ZADD', shared .. 'expiring', job.expires, job.key) end
  end
end

-- A job holds its deduplication id here for as long as there, unless another job has it already.
local function hold_id(j, job)
  local de = job.de
  local key = j.q.base .. 'de:' .. de.id
  if de.ttl and not de.keepLastIfActive then
    local left = math.floor(tonumber(job.created) / 1000) + de.ttl - now_ms
    if left > 0 then call('SET', key, j.id, 'PX', int(left), 'NX') end
  elseif not ENDED_PLACES[j.state] then
    call('SET', key, j.id, 'NX')
  end
end

local function write(job)
  local q = queue(job.queue)
  register(q)
  call('INCR', q.base .. 'id')
  local j = {
    q = q, id = job.id, job_id = job.id, key = q.base .. job.id, ttl = true, fields = job.fields,
    type = job.type, level = job.level, counted_level = job.level, priority = job.level,
    histories = 0, starts = job.starts, limit_key = job.limit, number = take_numbers('number', 1),
    now = new_now(),
  }
  for i, value in ipairs(job.now) do j.now[i] = value end
  j.expires, j.lease_end = tonumber(j.now[EXPIRES]), tonumber(j.now[LEASE_END])
  j.now[NUMBER], j.now[HELD], j.now[CREATED] = int(j.number), job.held, job.created
  for _, edge in ipairs(job.edges) do record_edge(j, edge[1], edge[2], edge[3], edge[4], edge[5]) end
  save(j)
  put_in_place(j, job)
  add_to_indexes(j, job)
  if #job.after > 0 then add_links(j, job) end
  if job.spawner then add_to_spawner(j, job.spawner) end
  if job.de then hold_id(j, job) end
  call_in_slices('RPUSH', j.key .. ':logs', job.lines)
end

local answers = {}
for i, job in ipairs(cmsgpack.unpack(ARGV[7])) do
  answers[i] = 0
  if not record_of(job.id) then
    write(job)
    answers[i] = 1
  end
end
flush()
return answers
