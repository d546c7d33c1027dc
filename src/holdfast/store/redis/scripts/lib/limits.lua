-- limits: which ready jobs may start now.
-- A function may have 200 local variables, so those that only this part needs are in a block.
local rule_of, is_limited, used_up, refusal_of
do
local rules, running
resets[#resets + 1] = function() rules, running = nil, {} end
rule_of = function(scope)
  if not rules then
    rules = {}
    local found = call('HGETALL', shared .. 'limits')
    for i = 1, #found, 2 do rules[found[i]] = cmsgpack.unpack(found[i + 1]) end
  end
  return rules[scope]
end

-- Whether a limit applies to every job of this queue.
is_limited = function(q)
  return rule_of('queue:' .. q.name) ~= nil or q.concurrency ~= nil or q.max ~= nil
end

local function running_of_type(type)
  list_tallies()
  local sum, from = 0, type .. '\n'
  for _, member in ipairs(call('ZRANGEBYLEX', shared .. 'ran', '[' .. from, '(' .. type .. '\11')) do
    sum = sum + (call('HGET', shared .. 'tally', string.sub(member, #from + 1)) or 0)
  end
  return sum
end
local function running_in(kind, scope, q, type, limit_key)
  if not running[scope] then
    if kind == 'queue' then running[scope] = call('LLEN', q.base .. 'active')
    elseif kind == 'task' then running[scope] = running_of_type(type)
    else running[scope] = tonumber(call('HGET', shared .. 'running', type .. ':' .. limit_key) or 0)
    end
  end
  return running[scope]
end

-- A window that ends later than one period from now was opened before the clock was set back.
local function open_window(scope, rule)
  local packed = call('HGET', shared .. 'windows', scope)
  if not packed then return 0, nil end
  local started, ends = string.match(packed, '^(%d+):(%d+)$')
  local left = tonumber(ends) - now
  if left <= 0 or left > rule.per then return 0, nil end
  return tonumber(started), tonumber(ends)
end

-- The limits that BullMQ clients set for a whole queue.
local function bullmq_allows(q, j)
  local starting = q.buffers and q.buffers.active and #q.buffers.active or 0
  if q.concurrency and call('LLEN', q.base .. 'active') + starting >= q.concurrency then return false end
  if not q.max or deferred_failure_of(j) then return true end
  -- The limiter key expires by the server's clock: under a test's clock only our own window counts.
  if ARGV[2] ~= '' and rule_of('queue:' .. q.name) then return true end
  local key = q.base .. 'limiter'
  local started, left = limiter_of(q)
  if started >= q.max and left > 0 then return false end
  if call('INCR', key) == 1 and q.duration then call('PEXPIRE', key, q.duration) end
  return true
end

-- The limits that apply to jobs of a type, and of a limit key: {kind, scope, rule}.
local function limits_of(q, type, limit_key)
  local found = {}
  local function add(kind, scope, rule)
    if rule then found[#found + 1] = {kind, scope, rule} end
  end
  add('queue', 'queue:' .. q.name, rule_of('queue:' .. q.name))
  add('task', 'task:' .. type, rule_of('task:' .. type))
  if limit_key then add('key', 'key:' .. type .. ':' .. limit_key, rule_of('key:' .. type)) end
  return found
end

-- The kind of the first limit that is used up, and when its window ends, if it has one.
used_up = function(q, type, limit_key, limits)
  for _, limit in ipairs(limits or limits_of(q, type, limit_key)) do
    local kind, scope, rule = limit[1], limit[2], limit[3]
    if rule.concurrency and running_in(kind, scope, q, type, limit_key) >= rule.concurrency then return kind end
    if rule.rate then
      local started, ends = open_window(scope, rule)
      if started >= rule.rate then return kind, ends end
    end
  end
  return nil
end

-- Count the start of a job; if a limit is used up, return its kind instead, and when its window ends.
refusal_of = function(q, j)
  local limits = limits_of(q, j.type, j.limit_key)
  local kind, ends = used_up(q, j.type, j.limit_key, limits)
  if kind then return kind, ends end
  if not bullmq_allows(q, j) then return 'queue' end
  for _, limit in ipairs(limits) do
    local scope, rule = limit[2], limit[3]
    running[scope] = running_in(limit[1], scope, q, j.type, j.limit_key) + 1
    if rule.rate then
      local started, ends = open_window(scope, rule)
      call('HSET', shared .. 'windows', scope, (started + 1) .. ':' .. int(ends or now + rule.per))
    end
  end
  return nil
end
end
