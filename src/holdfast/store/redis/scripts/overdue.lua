-- overdue: RUNNING jobs whose lease has ended and live jobs whose lifetime is over.
-- edges: none; notices renewals by BullMQ workers
-- ARGV[7] how many
-- returns: images, earliest instant first, then in order of submission
-- needs: base queue job links forget flow sync
local limit = tonumber(ARGV[7])
for _, name in ipairs(call('SMEMBERS', shared .. 'queues')) do queue(name) end
flush_ranked()

-- A BullMQ worker renews its lock without telling anyone: ask the lock.
local function renewed(j)
  if j.state ~= 'RUNNING' or j.unt == nil or j.exp <= now then return false end
  local key = j.key .. ':lock'
  if call('GET', key) ~= j.tok then return false end
  local left = call('PTTL', key)
  if left <= 0 or j.ttl and j.unt <= now and ARGV[2] ~= '' then return false end
  j.unt = now + left * 1000
  j.p[UNT] = int(j.unt)
  call('HSET', j.key, 'hf:now', pack(j))
  rank('over', j.hid, math.min(j.unt, j.exp))
  return true
end

local ids = call('ZRANGEBYSCORE', shared .. 'over', '-inf', int(now), 'WITHSCORES', 'LIMIT', 0, limit)
if #ids >= limit * 2 and limit > 0 then
  local last = ids[#ids]
  local ties = call('ZRANGEBYSCORE', shared .. 'over', last, last, 'LIMIT', 0, 10000)
  local met = {}
  for i = 1, #ids, 2 do met[ids[i]] = true end
  for _, hid in ipairs(ties) do
    if not met[hid] then
      ids[#ids + 1] = hid
      ids[#ids + 1] = last
    end
  end
end
local found = {}
for i = 1, #ids, 2 do
  local j = find(ids[i])
  if j and not TERMINAL[j.state] and not renewed(j) then
    found[#found + 1] = {tonumber(ids[i + 1]), j.n, j}
  elseif not j then
    rank('over', ids[i])
  end
end
table.sort(found, function(a, b)
  if a[1] ~= b[1] then return a[1] < b[1] end
  return a[2] < b[2]
end)
local images = {}
for i = 1, math.min(limit, #found) do images[i] = image(found[i][3]) end
flush()
return images
