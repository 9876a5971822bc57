-- Replace a chat completion's metadata. It lives no longer for that.
-- KEYS: completion
-- ARGV: owner, metadata
-- Returns its data, or false where there is none.
if redis.call('HGET', KEYS[1], 'o') ~= ARGV[1] then return false end
redis.call('HSET', KEYS[1], 'k', ARGV[2])
return redis.call('HGET', KEYS[1], 'd')
