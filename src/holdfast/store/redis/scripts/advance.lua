-- advance: makes the next job of a BullMQ scheduler, once, after its current job was claimed.
-- edges: (new) -> PENDING -> SCHEDULED | DELAYED, of the job made
-- ARGV[7] queue; ARGV[8] scheduler; ARGV[9] job claimed; ARGV[10] next in milliseconds;
-- ARGV[11] options of the next job
-- returns: its id, or '' when another worker has made it
-- needs: base queue job links forget flow sync
local q = queue(ARGV[7])
local scheduler_id, at = ARGV[8], tonumber(ARGV[10])
local current = call('ZSCORE', q.base .. 'repeat', scheduler_id)
if not current or 'repeat:' .. scheduler_id .. ':' .. int(tonumber(current)) ~= ARGV[9] then
  flush()
  return ''
end
local scheduler = q.base .. 'repeat:' .. scheduler_id
local id = 'repeat:' .. scheduler_id .. ':' .. int(at)
if call('EXISTS', q.base .. id) == 1 then
  emit(q, 'duplicated', 'jobId', id)
else
  call('ZADD', q.base .. 'repeat', int(at), scheduler_id)
  call('HINCRBY', scheduler, 'ic', 1)
  call('INCR', q.base .. 'id')
  local v = call('HMGET', scheduler, 'name', 'data')
  local opts = cjson.decode(ARGV[11])
  local delay, priority = math.max(0, at - now_ms), tonumber(opts.priority) or 0
  call('HSET', q.base .. id, 'name', v[1], 'data', v[2] or '{}', 'opts', ARGV[11], 'timestamp',
    int(now_ms), 'delay', int(delay), 'priority', int(priority), 'rjk', scheduler_id)
  emit(q, 'added', 'jobId', id, 'name', v[1])
  if delay > 0 then
    postpone(q, id, at)
    emit(q, 'delayed', 'jobId', id, 'delay', int(at))
  else
    push(q, id, priority)
    emit(q, 'waiting', 'jobId', id)
  end
  -- BullMQ 5 stores in each job which one follows.
  if q.uses_paused_list then call('HSET', q.base .. ARGV[9], 'nrjid', id) end
  q.moved = {id}
end
reconcile_moved()
flush()
return id
