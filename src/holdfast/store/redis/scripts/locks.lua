-- locks: returns the named locks whose name has a prefix.
-- edges: none
-- ARGV[7] prefix
-- returns: names and what they hold, as HGETALL returns them
-- needs: base
list_holds()
local names = call('ZRANGEBYLEX', shared .. 'held', '[' .. ARGV[7], '(' .. ARGV[7] .. '\255')
local found = {}
for i, name in ipairs(names) do
  found[2 * i - 1] = name
  found[2 * i] = call('HGET', shared .. 'holds', name) or ''
end
return found
