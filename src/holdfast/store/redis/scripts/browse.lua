-- browse: returns records of one kind in the order of their keys, or in reverse.
-- edges: none
-- ARGV[7] kind; ARGV[8] prefix of the key; ARGV[9] key to start after, or ''; ARGV[10] limit;
-- ARGV[11] '1' for reverse order
-- returns: key, 'version|data', key, ...
-- needs: base
local kind, start, after = ARGV[7], ARGV[8], ARGV[9]
local low = start == '' and '-' or '[' .. start
local high = start == '' and '+' or '(' .. start .. '\255'
local keys
if ARGV[11] == '1' then
  if after ~= '' then high = '(' .. after end
  keys = call('ZREVRANGEBYLEX', shared .. 'records:' .. kind, high, low, 'LIMIT', 0, ARGV[10])
else
  if after ~= '' and after >= start then low = '(' .. after end
  keys = call('ZRANGEBYLEX', shared .. 'records:' .. kind, low, high, 'LIMIT', 0, ARGV[10])
end
local found = {}
for _, key in ipairs(keys) do
  if string.sub(key, 1, #start) == start then
    local packed = call('HGET', shared .. 'record:' .. kind, key)
    if packed then found[#found + 1], found[#found + 2] = key, packed end
  end
end
return found
