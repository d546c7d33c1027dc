-- lock: locks a name unless another holder's lock has not expired.
-- edges: none
-- ARGV[7] name; ARGV[8] holder; ARGV[9] microseconds; ARGV[10] data
-- returns: 1 or 0
-- needs: base
local packed = call('HGET', shared .. 'holds', ARGV[7])
if packed then
  local ends, size, rest = string.match(packed, '^(%d+)|(%d+)|(.*)$')
  if string.sub(rest, 1, size) ~= ARGV[8] and tonumber(ends) > now then return 0 end
end
local ends = int(now + tonumber(ARGV[9]))
call('HSET', shared .. 'holds', ARGV[7], ends .. '|' .. #ARGV[8] .. '|' .. ARGV[8] .. ARGV[10])
return 1
