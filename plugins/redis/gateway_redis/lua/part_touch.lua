-- Extend the lifetime of a part.
-- KEYS: part, uses
-- ARGV: minimum lifetime in milliseconds
for _, key in ipairs(KEYS) do
  local left = redis.call('PTTL', key)
  if left >= 0 and left < tonumber(ARGV[1]) then redis.call('PEXPIRE', key, ARGV[1]) end
end
