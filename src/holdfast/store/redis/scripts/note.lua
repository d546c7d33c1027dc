-- note: stores progress, checkpoints, log lines and payloads of RUNNING jobs under their token.
-- edges: none
-- ARGV[7] log lines kept; ARGV[8] msgpack: a list of {id, token, progress, wire, point, line, data}
-- returns: per note 1 or 0
-- needs: base queue job links forget flow sync
-- BullMQ's keepLogs decides for its own jobs; 0 keeps all, as there.
local function lines_kept(j)
  return not j.ttl and within(options_of(j).kl, MAX_COUNT) or tonumber(ARGV[7])
end

local answers = {}
for i, n in ipairs(cmsgpack.unpack(ARGV[8])) do
  local j = find(n.id)
  answers[i] = 0
  if j and j.state == 'RUNNING' and holds(j, n.token) then
    answers[i] = 1
    if n.progress then
      call('HSET', j.key, 'progress', n.wire, 'hf:pg', n.progress)
      add_event(j.job_id, j.type, j.q.name, n.progress)
      emit(j.q, 'progress', 'jobId', j.id, 'data', n.wire)
    end
    if n.point then call('HSET', j.key, 'hf:cp', n.point) end
    if n.data then call('HSET', j.key, 'data', n.data) end
    if n.line then
      call('RPUSH', j.key .. ':logs', n.line)
      call('LTRIM', j.key .. ':logs', -lines_kept(j), -1)
    end
  end
end
flush()
return answers
