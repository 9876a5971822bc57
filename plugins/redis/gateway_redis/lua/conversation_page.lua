-- A page of a conversation's items.
-- KEYS: conversation, items, order
-- ARGV: owner, milliseconds to live, the item to start after ("" for none), maximum number (-1: all), "asc" or "desc"
-- Returns false, or: whether there are more (1 or 0), items.
if redis.call('HGET', KEYS[1], 'o') ~= ARGV[1] then return false end
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, ARGV[2]) end
local range, rank = 'ZRANGE', 'ZRANK'
if ARGV[5] == 'desc' then range, rank = 'ZREVRANGE', 'ZREVRANK' end
local start, most = 0, tonumber(ARGV[4])
if ARGV[3] ~= '' then
  local at = redis.call(rank, KEYS[3], ARGV[3])
  if not at then return false end
  start = at + 1
end
local stop = -1
if most >= 0 then stop = start + most - 1 end
local out = {}
if most ~= 0 then
  for _, id in ipairs(redis.call(range, KEYS[3], start, stop)) do
    out[#out + 1] = redis.call('HGET', KEYS[2], id)
  end
end
local more = 0
if start + #out < redis.call('ZCARD', KEYS[3]) then more = 1 end
return { more, out }
