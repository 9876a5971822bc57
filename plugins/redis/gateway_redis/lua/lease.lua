-- Lease responses to a holder, except those that another holder has leased.
-- KEYS: leases, holders
-- ARGV: holder, milliseconds, responses
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for at = 3, #ARGV do
  local id = ARGV[at]
  local holder, ends = redis.call('HGET', KEYS[2], id), redis.call('ZSCORE', KEYS[1], id)
  if not holder or holder == ARGV[1] or not ends or tonumber(ends) <= now then
    redis.call('ZADD', KEYS[1], now + tonumber(ARGV[2]), id)
    redis.call('HSET', KEYS[2], id, ARGV[1])
  end
end
