-- The given fields of several hashes.
-- KEYS: hashes
-- ARGV: fields
local found = {}
for at, key in ipairs(KEYS) do found[at] = redis.call('HMGET', key, unpack(ARGV)) end
return found
