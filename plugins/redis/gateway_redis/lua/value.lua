-- Set a shared value if its current value is as expected (compare-and-set).
-- KEYS: value, times at which the owner's values expire, their sizes
-- ARGV: name, value, expected ("": none), milliseconds to live, maximum number, maximum bytes, size that is always allowed
-- Returns the value after the call, or false.
local held = redis.call('GET', KEYS[1])
if held == ARGV[2] then return held end -- also the same call once more, because its answer was lost
if (held or '') ~= ARGV[3] then return held end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'LIMIT', 0, 1000)) do
  redis.call('HINCRBY', KEYS[3], '', -(redis.call('HGET', KEYS[3], name) or 0))
  redis.call('HDEL', KEYS[3], name)
  redis.call('ZREM', KEYS[2], name)
end
local before = redis.call('HGET', KEYS[3], ARGV[1])
if not before and redis.call('ZCARD', KEYS[2]) >= tonumber(ARGV[5]) then return held end
local added = #ARGV[2] - (before or 0)
local total = tonumber(redis.call('HGET', KEYS[3], '') or '0')
if #ARGV[2] > tonumber(ARGV[7]) and total + added > tonumber(ARGV[6]) then return held end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[4])
redis.call('ZADD', KEYS[2], now + ARGV[4], ARGV[1])
redis.call('HSET', KEYS[3], ARGV[1], #ARGV[2])
redis.call('HINCRBY', KEYS[3], '', added)
for key = 2, 3 do
  if redis.call('PTTL', KEYS[key]) < tonumber(ARGV[4]) then
    redis.call('PEXPIRE', KEYS[key], ARGV[4])
  end
end
return ARGV[2]
