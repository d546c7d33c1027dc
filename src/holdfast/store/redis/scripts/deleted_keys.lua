-- deleted_keys: reads open keys of deleted jobs, in the order of their ends.
-- edges: none
-- ARGV[7] how many keys of any job come before; ARGV[8] how many to look at
-- returns: how many were looked at, then of each found its name and what it holds
-- needs: base
local open = call('ZRANGEBYSCORE', shared .. 'expiring', '(' .. int(now), '+inf', 'LIMIT', ARGV[7],
  ARGV[8])
local found = {#open}
for _, key in ipairs(open) do
  local packed = call('HGET', shared .. 'keys', key)
  local owner = packed and string.match(packed, '^[^|]*|[^|]*|(.*)$')
  if owner and not record_of(owner) then
    found[#found + 1], found[#found + 2] = key, packed
  end
end
return found
