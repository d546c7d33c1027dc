-- links: which jobs wait for which. p:<child> is a hash parent -> 'place:END' (END empty while the
-- parent is live), c:<parent> the set of its children, f:<parent> those of kind FAN_IN, spawn:<id>
-- the jobs it spawned. The index 'ripe' holds the jobs on which a verdict is due.
-- BullMQ calls what a job waits for its children, and the job that waits their parent.
local function key_of(job_id)
  local _, name = read_record(record_of(job_id))
  if string.sub(job_id, 1, #name + 1) == name .. ':' then return prefix .. ':' .. job_id end
  return prefix .. ':' .. name .. ':' .. job_id
end

local function is_verdict_due(child)
  local kind = call('HGET', shared .. 'kinds', child)
  local open, ended, unsuccessful = 0, 0, 0
  for _, edge in ipairs(call('HVALS', shared .. 'p:' .. child)) do
    local state = string.match(edge, ':(.*)$')
    if state == '' then open = open + 1 else
      ended = ended + 1
      if state ~= 'COMPLETED' then unsuccessful = unsuccessful + 1 end
    end
  end
  if kind == 'AFTER_ANY' then return ended > 0 end
  if open == 0 and record_of(child) and call('HGET', key_of(child), 'hf:waits') then
    return unsuccessful > 0 and kind ~= 'AFTER_ALL' or call('SCARD', key_of(child) .. ':dependencies') == 0
  end
  return open == 0 or unsuccessful > 0 and kind ~= 'AFTER_ALL'
end

local function state_of(job_id)
  local known = record_of(job_id) and call('HGET', key_of(job_id), 'hf:now')
  return known and string.match(known, '^[^|]*') or nil
end

local function link(child, parent, fan_in)
  local state = state_of(parent)
  local edges = shared .. 'p:' .. child
  local ended = state and TERMINAL[state] and state or ''
  call('HSETNX', edges, parent, call('HLEN', edges) .. ':' .. ended)
  call('SADD', shared .. 'c:' .. parent, child)
  if fan_in then call('SADD', shared .. 'f:' .. parent, child) end
  call('HSET', key_of(parent), 'hf:kids', '1')
  return ended ~= ''
end

-- Every open dependency is among the pending children of its dependent, so that Node cannot release
-- the dependent early. A child has one parent in BullMQ: the first dependent whose kind BullMQ's
-- options express. Where the child is ours and ends under Node, BullMQ releases that parent; all
-- others are released by our verdict.
local ENDED_SUFFICES = {AFTER_ANY = true, AFTER_ALL = true}
local function give_parent(wait, child)
  if wait.held or wait.kind == 'AFTER_ANY' and call('HLEN', wait.edges) > 1 then return end
  local v = call('HMGET', child, 'hf:ttl', 'parentKey')
  if not v[1] or v[2] and call('EXISTS', v[2]) == 1 then return end
  call('HSET', child, 'parentKey', wait.key, 'parent', cjson.encode({
    id = wait.id, queueKey = string.sub(wait.key, 1, -#wait.id - 2),
    [ENDED_SUFFICES[wait.kind] and 'idof' or 'fpof'] = true,
  }))
end
-- Show the end of a child as BullMQ does. The deferred failure keeps Node from running the parent.
local function show_end(wait, child, state, value)
  if state == 'COMPLETED' then
    call('HSET', wait.key .. ':processed', child, value or call('HGET', child, 'returnvalue') or 'null')
  elseif ENDED_SUFFICES[wait.kind] then
    call('HSET', wait.key .. ':failed', child, value or call('HGET', child, 'failedReason') or state)
  elseif wait.state == 'PENDING' then
    call('ZADD', wait.key .. ':unsuccessful', now_ms, child)
    call('HSET', wait.key, 'defa', 'child ' .. child .. ' failed')
  end
end
local function waiting_job(job_id)
  local key = key_of(job_id)
  local packed = unpack_now(call('HGET', key, 'hf:now'))
  local _, name = read_record(record_of(job_id))
  return {
    id = string.sub(key, #prefix + #name + 3), key = key, edges = shared .. 'p:' .. job_id, state = packed[STATE],
    held = packed[HELD] == '1', kind = call('HGET', shared .. 'kinds', job_id),
  }
end
local function show_child(wait, dependency)
  local ended = string.match(call('HGET', wait.edges, dependency), ':(.*)$')
  if ended ~= '' then
    show_end(wait, key_of(dependency), ended)
  elseif wait.state == 'PENDING' then
    call('SADD', wait.key .. ':dependencies', key_of(dependency))
    give_parent(wait, key_of(dependency))
  end
end
-- Show all dependencies of a job that has been linked to them.
local function show_children(job_id)
  local wait = waiting_job(job_id)
  for _, dependency in ipairs(call('HKEYS', wait.edges)) do
    if record_of(dependency) then show_child(wait, dependency) end
  end
end
-- A job that our verdict releases runs whatever became of its dependencies, also while some are open.
local function release_from_children(j)
  for _, dependency in ipairs(call('HKEYS', shared .. 'p:' .. j.job_id)) do
    if record_of(dependency) then
      call('SREM', j.key .. ':dependencies', key_of(dependency))
      call('ZREM', j.key .. ':unsuccessful', key_of(dependency))
    end
  end
  call('HDEL', j.key, 'defa')
end

local function number_of(job_id)
  return tonumber(unpack_now(call('HGET', key_of(job_id), 'hf:now'))[NUMBER])
end

-- Record the end of a job with each child that still waits; return whether any does. Where a BullMQ
-- client removed a live job, BullMQ's rule holds: the job's parent does not wait for it.
local function notify_children(job_id, state, value, was_removed)
  local found = false
  for _, child in ipairs(call('SMEMBERS', shared .. 'c:' .. job_id)) do
    if state_of(child) == 'PENDING' then
      found = true
      local wait = waiting_job(child)
      local was_open = call('SREM', wait.key .. ':dependencies', key_of(job_id)) == 1
      if was_open then show_end(wait, key_of(job_id), state, value) end
      local ended = was_removed and not was_open and 'COMPLETED' or state
      local place = string.match(call('HGET', wait.edges, job_id) or '', '^(%d+):')
      if place then call('HSET', wait.edges, job_id, place .. ':' .. ended) end
      set_index('ripe', child, is_verdict_due(child) and number_of(child) or nil)
    end
  end
  return found
end

-- All jobs that a job spawned, and those that they spawned, in order of submission.
local function spawned(job_id, found)
  for _, each in ipairs(call('ZRANGE', shared .. 'spawn:' .. job_id, 0, -1)) do
    found[#found + 1] = each
    spawned(each, found)
  end
  return found
end

-- The end of a dependency that counts for a job that is retried, '' for none; see end_on_retry in
-- model/dependencies.py.
local function end_on_retry(kind, state)
  if not state or state == 'COMPLETED' then return 'COMPLETED' end
  return ENDED_SUFFICES[kind] and TERMINAL[state] and state or ''
end

-- Open the dependencies of a retried job again; return whether a verdict on it is due.
local function wait_again(j)
  local edges, kind = shared .. 'p:' .. j.job_id, call('HGET', shared .. 'kinds', j.job_id)
  if kind == 'FAN_IN' then
    for _, parent in ipairs(cjson.decode(call('HGET', j.key, 'hf:deps') or '[]')) do
      for _, each in ipairs(spawned(parent, {})) do link(j.job_id, each, true) end
    end
  end
  local links = call('HGETALL', edges)
  for i = 1, #links, 2 do
    local place = string.match(links[i + 1], '^(%d+):')
    call('HSET', edges, links[i], place .. ':' .. end_on_retry(kind, state_of(links[i])))
    local child = record_of(links[i]) and key_of(links[i])
    if child then
      call('HDEL', j.key .. ':processed', child)
      call('HDEL', j.key .. ':failed', child)
      call('ZREM', j.key .. ':unsuccessful', child)
    end
  end
  show_children(j.job_id)
  local due = is_verdict_due(j.job_id)
  set_index('ripe', j.job_id, due and j.number or nil)
  return due
end

-- Let a job that ran wait for what it spawned, and for no other job of ours; return whether a
-- verdict on it is due. Children that BullMQ clients gave it stay among its dependencies.
local function wait_for_children(j, kind)
  local edges, links = shared .. 'p:' .. j.job_id, call('HGETALL', shared .. 'p:' .. j.job_id)
  call('HSET', shared .. 'kinds', j.job_id, kind)
  call('HSET', j.key, 'hf:waits', '1')
  for i = 1, #links, 2 do
    call('HSET', edges, links[i], string.match(links[i + 1], '^(%d+):') .. ':COMPLETED')
    if record_of(links[i]) then call('SREM', j.key .. ':dependencies', key_of(links[i])) end
  end
  local wait = waiting_job(j.job_id)
  for _, child in ipairs(call('ZRANGE', shared .. 'spawn:' .. j.job_id, 0, -1)) do
    local state = state_of(child)
    if state then
      link(j.job_id, child)
      local place = string.match(call('HGET', edges, child), '^(%d+):')
      call('HSET', edges, child, place .. ':' .. (TERMINAL[state] and state or ''))
      call('HDEL', j.key .. ':failed', key_of(child))
      show_child(wait, child)
    end
  end
  local due = is_verdict_due(j.job_id)
  set_index('ripe', j.job_id, due and j.number or nil)
  return due
end

local function has_live_children(job_id)
  for _, child in ipairs(call('SMEMBERS', shared .. 'c:' .. job_id)) do
    local state = state_of(child)
    if state and not TERMINAL[state] then return true end
  end
  return false
end

local function unlink(job_id, spawner)
  for _, parent in ipairs(call('HKEYS', shared .. 'p:' .. job_id)) do
    call('SREM', shared .. 'c:' .. parent, job_id)
    call('SREM', shared .. 'f:' .. parent, job_id)
  end
  call('DEL', shared .. 'p:' .. job_id, shared .. 'c:' .. job_id, shared .. 'f:' .. job_id,
    shared .. 'spawn:' .. job_id)
  call('HDEL', shared .. 'kinds', job_id)
  if spawner then call('ZREM', shared .. 'spawn:' .. spawner, job_id) end
end
