-- browse: records of one kind in the order of their keys, or against it.
-- edges: none
-- ARGV[7] kind; ARGV[8] beginning of the key; ARGV[9] behind this key or ''; ARGV[10] at most;
-- ARGV[11] '1' for backwards
-- returns: key, 'version|data', key, ...
-- needs: base
local kind, begins, after = ARGV[7], ARGV[8], ARGV[9]
local low = begins == '' and '-' or '[' .. begins
local high = begins == '' and '+' or '(' .. begins .. '\255'
local keys
if ARGV[11] == '1' then
  if after ~= '' then high = '(' .. after end
  keys = call('ZREVRANGEBYLEX', shared .. 'records:' .. kind, high, low, 'LIMIT', 0, ARGV[10])
else
  if after ~= '' and after >= begins then low = '(' .. after end
  keys = call('ZRANGEBYLEX', shared .. 'records:' .. kind, low, high, 'LIMIT', 0, ARGV[10])
end
local found = {}
for _, key in ipairs(keys) do
  if string.sub(key, 1, #begins) == begins then
    found[#found + 1] = key
    found[#found + 1] = call('HGET', shared .. 'record:' .. kind, key)
  end
end
return found
