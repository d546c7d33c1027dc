-- limit: sets or removes a limit, and wakes workers for jobs that wait for one. The limit of a whole queue is also stored as BullMQ's global
-- limit, so that it applies to Node's workers too.
-- edges: none
-- ARGV[7] scope; ARGV[8] msgpack {concurrency, rate, per in microseconds, burst}, or '' to remove it
-- returns: nothing
-- needs: base
local scope, given = ARGV[7], ARGV[8]
local existed = call('HEXISTS', shared .. 'limits', scope) == 1
local rule = {}
if given == '' then
  call('HDEL', shared .. 'limits', scope)
else
  rule = cmsgpack.unpack(given)
  call('HSET', shared .. 'limits', scope, given)
end
local name = string.match(scope, '^queue:(.+)$')
if name and (existed or given ~= '') then
  local meta = prefix .. ':' .. name .. ':meta'
  local function mirror(field, value)
    if value then call('HSET', meta, field, int(value)) else call('HDEL', meta, field) end
  end
  mirror('concurrency', rule.concurrency)
  mirror('max', rule.rate)
  mirror('duration', rule.rate and math.max(1, math.ceil(rule.per / 1000)))
end
for _, parked in ipairs(call('SMEMBERS', shared .. 'parking')) do
  local lanes = shared .. 'lanes:' .. parked
  for _, lane in ipairs(call('ZRANGEBYSCORE', lanes, 1, '+inf')) do call('ZADD', lanes, 0, lane) end
  local base = prefix .. ':' .. parked .. ':'
  if call('HEXISTS', base .. 'meta', 'paused') == 0 then call('ZADD', base .. 'marker', 0, '0') end
end
return 1
