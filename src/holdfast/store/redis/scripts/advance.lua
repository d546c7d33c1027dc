-- advance: make the next job of a BullMQ scheduler, once, for whoever fetched its current one.
-- edges: (new) -> PENDING -> SCHEDULED | DELAYED, of the job made
-- ARGV[7] queue; ARGV[8] scheduler; ARGV[9] job fetched; ARGV[10] next in milliseconds;
-- ARGV[11] options of the next job
-- returns: its id, or '' when somebody else was first
-- needs: base queue job links forget flow sync
local q = queue(ARGV[7])
local sid, at = ARGV[8], tonumber(ARGV[10])
local current = call('ZSCORE', q.base .. 'repeat', sid)
if not current or 'repeat:' .. sid .. ':' .. int(tonumber(current)) ~= ARGV[9] then
  flush()
  return ''
end
local scheduler = q.base .. 'repeat:' .. sid
local id = 'repeat:' .. sid .. ':' .. int(at)
call('ZADD', q.base .. 'repeat', int(at), sid)
call('HINCRBY', scheduler, 'ic', 1)
call('INCR', q.base .. 'id')
if call('EXISTS', q.base .. id) == 1 then
  tell(q, 'duplicated', 'jobId', id)
else
  local v = call('HMGET', scheduler, 'name', 'data')
  local opts = cjson.decode(ARGV[11])
  local delay, priority = math.max(0, at - now_ms), tonumber(opts.priority) or 0
  call('HSET', q.base .. id, 'name', v[1], 'data', v[2] or '{}', 'opts', ARGV[11], 'timestamp',
    int(now_ms), 'delay', int(delay), 'priority', int(priority), 'rjk', sid)
  tell(q, 'added', 'jobId', id, 'name', v[1])
  if delay > 0 then
    postpone(q, id, at)
    tell(q, 'delayed', 'jobId', id, 'delay', int(at))
  else
    push(q, id, priority)
    tell(q, 'waiting', 'jobId', id)
  end
  q.touched = {id}
end
settle()
flush()
return id
