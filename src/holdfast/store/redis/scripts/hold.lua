-- hold: hold a name unless another holder's time is not over.
-- edges: none
-- ARGV[6] name; ARGV[7] holder; ARGV[8] microseconds; ARGV[9] data
-- returns: 1 or 0
-- needs: base
local held = call('HGET', shared .. 'holds', ARGV[6])
if held then
  local ends, size, rest = string.match(held, '^(%d+)|(%d+)|(.*)$')
  if string.sub(rest, 1, size) ~= ARGV[7] and tonumber(ends) > now then return 0 end
end
local ends = int(now + tonumber(ARGV[8]))
call('HSET', shared .. 'holds', ARGV[6], ends .. '|' .. #ARGV[7] .. '|' .. ARGV[7] .. ARGV[9])
return 1
