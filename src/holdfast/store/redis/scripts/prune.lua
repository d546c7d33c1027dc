-- prune: deletes ended jobs older than allowed, and old measures.
-- edges: none
-- ARGV[7] how many; ARGV[8] first minute kept; ARGV[9..12] span in microseconds or '' for
-- COMPLETED, FAILED, DEAD_LETTER, CANCELLED
-- returns: how many jobs were deleted
-- needs: base queue job links forget flow sync names
local limit = tonumber(ARGV[7])
local span = {
  COMPLETED = tonumber(ARGV[9]), FAILED = tonumber(ARGV[10]), DEAD_LETTER = tonumber(ARGV[11]),
  CANCELLED = tonumber(ARGV[12]),
}

-- Jobs that BullMQ clients made, and those with removal options, are kept as these require. Where many of them come
-- first, the next call continues after those that this one looked at.
local PAGE = limit * 2 + 100
local old = {}
local function find_old(q, set, shortest_span)
  if not shortest_span then return end
  local field, last = q.name .. ':' .. set, math.floor((now - shortest_span) / 1000)
  local from = tonumber(call('HGET', shared .. 'pruned', field) or 0)
  local page = call('ZRANGE', q.base .. set, from, from + PAGE - 1, 'WITHSCORES')
  local foreign, staying, at_end = false, 0, #page < 2 * PAGE
  for i = 1, #page, 2 do
    if tonumber(page[i + 1]) > last then
      at_end = true
      break
    end
    local j = load_current(q, page[i])
    local own = j and j.ttl and removal_option(j, set == 'completed') == nil
    local keep = own and span[j.state]
    local finished = j and tonumber(j.now[FINISHED]) or 0
    if j and not own then foreign = true end
    if keep and finished + keep <= now and not has_live_children(j.job_id) then
      old[#old + 1] = {finished, j.number, j}
    else
      staying = staying + 1
    end
  end
  if foreign and not at_end then
    call('HSET', shared .. 'pruned', field, from + staying)
  elseif from > 0 then
    call('HDEL', shared .. 'pruned', field)
  end
end

local shortest
for _, state in ipairs({'FAILED', 'DEAD_LETTER', 'CANCELLED'}) do
  if span[state] and (not shortest or span[state] < shortest) then shortest = span[state] end
end
for _, name in ipairs(follow_some('*')) do
  local q = queue(name)
  guarded('queue ' .. name, find_old, q, 'completed', span.COMPLETED)
  guarded('queue ' .. name, find_old, q, 'failed', shortest)
end
table.sort(old, function(a, b)
  if a[1] ~= b[1] then return a[1] < b[1] end
  return a[2] < b[2]
end)
local count = math.min(limit, #old)
for i = 1, count do
  local j = old[i][3]
  remove_from_place(j.q, j.id, j.state, j.priority)
  erase_child(j)
  forget(j.job_id, j.state)
end

for _, minute in ipairs(call('ZRANGEBYSCORE', shared .. 'minutes', '-inf', '(' .. ARGV[8])) do
  call('DEL', shared .. 'minute:' .. minute)
  call('ZREM', shared .. 'minutes', minute)
  local namespace = string.match(minute, '@.*')
  if namespace then call('ZREM', shared .. 'minutes' .. namespace, minute) end
end
reconcile_moved()
flush()
local newest = within(call('GET', shared .. 'told'), MAX_EXACT) or 0
call('XTRIM', shared .. 'events', 'MINID', int(math.max(0, newest - tonumber(ARGV[3]))) .. '-0')
return count
