-- Keep running requests of a principal.
-- KEYS: running requests
-- ARGV: milliseconds, requests
local time = redis.call('TIME')
local ends = time[1] * 1000 + math.floor(time[2] / 1000) + tonumber(ARGV[1])
for at = 2, #ARGV do redis.call('ZADD', KEYS[1], 'XX', string.format('%.0f', ends), ARGV[at]) end
