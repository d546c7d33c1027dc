-- amend: writes what callers may change of jobs whose stored revision is as the caller saw it.
-- edges: none
-- ARGV[7] msgpack: a list of changes, see _params in amend.py
-- returns: per change 1 when written, else {reply or false}
-- needs: base queue job links forget flow sync ready

-- Serve a job by its new priority; BullMQ keeps ready jobs of priority 0 in a list.
local function reprioritize(j, c, fields)
  local q, record = j.q, record_of(j.job_id)
  local counted = record and tonumber((read_record(record))) or j.level
  count(kind_of(q, j.type, counted), j.state, -1)
  count(kind_of(q, j.type, c.level), j.state, 1)
  records[j.job_id] = c.level .. ':' .. q.name .. ':' .. j.type
  fields[#fields + 1], fields[#fields + 2] = 'priority', c.level
  if j.state ~= 'SCHEDULED' or not remove_ready(q, j.id, j.priority) then return end
  if c.level == 0 then insert(q, j) else insert_prioritized(q, j, c.level) end
  q.needs_marker = true
end

-- Let a job wait for another time. One that a BullMQ client has promoted keeps its place.
local function reschedule(j, c, fields)
  local q, due_ms = j.q, math.floor(c.due / 1000)
  fields[#fields + 1], fields[#fields + 2] = 'delay', int(math.max(0, due_ms - now_ms))
  if not call('ZSCORE', q.base .. 'delayed', j.id) then return end
  postpone(q, j.id, due_ms)
  emit(q, 'delayed', 'jobId', j.id, 'delay', int(due_ms))
end

local function index_again(j, c, fields)
  fields[#fields + 1], fields[#fields + 2] = 'hf:job', c.fixed
  for _, name in ipairs(c.drop) do set_index(name, j.job_id) end
  for _, name in ipairs(c.index) do set_index(name, j.job_id, j.number) end
  if c.trace == '' then
    call('HDEL', shared .. 'traces', j.job_id)
  else
    call('HSET', shared .. 'traces', j.job_id, c.trace)
  end
end

local function amend(c)
  local j = find_in(c.queue, c.id)
  if not j then return {false} end
  if j.revision ~= c.rev then return {reply(j)} end
  flush_indexes() -- places are found by what was written before
  j.now[REVISION] = int(c.revision)
  if c.due then j.now[DUE] = int(c.due) end
  local fields = {'hf:now', pack_now(j)}
  if c.level ~= j.level then reprioritize(j, c, fields) end
  if c.due then reschedule(j, c, fields) end
  if c.fixed then index_again(j, c, fields) end
  call('HSET', j.key, unpack(fields))
  return 1
end

local answers = {}
for i, c in ipairs(cmsgpack.unpack(ARGV[7])) do answers[i] = amend(c) end
flush()
return answers
