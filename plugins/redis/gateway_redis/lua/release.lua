-- End a holder's leases.
-- KEYS: leases, holders
-- ARGV: holder, responses
for at = 2, #ARGV do
  if redis.call('HGET', KEYS[2], ARGV[at]) == ARGV[1] then
    redis.call('HDEL', KEYS[2], ARGV[at])
    redis.call('ZREM', KEYS[1], ARGV[at])
  end
end
