-- Forget a chat completion.
-- KEYS: completion
-- ARGV: owner, or "*" for anybody's
-- Returns its owner, or false where there is none.
local owner = redis.call('HGET', KEYS[1], 'o')
if not owner or ARGV[1] ~= '*' and owner ~= ARGV[1] then return false end
redis.call('DEL', KEYS[1])
return owner
