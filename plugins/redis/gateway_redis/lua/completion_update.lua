-- Replace a chat completion's metadata. Does not extend its lifetime.
-- KEYS: completion
-- ARGV: owner, metadata
-- Returns its data, or false if it does not exist.
if redis.call('HGET', KEYS[1], 'o') ~= ARGV[1] then return false end
redis.call('HSET', KEYS[1], 'k', ARGV[2])
return redis.call('HGET', KEYS[1], 'd')
