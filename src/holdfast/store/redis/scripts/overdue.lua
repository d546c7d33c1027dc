-- overdue: returns RUNNING jobs whose lease has ended and live jobs whose lifetime is over.
-- edges: RUNNING -> RETRYING -> SCHEDULED for jobs that stalled as BullMQ defines it; follows BullMQ
-- clients, also renewals by BullMQ workers
-- ARGV[7] how many
-- returns: {now, replies}, earliest instant first, then in order of submission
-- needs: base queue job links forget flow sync names stall
local limit = tonumber(ARGV[7])

-- BullMQ's check: a job has stalled that was active at the check before and has no lock now.
local function check_stalled(q)
  local checked = tonumber(call('GET', q.base .. 'stalled-check') or nil)
  -- It expires by the server's clock: one from before that was set back would last for hours.
  if checked and checked > now_ms then call('DEL', q.base .. 'stalled-check') end
  local interval = int((stalls_in(q)))
  if call('SET', q.base .. 'stalled-check', int(now_ms), 'NX', 'PX', interval) == false then return end
  local key = q.base .. 'stalled'
  local suspects = call('SMEMBERS', key)
  call('DEL', key)
  for _, id in ipairs(suspects) do
    local j = call('EXISTS', q.base .. id .. ':lock') == 0 and load_current(q, id)
    if j and j.state == 'RUNNING' and stalls_as_bullmq(j) then stall(j) end
  end
  call_in_slices('SADD', key, call('LRANGE', q.base .. 'active', 0, -1))
end

for _, name in ipairs(served_names()) do
  local q = queue(name)
  if not q.unsupported then guarded('queue ' .. name, check_stalled, q) end
end
flush_indexes()

-- A BullMQ worker renews its lock without an event, so the lock itself is read.
local function renewed(j)
  if j.state ~= 'RUNNING' or j.lease_end == nil or j.expires <= now then return false end
  local key = j.key .. ':lock'
  if call('GET', key) ~= j.token then return false end
  local left = call('PTTL', key)
  if left <= 0 or j.ttl and j.lease_end <= now and ARGV[2] ~= '' then return false end
  j.lease_end = now + left * 1000
  j.now[LEASE_END] = int(j.lease_end)
  call('HSET', j.key, 'hf:now', pack_now(j))
  set_index('over', j.job_id, math.min(j.lease_end, j.expires))
  return true
end

local ids = call('ZRANGEBYSCORE', shared .. 'over', '-inf', int(now), 'WITHSCORES', 'LIMIT', 0, limit)
if #ids >= limit * 2 and limit > 0 then
  local last = ids[#ids]
  local same_instant = call('ZRANGEBYSCORE', shared .. 'over', last, last, 'LIMIT', 0, 10000)
  local seen = {}
  for i = 1, #ids, 2 do seen[ids[i]] = true end
  for _, job_id in ipairs(same_instant) do
    if not seen[job_id] then
      ids[#ids + 1] = job_id
      ids[#ids + 1] = last
    end
  end
end

-- An expired lock of a BullMQ job is for check_stalled, unless a user has cancelled the job.
local function is_for_bullmq(j)
  if j.state ~= 'RUNNING' or j.expires <= now or not stalls_as_bullmq(j) then return false end
  if string.find(call('HGET', j.key, 'hf:rest') or '', '"cancel":', 1, true) then return false end
  set_index('over', j.job_id, j.expires)
  return true
end

local found = {}
for i = 1, #ids, 2 do
  local j = find(ids[i])
  local ok, is_held = guarded(ids[i], function() return j and (renewed(j) or is_for_bullmq(j)) end)
  if j and ok and not TERMINAL[j.state] and not is_held then
    found[#found + 1] = {tonumber(ids[i + 1]), j.number, j}
  elseif not j or not ok then
    set_index('over', ids[i])
  end
end
table.sort(found, function(a, b)
  if a[1] ~= b[1] then return a[1] < b[1] end
  return a[2] < b[2]
end)
local replies = {}
for i = 1, math.min(limit, #found) do replies[i] = reply(found[i][3]) end
flush()
return {int(now), replies}
