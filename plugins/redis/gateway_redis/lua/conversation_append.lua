-- Add items at a conversation's end, but for those that it has.
-- KEYS: conversation, items, order
-- ARGV: owner, milliseconds to live, item ids and items in turn
-- Returns whether there is such a conversation.
if redis.call('HGET', KEYS[1], 'o') ~= ARGV[1] then return 0 end
for at = 3, #ARGV, 2 do
  if redis.call('HSETNX', KEYS[2], ARGV[at], ARGV[at + 1]) == 1 then
    redis.call('ZADD', KEYS[3], redis.call('HINCRBY', KEYS[1], 'n', 1), ARGV[at])
  end
end
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, ARGV[2]) end
return 1
