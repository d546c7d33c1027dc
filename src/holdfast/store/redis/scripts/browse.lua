-- browse: returns records of one kind in the order of their keys, or in reverse.
-- edges: none
-- ARGV[7] kind; ARGV[8] prefix of the key; ARGV[9] key to start after, or ''; ARGV[10] limit;
-- ARGV[11] '1' for reverse order
-- returns: key, 'version|data', key, ...
-- needs: base
local kind, start, after = ARGV[7], ARGV[8], ARGV[9]
local order, hash = shared .. 'records:' .. kind, shared .. 'record:' .. kind
-- What another program took out of the order is listed again: an API key must not be overlooked.
if call('ZCARD', order) < call('HLEN', hash) then
  for _, key in ipairs(call('HKEYS', hash)) do call('ZADD', order, 0, key) end
end
local low = start == '' and '-' or '[' .. start
local high = start == '' and '+' or '(' .. start .. '\255'
local keys
if ARGV[11] == '1' then
  if after ~= '' then high = '(' .. after end
  keys = call('ZREVRANGEBYLEX', order, high, low, 'LIMIT', 0, ARGV[10])
else
  if after ~= '' and after >= start then low = '(' .. after end
  keys = call('ZRANGEBYLEX', order, low, high, 'LIMIT', 0, ARGV[10])
end
local found = {}
for _, key in ipairs(keys) do
  if string.sub(key, 1, #start) == start then
    found[#found + 1], found[#found + 2] = key, call('HGET', hash, key) or '' -- damaged, not gone
  end
end
return found
