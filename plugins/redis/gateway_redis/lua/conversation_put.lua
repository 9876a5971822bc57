-- Store a conversation. Replaces one of another owner, with its items.
-- KEYS: conversation, items, order
-- ARGV: owner, meta, milliseconds to live
-- Returns the bytes of its items.
local owner = redis.call('HGET', KEYS[1], 'o')
if owner and owner ~= ARGV[1] then redis.call('DEL', unpack(KEYS)) end
redis.call('HSET', KEYS[1], 'o', ARGV[1], 'm', ARGV[2])
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, ARGV[3]) end
return tonumber(redis.call('HGET', KEYS[1], 'b') or '0')
