-- Extend the lifetime of responses.
-- KEYS: record, events, children of each
-- ARGV: minimum lifetime in milliseconds
-- Returns the uses of large parts of those that have any.
local out = {}
local ttl = tonumber(ARGV[1])
for at = 1, #KEYS, 3 do
  local left = redis.call('PTTL', KEYS[at])
  if left >= 0 and left < ttl then
    for key = at, at + 2 do redis.call('PEXPIRE', KEYS[key], ttl) end
  end
  out[#out + 1] = redis.call('HGET', KEYS[at], 'x') or nil
end
return out
