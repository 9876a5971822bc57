-- Append items to a conversation, except those that it already contains.
-- KEYS: conversation, items, order
-- ARGV: owner, milliseconds to live, maximum items, maximum bytes (-1: unlimited), 1 if all items are to be new, item ids
-- and items alternating
-- Returns 0 if there is no such conversation; a list of ids if all items are to be new and these are there already, or -1 if it
-- would be too large (then nothing is added); else its size in bytes plus 1.
if redis.call('HGET', KEYS[1], 'o') ~= ARGV[1] then return 0 end
if ARGV[5] == '1' then
  local there = {}
  for at = 6, #ARGV, 2 do
    if redis.call('HEXISTS', KEYS[2], ARGV[at]) == 1 then there[#there + 1] = ARGV[at] end
  end
  if #there > 0 then return there end
end
local new, number, added = {}, redis.call('HLEN', KEYS[2]), 0
local size = redis.call('HGET', KEYS[1], 'b')
if not size then -- made by an earlier version
  size = 0
  for _, item in ipairs(redis.call('HVALS', KEYS[2])) do size = size + #item end
end
for at = 6, #ARGV, 2 do
  if redis.call('HSETNX', KEYS[2], ARGV[at], ARGV[at + 1]) == 1 then
    new[#new + 1] = ARGV[at]
    added = added + #ARGV[at + 1]
  end
end
local most_items, most_bytes = tonumber(ARGV[3]), tonumber(ARGV[4])
if #new > 0 and most_items >= 0 and (number + #new > most_items or size + added > most_bytes) then
  for _, id in ipairs(new) do redis.call('HDEL', KEYS[2], id) end
  return -1
end
for _, id in ipairs(new) do
  redis.call('ZADD', KEYS[3], redis.call('HINCRBY', KEYS[1], 'n', 1), id)
end
redis.call('HSET', KEYS[1], 'b', size + added)
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, ARGV[2]) end
return size + added + 1
