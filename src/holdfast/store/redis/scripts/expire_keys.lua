-- expire_keys: deletes keys whose window has ended.
-- edges: none
-- ARGV[7] how many
-- returns: how many were deleted
-- needs: base
local expired = call('ZRANGEBYSCORE', shared .. 'expiring', '-inf', int(now), 'LIMIT', 0, ARGV[7])
call_in_slices('HDEL', shared .. 'keys', expired)
call_in_slices('ZREM', shared .. 'expiring', expired)
return #expired
