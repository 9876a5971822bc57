-- One item of a conversation, or the conversation itself.
-- KEYS: conversation, items, order
-- ARGV: owner, milliseconds to live, the item ("" for the conversation), "get" or "delete"
-- Returns false if it does not exist, else its data before the call.
if redis.call('HGET', KEYS[1], 'o') ~= ARGV[1] then return false end
local found
if ARGV[3] == '' then
  found = redis.call('HGET', KEYS[1], 'm')
  if ARGV[4] == 'delete' then redis.call('DEL', unpack(KEYS)) end
else
  found = redis.call('HGET', KEYS[2], ARGV[3])
  if found and ARGV[4] == 'delete' then
    if redis.call('HEXISTS', KEYS[1], 'b') == 1 then
      redis.call('HINCRBY', KEYS[1], 'b', -#found)
    end
    redis.call('HDEL', KEYS[2], ARGV[3])
    redis.call('ZREM', KEYS[3], ARGV[3])
  end
end
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, ARGV[2]) end
return found
