-- duplicates: BullMQ's deduplication of new jobs. A call first decides for all jobs, without a write,
-- and then writes; deciding reads what the call has decided before.
-- A function may have 200 local variables, so this part has one.
local duplicates = {}
do
local deduplicated
resets[#resets + 1] = function() deduplicated = {} end

-- Return the job that holds the id of a job, or nil when that job may have it.
duplicates.owner = function(q, job)
  local de, key = job.de, q.base .. 'de:' .. job.de.id
  local earlier = deduplicated[key]
  local owner = earlier and earlier.id or call('GET', key)
  job.dedup_key, job.dedup_owner = key, owner
  if owner == job.id then return owner end
  if owner then
    local is_delayed = earlier and earlier.is_delayed
    if not earlier then
      is_delayed = call('ZSCORE', q.base .. 'delayed', owner) and true
      -- A key without a ttl ends with its job; this one has survived it.
      job.dedup_stale = call('EXISTS', q.base .. owner) == 0 and call('PTTL', key) == -1
    end
    job.dedup_replaces = de.replace and is_delayed
    if not job.dedup_stale and not job.dedup_replaces then return owner end
  end
  return nil
end

-- Decide that a job is new: later ones of the call are its duplicates.
duplicates.claim = function(job)
  deduplicated[job.dedup_key] = {id = job.id, is_delayed = job.now[STATE] == 'DELAYED'}
end

local function emit_deduplicated(q, id, dropped, dedup_id)
  if q.uses_paused_list then emit(q, 'debounced', 'jobId', id, 'debounceId', dedup_id) end
  emit(q, 'deduplicated', 'jobId', id, 'deduplicationId', dedup_id, 'deduplicatedJobId', dropped)
end

local function hold_key(job, owner)
  local de = job.de
  if de.ttl and not de.keepLastIfActive then
    call('SET', job.dedup_key, owner, 'PX', int(de.ttl))
  else
    call('SET', job.dedup_key, owner)
  end
end

-- Delete the delayed job in whose place a new one comes. Its dependents end like those of a job that
-- was cancelled.
local function delete_replaced(q, job)
  local owner, old = job.dedup_owner, load_current(q, job.dedup_owner)
  if call('ZREM', q.base .. 'delayed', owner) == 0 then return false end
  if old then
    notify_children(old.job_id, 'CANCELLED')
    forget(old.job_id, old.state)
  end
  erase(q, owner)
  emit(q, 'removed', 'jobId', owner, 'prev', 'delayed')
  emit_deduplicated(q, job.id, owner, job.de.id)
  return true
end

-- Give the id to a new job.
duplicates.take_key = function(q, job)
  local de, replaced = job.de, job.dedup_replaces and delete_replaced(q, job)
  if replaced or job.dedup_stale then call('DEL', q.base .. 'dn:' .. de.id) end
  if replaced and de.ttl and not de.extend and not de.keepLastIfActive then
    call('SET', job.dedup_key, job.id, 'KEEPTTL')
  else
    hold_key(job, job.id)
  end
end

-- Keep the newest duplicate of an active job: BullMQ adds it when that job ends.
local function keep_for_later(q, job)
  local fields = {}
  for i = 1, #job.fields, 2 do fields[job.fields[i]] = job.fields[i + 1] end
  local opts = decoded(fields.opts)
  if tonumber(fields.delay) > 0 then opts.delay = tonumber(fields.delay) end
  local key = q.base .. 'dn:' .. job.de.id
  call('DEL', key)
  call('HSET', key, 'name', fields.name, 'data', fields.data, 'opts', cjson.encode(opts), 'jid', job.id)
  call('PERSIST', job.dedup_key)
end

-- Give the delay of a duplicate to the job that holds the id, if that is delayed.
local function reschedule(q, job)
  local owner, due = job.dedup_owner, job.due or now_ms
  if not call('ZSCORE', q.base .. 'delayed', owner) then return end
  call('HSET', q.base .. owner, 'delay', int(math.max(0, due - now_ms)))
  postpone(q, owner, due)
  emit(q, 'delayed', 'jobId', owner, 'delay', int(due))
  reconcile(q, owner)
end

-- Record a duplicate of a job that holds the id.
duplicates.record = function(q, job)
  local de, owner = job.de, job.dedup_owner
  q.added = (q.added or 0) + 1
  if de.keepLastIfActive and is_active(q, owner) then
    keep_for_later(q, job)
  elseif de.replace then
    return
  elseif de.extend then
    hold_key(job, owner)
  end
  emit_deduplicated(q, owner, job.id, de.id)
  if de.reschedule then reschedule(q, job) end
end
end
