-- Lease responses whose lease has expired to a holder.
-- KEYS: leases, holders
-- ARGV: holder, milliseconds, maximum number
-- Returns the responses.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local taken = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[3])
for _, id in ipairs(taken) do
  redis.call('ZADD', KEYS[1], now + tonumber(ARGV[2]), id)
  redis.call('HSET', KEYS[2], id, ARGV[1])
end
return taken
