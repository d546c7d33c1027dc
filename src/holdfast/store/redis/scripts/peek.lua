-- peek: returns what is stored beside a job: its history, hf:rest, its log, its parents.
-- edges: none
-- ARGV[7] 'history', 'rest', 'logs' or 'parents'; ARGV[8] msgpack: a list of ids
-- returns: per id a list of strings
-- needs: base queue job links forget flow sync
local what = ARGV[7]
local function details(j)
  if what == 'rest' then return {call('HGET', j.key, 'hf:rest')} end
  if what == 'logs' then return call('LRANGE', j.key .. ':logs', 0, -1) end
  local found = {}
  for first = 1, j.histories, 100 do
    local names = {}
    for i = first, math.min(j.histories, first + 99) do names[#names + 1] = 'hf:h' .. i end
    for _, edge in ipairs(call('HMGET', j.key, unpack(names))) do found[#found + 1] = edge end
  end
  return found
end

local answers = {}
for i, job_id in ipairs(cmsgpack.unpack(ARGV[8])) do
  if what == 'parents' then
    answers[i] = call('HGETALL', shared .. 'p:' .. job_id)
  else
    local j = find(job_id)
    answers[i] = j and details(j) or {}
  end
end
flush()
return answers
