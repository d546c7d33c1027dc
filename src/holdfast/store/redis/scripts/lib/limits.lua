-- limits: which ready jobs may start now.
-- A function may have 200 local variables, so those that only this part needs are in a block.
local rule_of, is_limited, used_up, refusal_of
do
local rules, are_many, running, debts
resets[#resets + 1] = function() rules, running, debts = nil, {}, {} end

-- A rule that another program damaged is none: it must not stop the jobs of the store.
local function read_rule(packed)
  local is_read, rule = pcall(cmsgpack.unpack, packed)
  if not is_read or type(rule) ~= 'table' then return nil end
  for _, name in ipairs({'concurrency', 'rate', 'per', 'burst'}) do
    local term = rule[name]
    if term ~= nil and (type(term) ~= 'number' or not (term >= 0 and term < 1e15)) then return nil end
  end
  if rule.rate and (rule.per or 0) < 1 then return nil end
  if rule.rate then rule.burst = math.max(1, rule.burst or 1 + math.floor(rule.rate / 10)) end
  return rule
end

-- All are read at once, unless they are so many that those of other tenants would take most of a claim.
local MANY = 50
rule_of = function(scope)
  if not rules then
    local size = call('HLEN', shared .. 'limits')
    rules, are_many = {}, size > MANY
    local found = size > 0 and not are_many and call('HGETALL', shared .. 'limits') or {}
    for i = 1, #found, 2 do rules[found[i]] = read_rule(found[i + 1]) end
  end
  if are_many and rules[scope] == nil then
    local packed = call('HGET', shared .. 'limits', scope)
    rules[scope] = packed and read_rule(packed) or false
  end
  return rules[scope] or nil
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

-- What is used of a rate, as in model/pace.py: how far the arrival is ahead of the clock, in parts of a
-- microsecond, of which there are as many as the rate. A start costs a period of them. An arrival far
-- ahead was recorded before the clock was set back; fewer starts than the rate are a window of an
-- earlier version, which ends at the instant.
local function read_debt(scope, rule)
  local started, at = string.match(call('HGET', shared .. 'windows', scope) or '', '^(%d+):(%d+)$')
  if not started then return 0 end
  local rest, rate, per = started - rule.rate, rule.rate, rule.per
  local debt = (at - now) * rate
  if rest < 0 then debt = debt + rest * per elseif rest < rate then debt = debt + rest end
  if debt <= 0 or debt > rule.burst * per + math.min(per, 60e6) * rate then return 0 end
  return debt
end
local function debt_of(scope, rule)
  debts[scope] = debts[scope] or read_debt(scope, rule)
  return debts[scope]
end
local function owe(scope, rule)
  local debt = debt_of(scope, rule) + rule.per
  debts[scope] = debt
  local ahead = math.floor(debt / rule.rate)
  local rest = math.min(math.max(debt - ahead * rule.rate, 0), rule.rate - 1) -- a number may have been rounded
  call('HSET', shared .. 'windows', scope, int(rule.rate + rest) .. ':' .. int(now + ahead))
end
-- The microseconds until the next start, more than 0 if none may start now.
local function wait_of(scope, rule)
  if rule.rate < 1 then return math.huge end
  return math.ceil((debt_of(scope, rule) - (rule.burst - 1) * rule.per) / rule.rate)
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

-- The kind of the first limit that is used up, and when its rate lets the next job start, if it has one.
used_up = function(q, type, limit_key, limits)
  for _, limit in ipairs(limits or limits_of(q, type, limit_key)) do
    local kind, scope, rule = limit[1], limit[2], limit[3]
    if rule.concurrency and running_in(kind, scope, q, type, limit_key) >= rule.concurrency then return kind end
    if rule.rate then
      local wait = wait_of(scope, rule)
      if wait > 0 then return kind, wait < math.huge and now + wait or nil end
    end
  end
  return nil
end

-- Count the start of a job; if a limit is used up, return its kind instead, and when a job may start.
refusal_of = function(q, j)
  local limits = limits_of(q, j.type, j.limit_key)
  local kind, ends = used_up(q, j.type, j.limit_key, limits)
  if kind then return kind, ends end
  if not bullmq_allows(q, j) then return 'queue' end
  for _, limit in ipairs(limits) do
    local scope, rule = limit[2], limit[3]
    running[scope] = running_in(limit[1], scope, q, j.type, j.limit_key) + 1
    if rule.rate then owe(scope, rule) end
  end
  return nil
end
end
