-- Fields of an owner's record. A record of another owner counts as missing; none of its fields are read.
-- KEYS: record
-- ARGV: owner, fields
-- Returns false, or the fields.
if redis.call('HGET', KEYS[1], 'o') ~= ARGV[1] then return false end
return redis.call('HMGET', KEYS[1], unpack(ARGV, 2))
