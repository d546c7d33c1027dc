-- configure: changes settings of a queue: paused and ageing, and closes it for a time.
-- edges: none
-- ARGV[7] queue; ARGV[8] '1', '0' or '' for paused; ARGV[9] microseconds, '0' for none, or '';
-- ARGV[10] for how many milliseconds no worker claims from it, or '0'
-- returns: nothing
-- needs: base queue job links forget flow sync
local q = queue(ARGV[7])
register(q)
call('HSET', shared .. 'settings', q.name, '1')
if ARGV[9] == '0' then call('HDEL', shared .. 'ageing', q.name)
elseif ARGV[9] ~= '' then call('HSET', shared .. 'ageing', q.name, ARGV[9]) end
if ARGV[10] ~= '0' then call('SET', q.base .. 'limiter', int(CLOSED_BY_NODE), 'PX', ARGV[10]) end

-- Lists are merged and never renamed, because a client of the other version may have put jobs into
-- either.
local function merge(from, into)
  local ids = call('LRANGE', q.base .. from, 0, -1)
  call_in_slices('RPUSH', q.base .. into, ids)
  call('DEL', q.base .. from)
end
if ARGV[8] == '1' and not q.paused then
  call('HSET', q.base .. 'meta', 'paused', '1')
  call('DEL', q.base .. 'marker')
  if q.uses_paused_list then merge('wait', 'paused') end
  q.paused = true
  emit(q, 'paused')
elseif ARGV[8] == '0' and q.paused then
  call('HDEL', q.base .. 'meta', 'paused')
  q.paused = false
  merge('paused', 'wait')
  if call('LLEN', q.base .. 'wait') > 0 or call('ZCARD', q.base .. 'prioritized') > 0 then
    q.needs_marker = true
  else
    q.needs_due_marker = true
  end
  emit(q, 'resumed')
end
flush()
return 1
