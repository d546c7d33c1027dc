-- adopt_keys: takes keys for deleted jobs, unless they are taken.
-- edges: none
-- ARGV[7] msgpack: a list of {name, what it holds, end in microseconds}
-- returns: nothing
-- needs: base
for _, each in ipairs(cmsgpack.unpack(ARGV[7])) do
  if call('HSETNX', shared .. 'keys', each[1], each[2]) == 1 then
    call('ZADD', shared .. 'expiring', each[3], each[1])
  end
end
return 0
