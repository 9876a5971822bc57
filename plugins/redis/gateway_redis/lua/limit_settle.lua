-- End requests of a principal, and count the tokens that they have used in place of those that were reserved.
-- KEYS: counters, running requests
-- ARGV: for each request: its name, tokens per minute ("": no limit), tokens reserved, tokens used, day of its admission
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for at = 1, #ARGV, 5 do
  if redis.call('ZREM', KEYS[2], ARGV[at]) == 1 then
    local change = tonumber(ARGV[at + 3]) - tonumber(ARGV[at + 2])
    local held = redis.call('HMGET', KEYS[1], 't', 'ta', 'd', 'dt')
    local limit = tonumber(ARGV[at + 1])
    if limit and held[1] then
      local used = math.max(0, tonumber(held[1]) - math.max(0, now - tonumber(held[2])) * limit / 60000)
      used = math.max(0, used + change)
      redis.call('HSET', KEYS[1], 't', string.format('%.6f', used), 'ta', string.format('%.0f', now))
    end
    if held[3] == ARGV[at + 4] then
      redis.call('HSET', KEYS[1], 'dt', string.format('%.0f', math.max(0, tonumber(held[4]) + change)))
    end
  end
end
