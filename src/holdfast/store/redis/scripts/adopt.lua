-- adopt: write jobs that lived elsewhere before, as they are.
-- edges: none of its own; the history that each brings
-- ARGV[7] msgpack: a list of jobs, see dossier in calls.py
-- returns: per job 1 when written, 0 when its id was there
-- needs: base queue job links forget flow sync
local PLACED = {COMPLETED = 'completed', FAILED = 'failed', DEAD_LETTER = 'failed', CANCELLED = 'failed'}

local function enter(j, job)
  local q, id, state = j.q, j.id, j.state
  tell(q, 'added', 'jobId', id, 'name', j.type)
  if state == 'SCHEDULED' then
    push(q, id, j.priority)
  elseif state == 'DELAYED' or state == 'RETRYING' then
    postpone(q, id, job.due)
  elseif state == 'PENDING' then
    call('ZADD', q.base .. 'waiting-children', now_ms, id)
  elseif state == 'RUNNING' then
    local left = int(math.max(1, (j.unt - now) / 1000))
    call('SET', j.key .. ':lock', job.token, 'PX', left)
    call('LPUSH', q.base .. 'active', id)
  else
    place(q, PLACED[state], int(job.finished), id)
  end
end

-- Its dependencies that are there, and for FAN_IN what those spawned.
local function tie(j, job)
  local fan_in = job.kind == 'FAN_IN'
  call('HSET', shared .. 'kinds', j.hid, job.kind)
  for _, parent in ipairs(job.after) do
    if record_of(parent) then
      link(j.hid, parent, fan_in)
      if fan_in then
        for _, each in ipairs(spawned(parent, {})) do link(j.hid, each, true) end
      end
    end
  end
  if j.state == 'PENDING' and ripe(j.hid) then rank('ripe', j.hid, j.n) end
end

local function descend(j, spawner)
  call('ZADD', shared .. 'spawn:' .. spawner, j.n, j.hid)
  for _, waiting in ipairs(call('SMEMBERS', shared .. 'f:' .. spawner)) do
    if state_of(waiting) == 'PENDING' then
      link(waiting, j.hid, true)
      rank('ripe', waiting, ripe(waiting) and number_of(waiting) or nil)
    end
  end
end

local function index(j, job)
  rank('created', j.hid, j.n)
  rank('t:' .. j.type, j.hid, j.n)
  for _, name in ipairs(job.index) do rank(name, j.hid, j.n) end
  if job.trace then call('HSET', shared .. 'traces', j.hid, job.trace) end
  if job.key then
    call('HSET', shared .. 'keys', job.key, job.digest .. '|' .. job.expires .. '|' .. job.id)
    if job.expires ~= '' then call('ZADD', shared .. 'expiring', job.expires, job.key) end
  end
end

local function write(job)
  local q = queue(job.queue)
  touch(q)
  call('INCR', q.base .. 'id')
  local j = {
    q = q, id = job.id, hid = job.id, key = q.base .. job.id, ttl = true, out = job.fields,
    type = job.type, level = job.level, from_level = job.level, priority = job.level, hn = 0,
    ats = job.starts, limit = job.limit, n = draw('number', 1), p = blank(),
  }
  for i, value in ipairs(job.now) do j.p[i] = value end
  j.exp, j.unt = tonumber(j.p[EXP]), tonumber(j.p[UNT])
  j.p[NUM], j.p[HELD], j.p[CRT] = int(j.n), job.held, job.created
  for _, edge in ipairs(job.edges) do go(j, edge[1], edge[2], edge[3], edge[4], edge[5]) end
  save(j)
  enter(j, job)
  index(j, job)
  if #job.after > 0 then tie(j, job) end
  if job.spawner then descend(j, job.spawner) end
  sliced('RPUSH', j.key .. ':logs', job.lines)
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
