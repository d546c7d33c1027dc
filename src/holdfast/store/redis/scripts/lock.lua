-- lock: locks a name unless another holder's lock has not expired.
-- edges: none
-- ARGV[7] name; ARGV[8] holder; ARGV[9] microseconds; ARGV[10] data
-- returns: 1 or 0
-- needs: base
list_holds()
local packed, ttl = call('HGET', shared .. 'holds', ARGV[7]), tonumber(ARGV[9])
if packed then
  local ends, size, rest = string.match(packed, '^(%d+)|(%d+)|(.*)$')
  ends = tonumber(ends)
  -- One that ends later than the ttl from now was taken before the clock was set back.
  local holds = ends > now and (ends <= now + ttl or ttl == 0)
  if string.sub(rest, 1, size) ~= ARGV[8] and holds then return 0 end
end
put_hold(ARGV[7], now + ttl, #ARGV[8] .. '|' .. ARGV[8] .. ARGV[10])
-- Expired ones are deleted, faster than calls can add them.
for _, name in ipairs(call('ZRANGEBYSCORE', shared .. 'ends', '-inf', int(now), 'LIMIT', 0, 10)) do
  call('HDEL', shared .. 'holds', name)
  call('ZREM', shared .. 'held', name)
  call('ZREM', shared .. 'ends', name)
end
return 1
