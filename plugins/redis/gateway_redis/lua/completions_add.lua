-- Record a chat completion as the owner's newest, and remove expired ones.
-- KEYS: the owner's completions
-- ARGV: the completion, milliseconds to live
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local last = redis.call('ZREVRANGE', KEYS[1], 0, 0, 'WITHSCORES')
-- Times are unique, because pages begin after a time.
if last[2] and tonumber(last[2]) >= now then now = tonumber(last[2]) + 1 end
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2] * 1000)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
