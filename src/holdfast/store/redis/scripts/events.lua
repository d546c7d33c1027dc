-- events: returns events after a number, as far back as they are kept.
-- edges: none of its own; follows BullMQ clients
-- ARGV[7] number, 0 if it is greater than that of the newest event; ARGV[8] how many
-- returns: {number of the newest, number of the oldest kept or '', entries}; an entry's id is
-- the number of the last event in it
-- needs: base queue job links forget flow sync names
follow_some('*')
flush()
local newest = within(call('GET', shared .. 'told'), MAX_EXACT) or 0
local first = call('XRANGE', shared .. 'events', '-', '+', 'COUNT', 1)[1]
local start = tonumber(ARGV[7])
if start > newest then start = 0 end
start = math.max(start, newest - tonumber(ARGV[3]))
local rows = {}
if ARGV[8] ~= '0' then
  rows = call('XRANGE', shared .. 'events', '(' .. int(start) .. '-0', '+', 'COUNT', ARGV[8])
end
local oldest = ''
if first then oldest = int(tonumber(string.match(first[1], '^%d+')) - (within(first[2][2], MAX_COUNT) or 1) + 1) end
return {int(newest), oldest, rows}
