-- links: who waits for whom. p:<child> is a hash parent -> 'place:END' (END empty while open),
-- c:<parent> the set of its children, f:<parent> those that wait FAN_IN, spawn:<id> what it spawned.
local function ripe(child)
  local kind = call('HGET', shared .. 'kinds', child)
  local open, ended, bad = 0, 0, 0
  for _, edge in ipairs(call('HVALS', shared .. 'p:' .. child)) do
    local state = string.match(edge, ':(.*)$')
    if state == '' then open = open + 1 else
      ended = ended + 1
      if state ~= 'COMPLETED' then bad = bad + 1 end
    end
  end
  if kind == 'AFTER_ANY' then return ended > 0 end
  return open == 0 or bad > 0
end

local function key_of(hid)
  local _, name = read_record(record_of(hid))
  if string.sub(hid, 1, #name + 1) == name .. ':' then return prefix .. ':' .. hid end
  return prefix .. ':' .. name .. ':' .. hid
end

local function state_of(hid)
  local known = record_of(hid) and call('HGET', key_of(hid), 'hf:now')
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

local function number_of(hid)
  return tonumber(unpacked(call('HGET', key_of(hid), 'hf:now'))[NUM])
end

-- A job ended: everything that still waits for it learns how. Returns whether anything does.
local function spread(hid, state)
  local any = false
  for _, child in ipairs(call('SMEMBERS', shared .. 'c:' .. hid)) do
    if state_of(child) == 'PENDING' then
      any = true
      local edges = shared .. 'p:' .. child
      local place = string.match(call('HGET', edges, hid) or '', '^(%d+):')
      if place then call('HSET', edges, hid, place .. ':' .. state) end
      rank('ripe', child, ripe(child) and number_of(child) or nil)
    end
  end
  return any
end

-- Everything a job spawned, and what that spawned, in order of submission.
local function spawned(hid, found)
  for _, each in ipairs(call('ZRANGE', shared .. 'spawn:' .. hid, 0, -1)) do
    found[#found + 1] = each
    spawned(each, found)
  end
  return found
end

local function needed(hid)
  for _, child in ipairs(call('SMEMBERS', shared .. 'c:' .. hid)) do
    local state = state_of(child)
    if state and not TERMINAL[state] then return true end
  end
  return false
end

local function unlink(hid, spawner)
  for _, parent in ipairs(call('HKEYS', shared .. 'p:' .. hid)) do
    call('SREM', shared .. 'c:' .. parent, hid)
    call('SREM', shared .. 'f:' .. parent, hid)
  end
  call('DEL', shared .. 'p:' .. hid, shared .. 'c:' .. hid, shared .. 'f:' .. hid,
    shared .. 'spawn:' .. hid)
  call('HDEL', shared .. 'kinds', hid)
  if spawner then call('ZREM', shared .. 'spawn:' .. spawner, hid) end
end
