-- Record a child of a response; the child's history needs the response.
-- KEYS: record, events, children
-- ARGV: the child, owner, minimum lifetime in milliseconds
-- Returns false if there is no such record, else: whether its history is broken ("1" or ""), its ancestors.
local found = redis.call('HMGET', KEYS[1], 'o', 'b', 'a')
if not found[1] or found[1] ~= ARGV[2] then return false end
redis.call('SADD', KEYS[3], ARGV[1])
local left, ttl = redis.call('PTTL', KEYS[1]), tonumber(ARGV[3])
if left >= 0 then
  if left < ttl then left = ttl end
  for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, left) end
end
return { found[2], found[3] }
