-- get: jobs as they are now.
-- edges: none
-- ARGV[7] msgpack: a list of ids
-- returns: per id an image or false
-- needs: base queue job links forget flow sync
local images = {}
for i, hid in ipairs(cmsgpack.unpack(ARGV[7])) do
  local j = find(hid)
  images[i] = j and image(j) or false
  if not j and record_of(hid) then forget(hid) end
end
flush()
return images
