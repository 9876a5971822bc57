-- Note finished responses, in the order of time, and take out those beyond a number.
-- KEYS: index
-- ARGV: the most, seconds after which they expire of themselves, responses
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
for at = 3, #ARGV do redis.call('ZADD', KEYS[1], now + at, ARGV[at]) end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2] * 1000000)
local beyond = redis.call('ZCARD', KEYS[1]) - tonumber(ARGV[1])
if beyond <= 0 then return {} end
local out = {}
local popped = redis.call('ZPOPMIN', KEYS[1], math.min(beyond, 1000))
for at = 1, #popped, 2 do out[#out + 1] = popped[at] end
return out
