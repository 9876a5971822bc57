-- Count a request against the limits of a principal, unless one of them is exceeded.
-- KEYS: counters, running requests
-- ARGV: request, requests per minute, tokens per minute, tokens per day, concurrent requests ("": no limit), tokens,
--   milliseconds that it runs without being renewed
-- Returns the limit that refuses it ("": none), the seconds to wait, the requests and the tokens that are counted, the day.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local day = math.floor(time[1] / 86400)
local limits = {tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])}
local tokens = tonumber(ARGV[6])
local held = redis.call('HMGET', KEYS[1], 'r', 'ra', 't', 'ta', 'd', 'dt')
local function decayed(spent, at, limit)
  spent, at = tonumber(spent or '0'), tonumber(at or '0')
  if limit and now > at then spent = math.max(0, spent - (now - at) * limit / 60000) end
  return spent
end
local requests = decayed(held[1], held[2], limits[1])
local used = decayed(held[3], held[4], limits[2])
local today = tonumber(held[5] or '0') == day and tonumber(held[6] or '0') or 0
local function answer(refused, wait)
  return {refused, string.format('%.6f', wait), string.format('%.6f', requests), string.format('%.6f', used), day}
end
if redis.call('ZSCORE', KEYS[2], ARGV[1]) then return answer('', 0) end -- the same call once more
local refused, longest = '', 0
local function refuse(name, wait)
  if wait > longest then refused, longest = name, wait end
end
local ROUNDING = 0.000001
if limits[1] and requests + 1 - limits[1] > ROUNDING then
  refuse('requests', (requests + 1 - limits[1]) * 60 / limits[1])
end
if limits[2] and used + tokens - limits[2] > ROUNDING then
  refuse('tokens', (used + tokens - limits[2]) * 60 / limits[2])
end
if limits[3] and today + tokens > limits[3] then
  refuse('day', (day + 1) * 86400 - now / 1000)
end
if limits[4] and redis.call('ZCOUNT', KEYS[2], '(' .. string.format('%.0f', now), '+inf') >= limits[4] then
  refuse('concurrent', 1)
end
if refused ~= '' then return answer(refused, longest) end
requests, used = requests + 1, used + tokens
local at = string.format('%.0f', now)
redis.call('HSET', KEYS[1], 'r', string.format('%.6f', requests), 'ra', at, 't', string.format('%.6f', used), 'ta', at,
  'd', day, 'dt', string.format('%.0f', today + tokens))
-- Of processes that have died. Later than they stop counting, since a slow one may settle its requests after all.
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', string.format('%.0f', now - 86400000))
redis.call('ZADD', KEYS[2], string.format('%.0f', now + tonumber(ARGV[7])), ARGV[1])
for key = 1, 2 do redis.call('EXPIRE', KEYS[key], 172800) end
return answer('', 0)
