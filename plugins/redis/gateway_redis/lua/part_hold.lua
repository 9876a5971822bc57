-- Use a part for a response. The first response that uses it is the one with which it is counted.
-- KEYS: part, uses
-- ARGV: response, token, data ("" if it may be stored), minimum lifetime in milliseconds, and those after which a use is looked at again
-- Returns the bytes that are counted with this response, or -1 if the part is not stored and there is no data; whether
--   the part was counted without a response (1 or 0); and a few old uses, whose responses may have expired.
local by, kept = redis.call('HGET', KEYS[1], 'b'), 0
if not by then
  if ARGV[3] == '' then return { -1, 0, {} } end
  redis.call('DEL', KEYS[2])
  redis.call('HSET', KEYS[1], 'd', ARGV[3], 'b', ARGV[1])
  by = ARGV[1]
elseif by == '' then
  redis.call('HSET', KEYS[1], 'b', ARGV[1])
  by, kept = ARGV[1], 1
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[2], now, ARGV[1] .. ' ' .. ARGV[2])
-- More than are added, so that they do not grow in number while the part is used for ever.
local old = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now - ARGV[5], 'LIMIT', 0, 2)
for _, use in ipairs(old) do redis.call('ZADD', KEYS[2], now, use) end
for _, key in ipairs(KEYS) do
  if redis.call('PTTL', key) < tonumber(ARGV[4]) then redis.call('PEXPIRE', key, ARGV[4]) end
end
return { by == ARGV[1] and redis.call('HSTRLEN', KEYS[1], 'd') or 0, kept, old }
