-- Delete a chat completion.
-- KEYS: completion
-- ARGV: owner
-- Returns its owner, or false if it does not exist.
local owner = redis.call('HGET', KEYS[1], 'o')
if owner ~= ARGV[1] then return false end
redis.call('DEL', KEYS[1])
return owner
