-- ready: puts a job among the ready ones by when it became ready, not at their end.
local LEVEL = 4294967296 -- the part of a score that a priority makes

-- A score between two others has a fraction.
local function exact(score) return string.format('%.17g', score) end

-- The newest transition of a ready job made it ready, so the number of that event orders them.
local function ready_number(q, id)
  local moved = shared .. 'moved'
  return tonumber(call('ZSCORE', moved, id) or call('ZSCORE', moved, q.name .. ':' .. id) or 0)
end

-- Insert into the list of level 0 after all jobs that became ready earlier.
local function insert(q, j)
  local key, number = ready_list(q), ready_number(q, j.id)
  for from = 1, call('LLEN', key), 100 do
    local ids = call('LRANGE', key, -(from + 99), -from)
    for i = #ids, 1, -1 do
      if ready_number(q, ids[i]) > number then
        call('LINSERT', key, 'AFTER', ids[i], j.id)
        return
      end
    end
  end
  call('LPUSH', key, j.id)
end

-- The same for a level above 0. The first place is searched by halves: a level may have many jobs.
local function insert_prioritized(q, j, priority)
  local key, low, number = q.base .. 'prioritized', priority * LEVEL, ready_number(q, j.id)
  local first = call('ZCOUNT', key, '-inf', '(' .. int(low))
  local last = first + call('ZCOUNT', key, int(low), '(' .. int(low + LEVEL))
  local from, to = first, last
  while from < to do
    local middle = math.floor((from + to) / 2)
    local id = call('ZRANGE', key, int(middle), int(middle))[1]
    if ready_number(q, id) > number then to = middle else from = middle + 1 end
  end
  if from == last then return push(q, j.id, priority) end
  local function score_at(place)
    return tonumber(call('ZRANGE', key, int(place), int(place), 'WITHSCORES')[2])
  end
  local before = from > first and score_at(from - 1) or low
  call('ZADD', key, exact((before + score_at(from)) / 2), j.id)
end
