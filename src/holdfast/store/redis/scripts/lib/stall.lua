-- stall: what BullMQ does with active jobs whose lock has expired. It holds for jobs that BullMQ
-- clients made or hold; the lease of our own jobs is the reaper's.
local STALLED_TOO_OFTEN = 'job stalled more than allowable limit'

local function stalls_as_bullmq(j)
  return not j.ttl or j.token and call('HGET', j.key, 'hf:node') == j.token
end

-- The milliseconds between two checks of a queue, and how often a job may stall in it.
local INTERVAL, MOST = 30000, 1 -- the defaults of BullMQ
local function stalls_in(q)
  local interval, most = string.match(call('HGET', shared .. 'stalls', q.name) or '', '^(%d+):(%d+)$')
  return within(interval, MAX_MILLIS) or INTERVAL, within(most, MAX_COUNT) or MOST
end

-- A scheduler's job never stalls too often, because the next one depends on it.
local function is_of_live_scheduler(j)
  local scheduler = call('HGET', j.key, 'rjk')
  if not scheduler then return false end
  local key = j.q.base .. 'repeat'
  return call('EXISTS', key .. ':' .. scheduler) == 1 or call('ZSCORE', key, scheduler) and true
end

-- Move a job from active back to the front. One that stalled too often fails at its next claim.
local function stall(j)
  local q, _, most = j.q, stalls_in(j.q)
  if call('LREM', q.base .. 'active', 1, j.id) == 0 then return end
  call('DEL', j.key .. ':lock')
  if call('HINCRBY', j.key, 'stc', 1) > most and not is_of_live_scheduler(j) then
    call('HSET', j.key, 'defa', STALLED_TOO_OFTEN)
  end
  call('RPUSH', ready_list(q), j.id)
  q.needs_marker = true
  emit(q, 'waiting', 'jobId', j.id, 'prev', 'active')
  emit(q, 'stalled', 'jobId', j.id)
  reconcile(q, j.id)
end
