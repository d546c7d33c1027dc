-- expire_windows: deletes records of rates of which nothing is used any more, some per call.
-- edges: none
-- ARGV[7] where to go on, '0' at first; ARGV[8] about how many to look at
-- returns: where to go on; '0' at the end
-- needs: base
local page = call('HSCAN', shared .. 'windows', ARGV[7], 'COUNT', ARGV[8])
local ended = {}
for i = 1, #page[2], 2 do
  local ends = tonumber(string.match(page[2][i + 1], ':(%d+)$'))
  if not ends or ends <= now then ended[#ended + 1] = page[2][i] end
end
call_in_slices('HDEL', shared .. 'windows', ended)
return page[1]
