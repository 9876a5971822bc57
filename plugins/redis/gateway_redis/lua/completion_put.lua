-- Store a chat completion.
-- KEYS: completion
-- ARGV: owner, model, metadata, data, milliseconds to live
-- Returns the previous owner if it differs, else false.
local had = redis.call('HGET', KEYS[1], 'o')
redis.call('HSET', KEYS[1], 'o', ARGV[1], 'n', ARGV[2], 'k', ARGV[3], 'd', ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[5])
return had and had ~= ARGV[1] and had
