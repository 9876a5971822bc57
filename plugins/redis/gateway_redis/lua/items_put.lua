-- Record that items are in a response.
-- KEYS: index entry of each item
-- ARGV: the response, milliseconds to live, maximum number of responses per item
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
for _, key in ipairs(KEYS) do
  redis.call('ZADD', key, now, ARGV[1])
  redis.call('ZREMRANGEBYRANK', key, 0, -1 - ARGV[3])
  if redis.call('PTTL', key) < tonumber(ARGV[2]) then redis.call('PEXPIRE', key, ARGV[2]) end
end
