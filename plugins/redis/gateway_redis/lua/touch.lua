-- Let what is stored of some responses live longer.
-- KEYS: record, events, children of each
-- ARGV: milliseconds that they must live at least
local ttl = tonumber(ARGV[1])
for at = 1, #KEYS, 3 do
  local left = redis.call('PTTL', KEYS[at])
  if left >= 0 and left < ttl then
    for key = at, at + 2 do redis.call('PEXPIRE', KEYS[key], ttl) end
  end
end
