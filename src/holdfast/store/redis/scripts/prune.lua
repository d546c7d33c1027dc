-- prune: delete ended jobs older than allowed, expired keys, old measures.
-- edges: none
-- ARGV[7] how many; ARGV[8] first minute kept; ARGV[9..12] span in microseconds or '' for
-- COMPLETED, FAILED, DEAD_LETTER, CANCELLED
-- returns: how many jobs went
-- needs: base queue job links forget flow sync
local limit = tonumber(ARGV[7])
local span = {
  COMPLETED = tonumber(ARGV[9]), FAILED = tonumber(ARGV[10]), DEAD_LETTER = tonumber(ARGV[11]),
  CANCELLED = tonumber(ARGV[12]),
}

-- Jobs that BullMQ clients made are kept as their own options say. Where many of them lie in
-- front, the next call goes on behind those that this one looked at.
local PAGE = limit * 2 + 100
local old = {}
local function look(q, set, longest)
  if not longest then return end
  local field, last = q.name .. ':' .. set, math.floor((now - longest) / 1000)
  local from = tonumber(call('HGET', shared .. 'pruned', field) or 0)
  local page = call('ZRANGE', q.base .. set, from, from + PAGE - 1, 'WITHSCORES')
  local foreign, stay, over = false, 0, #page < 2 * PAGE
  for i = 1, #page, 2 do
    if tonumber(page[i + 1]) > last then
      over = true
      break
    end
    local j = adopt(q, page[i])
    local keep = j and j.ttl and span[j.state]
    local fin = j and tonumber(j.p[FIN]) or 0
    if j and not j.ttl then foreign = true end
    if keep and fin + keep <= now and not needed(j.hid) then
      old[#old + 1] = {fin, j.n, j}
    else
      stay = stay + 1
    end
  end
  if foreign and not over then
    call('HSET', shared .. 'pruned', field, from + stay)
  elseif from > 0 then
    call('HDEL', shared .. 'pruned', field)
  end
end

local shortest
for _, state in ipairs({'FAILED', 'DEAD_LETTER', 'CANCELLED'}) do
  if span[state] and (not shortest or span[state] < shortest) then shortest = span[state] end
end
for _, name in ipairs(call('SMEMBERS', shared .. 'queues')) do
  local q = queue(name)
  look(q, 'completed', span.COMPLETED)
  look(q, 'failed', shortest)
end
table.sort(old, function(a, b)
  if a[1] ~= b[1] then return a[1] < b[1] end
  return a[2] < b[2]
end)
local gone = math.min(limit, #old)
for i = 1, gone do
  local j = old[i][3]
  leave(j.q, j.id, j.state, j.priority)
  erase(j.q, j.id)
  forget(j.hid, j.state)
end

local expired = call('ZRANGEBYSCORE', shared .. 'expiring', '-inf', int(now), 'LIMIT', 0, 1000)
sliced('HDEL', shared .. 'keys', expired)
sliced('ZREM', shared .. 'expiring', expired)
for _, minute in ipairs(call('ZRANGEBYSCORE', shared .. 'minutes', '-inf', '(' .. ARGV[8])) do
  call('DEL', shared .. 'minute:' .. minute)
  call('ZREM', shared .. 'minutes', minute)
end
flush()
local told = tonumber(call('GET', shared .. 'told') or 0)
call('XTRIM', shared .. 'events', 'MINID', int(math.max(0, told - tonumber(ARGV[3]))) .. '-0')
return gone
