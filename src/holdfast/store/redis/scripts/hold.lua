-- hold: hold a name unless another holder's time is not over.
-- edges: none
-- ARGV[6] name; ARGV[7] holder; ARGV[8] microseconds; ARGV[9] data
-- returns: 1 or 0
-- needs: base
local held = call('HGET', shared .. 'holds', ARGV[6])
if held then
  local by = cmsgpack.unpack(held)
  if by[1] ~= ARGV[7] and by[2] > now then return 0 end
end
call('HSET', shared .. 'holds', ARGV[6], cmsgpack.pack({ARGV[7], now + tonumber(ARGV[8]), ARGV[9]}))
return 1
