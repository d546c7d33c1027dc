-- parked: ready jobs that may not start now, because a limit is used up or the worker has no handler
-- for their type. They keep their places, where Node takes them. Beside these, parked:<queue> has
-- their order, and a lane has those that wait for the same: one type, or one type and limit key.
-- lanes:<queue> has the lanes: one of a limit key with the time to look at it again, one of a type
-- with 0, or with -1 as long as no worker with a handler for the type has looked at it.
-- A claim parks a job once, and then looks at the first of each lane only. All parked jobs are in
-- front of those that no claim has looked at, unless another client or a priority puts one between.
-- A function may have 200 local variables, so this part has one.
local parked = {LOOK_AGAIN = 5e6} -- microseconds after which a lane is looked at without a notice
do
local LIST_END = 4294967296 -- the order of jobs of the list is below, that of prioritized ones above
local FIRST = LIST_END / 2
local function marks_of(q) return shared .. 'parked:' .. q.name end
local function lanes_of(q) return shared .. 'lanes:' .. q.name end
local function lane_key(q, lane) return shared .. 'lane:' .. q.name .. ':' .. lane end
parked.LIST_END = LIST_END
parked.lane_of = function(type, limit_key) return limit_key and type .. '\n' .. limit_key or type end

-- The two places of ready jobs: how many are parked there, and how many in front of and with the last.
local function list_region(q)
  local size = call('ZCOUNT', marks_of(q), '-inf', '(' .. int(LIST_END))
  if size == 0 then return 0, 0 end
  local last = call('ZREVRANGEBYSCORE', marks_of(q), '(' .. int(LIST_END), '-inf', 'LIMIT', 0, 1)[1]
  if call('LINDEX', q.base .. 'wait', -size) == last then return size, size end
  local at = call('LPOS', q.base .. 'wait', last, 'RANK', -1)
  return size, at and call('LLEN', q.base .. 'wait') - at
end
local function prioritized_region(q)
  local size = call('ZCOUNT', marks_of(q), int(LIST_END), '+inf')
  if size == 0 then return 0, 0 end
  local rank = call('ZRANK', q.base .. 'prioritized', call('ZREVRANGE', marks_of(q), 0, 0)[1])
  return size, rank and rank + 1
end

-- Forget marks of jobs that are not where they were: Node can drain a queue without an event.
local function drop_stale(q)
  local places, stale = {}, {}
  for from = 0, call('LLEN', q.base .. 'wait') - 1, 1000 do
    for _, id in ipairs(call('LRANGE', q.base .. 'wait', from, from + 999)) do places[id] = 0 end
  end
  local marks = call('ZRANGE', marks_of(q), 0, -1, 'WITHSCORES')
  for i = 1, #marks, 2 do
    local id, order = marks[i], tonumber(marks[i + 1])
    local score = order >= LIST_END and tonumber(call('ZSCORE', q.base .. 'prioritized', id) or nil)
    if order < LIST_END and not places[id] or order >= LIST_END and score ~= order then stale[#stale + 1] = id end
  end
  for _, id in ipairs(stale) do unpark(q.name, id) end
end

-- Jobs among the parked ones that no claim has looked at, with the order that their places give them.
local function place_between(q, before)
  local from = before and '(' .. string.format('%.17g', before) or '-inf'
  local after = tonumber(call('ZRANGEBYSCORE', marks_of(q), from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2])
  if not before then return after - 1 end
  return after and (before + after) / 2 or before + 1
end
local function list_between(q, extra)
  local found, before, offset = {}, nil, 0
  while #found < extra do
    local ids = call('LRANGE', q.base .. 'wait', -(offset + 256), -(offset + 1))
    if #ids == 0 then break end
    local orders = call('ZMSCORE', marks_of(q), unpack(ids))
    for i = #ids, 1, -1 do
      if orders[i] then
        before = tonumber(orders[i])
      elseif #found < extra then
        before = place_between(q, before)
        found[#found + 1] = {ids[i], before}
      end
    end
    offset = offset + #ids
  end
  return found
end
local function prioritized_between(q, extra)
  local found, offset = {}, 0
  while #found < extra do
    local ids = call('ZRANGE', q.base .. 'prioritized', offset, offset + 255)
    if #ids == 0 then break end
    for i, order in ipairs(call('ZMSCORE', marks_of(q), unpack(ids))) do
      if not order and #found < extra then found[#found + 1] = {ids[i], parked.order_of(q, ids[i])} end
    end
    offset = offset + #ids
  end
  return found
end

-- The order of a prioritized job.
parked.order_of = function(q, id)
  return math.max(LIST_END, tonumber(call('ZSCORE', q.base .. 'prioritized', id)))
end
-- The order of the next job of the list that is parked.
parked.next_order = function(q)
  local last = call('ZREVRANGEBYSCORE', marks_of(q), '(' .. int(LIST_END), '-inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
  return last and math.floor(tonumber(last)) + 1 or FIRST
end
parked.listed = function(q) return call('ZCOUNT', marks_of(q), '-inf', '(' .. int(LIST_END)) end
parked.prioritized = function(q) return call('ZCOUNT', marks_of(q), int(LIST_END), '+inf') end
-- Put a job into a lane; look is when to look at the lane again. The jobs of a call are written together.
parked.add = function(q, id, order, lane, look)
  local text, new = string.format('%.17g', order), q.newly_parked
  if not new then
    new = {marks = {}, lanes = {}, looks = {}}
    q.newly_parked = new
  end
  local members = new.lanes[lane] or {}
  append(new.marks, {text, id})
  append(members, {text, id})
  new.lanes[lane], new.looks[lane] = members, look
end
parked.write = function(q)
  local new = q.newly_parked
  if not new then return end
  call_in_slices('ZADD', marks_of(q), new.marks)
  call('SADD', shared .. 'parking', q.name)
  for lane, members in pairs(new.lanes) do
    call_in_slices('ZADD', lane_key(q, lane), members)
    call('ZADD', lanes_of(q), int(new.looks[lane]), lane)
  end
  q.newly_parked, q.is_parking = nil, true
end
parked.set_look = function(q, lane, look) call('ZADD', lanes_of(q), 'XX', int(look), lane) end
parked.leave_lane = function(q, lane, id) call('ZREM', lane_key(q, lane), id) end
-- Whether a parked job is still in its place.
parked.is_ready = function(q, id, order)
  if order >= LIST_END then return call('ZSCORE', q.base .. 'prioritized', id) end
  local rank = call('ZRANK', marks_of(q), id)
  if rank and call('LINDEX', q.base .. 'wait', -(rank + 1)) == id then return true end
  return call('LPOS', q.base .. 'wait', id, 'RANK', -1)
end

-- The first jobs of a lane, without those that are not parked any more.
local FEW = 16
local function first_of(q, lane)
  while true do
    local found, items = call('ZRANGE', lane_key(q, lane), 0, FEW - 1, 'WITHSCORES'), {}
    if #found == 0 then
      call('ZREM', lanes_of(q), lane)
      return items
    end
    for i = 1, #found, 2 do
      if call('ZSCORE', marks_of(q), found[i]) == found[i + 1] then
        items[#items + 1] = {found[i], tonumber(found[i + 1])}
      else
        parked.leave_lane(q, lane, found[i])
      end
    end
    if #items > 0 then return items end
  end
end
parked.refill = function(q, source)
  source.items, source.at = source.lane and first_of(q, source.lane) or {}, 1
end

-- Where jobs of a queue may start from: lanes that no limit closes, and jobs between the parked ones.
local function open_lanes(q, types, sources)
  for _, lane in ipairs(call('ZRANGEBYSCORE', lanes_of(q), '-inf', int(now))) do
    local type, limit_key = string.match(lane, '^(.-)\n(.*)$')
    type = type or lane
    if not types or types[type] then
      local kind, ends = used_up(q, type, limit_key)
      if kind == 'key' then
        parked.set_look(q, lane, ends or now + parked.LOOK_AGAIN)
      elseif kind then
        if not limit_key then parked.set_look(q, lane, 0) end
      else
        sources[#sources + 1] = {lane = lane, type = type, items = first_of(q, lane), at = 1}
      end
    end
  end
end
local function region_between(q, region, between, sources)
  local size, reach = region(q)
  if not reach or reach < size then
    drop_stale(q)
    size, reach = region(q)
  end
  if reach and reach > size then
    sources[#sources + 1] = {items = between(q, reach - size), at = 1}
  end
end
parked.sources = function(q, types)
  local sources = {}
  q.is_parking = call('EXISTS', marks_of(q)) == 1
  if not q.is_parking then return sources end
  region_between(q, list_region, list_between, sources)
  region_between(q, prioritized_region, prioritized_between, sources)
  open_lanes(q, types, sources)
  return sources
end
-- The source whose next job is the first of all below an order.
parked.first_source = function(q, sources, below)
  local best, first
  for _, source in ipairs(sources) do
    local item = source.items[source.at]
    if not item and source.at > 1 and not source.skipped then
      parked.refill(q, source)
      item = source.items[1]
    end
    if item and item[2] < below and (not first or item[2] < first) then best, first = source, item[2] end
  end
  return best
end
end
