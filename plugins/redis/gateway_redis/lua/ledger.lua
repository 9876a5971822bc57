-- Record usage per owner, and remove entries beyond the bounds: the oldest of the owner with the highest usage first.
-- KEYS: the ledger
-- ARGV: maximum responses, completions, conversations, bytes; seconds after which entries expire by themselves; for each
--   change: "put" (as the newest), "keep" (counted, but not to be evicted) or "drop", kind, name, owner, bytes
-- Returns for each entry to evict: kind, name, owner.
local base = KEYS[1]
local entries, bytes, total = base .. ':entries', base .. ':bytes', base .. ':total'
local kinds = { 'r', 'c', 'v' }
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local function less(key, owner, by)
  if tonumber(redis.call('ZINCRBY', key, -by, owner)) <= 0 then redis.call('ZREM', key, owner) end
end

local function remove(kind, name)
  local entry = redis.call('HGET', entries, kind .. name)
  if not entry then return end
  local space = string.find(entry, ' ', 1, true)
  local size, owner = tonumber(string.sub(entry, 1, space - 1)), string.sub(entry, space + 1)
  redis.call('HDEL', entries, kind .. name)
  less(bytes, owner, size)
  if redis.call('INCRBY', total, -size) <= 0 then redis.call('DEL', total) end
  redis.call('ZREM', base .. ':kept', kind .. name)
  if redis.call('ZREM', base .. ':' .. kind, name) == 1 then
    redis.call('ZREM', base .. ':' .. kind .. ':' .. owner, name)
    less(base .. ':' .. kind .. ':n', owner, 1)
  end
end

for at = 6, #ARGV, 5 do
  local change, kind, name, owner, size = unpack(ARGV, at, at + 4)
  remove(kind, name)
  if change ~= 'drop' then
    redis.call('HSET', entries, kind .. name, size .. ' ' .. owner)
    redis.call('ZINCRBY', bytes, size, owner)
    redis.call('INCRBY', total, size)
    if change == 'keep' then
      redis.call('ZADD', base .. ':kept', now + at, kind .. name)
    else
      redis.call('ZADD', base .. ':' .. kind, now + at, name)
      redis.call('ZADD', base .. ':' .. kind .. ':' .. owner, now + at, name)
      redis.call('ZINCRBY', base .. ':' .. kind .. ':n', 1, owner)
    end
  end
end

local expired = now - ARGV[5] * 1000000
for _, kind in ipairs(kinds) do
  local names = redis.call('ZRANGEBYSCORE', base .. ':' .. kind, '-inf', expired, 'LIMIT', 0, 1000)
  for _, name in ipairs(names) do remove(kind, name) end
end
for _, one in ipairs(redis.call('ZRANGEBYSCORE', base .. ':kept', '-inf', expired, 'LIMIT', 0, 1000)) do
  remove(string.sub(one, 1, 1), string.sub(one, 2))
end

local out = {}
local function evict(kind, owner)
  local name = owner and redis.call('ZRANGE', base .. ':' .. kind .. ':' .. owner, 0, 0)[1]
  if not name then return false end -- somebody has changed the ledger
  remove(kind, name)
  out[#out + 1] = kind
  out[#out + 1] = name
  out[#out + 1] = owner
  return true
end

for index, kind in ipairs(kinds) do
  while #out < 900 and redis.call('ZCARD', base .. ':' .. kind) > tonumber(ARGV[index]) do
    if not evict(kind, redis.call('ZREVRANGE', base .. ':' .. kind .. ':n', 0, 0)[1]) then break end
  end
end

-- The kind of the owner's oldest entry that may be evicted, if any.
local function oldest(owner)
  local found, first
  for _, kind in ipairs(kinds) do
    local one = redis.call('ZRANGE', base .. ':' .. kind .. ':' .. owner, 0, 0, 'WITHSCORES')
    if one[2] and (not first or tonumber(one[2]) < first) then found, first = kind, tonumber(one[2]) end
  end
  return found
end

local most = tonumber(ARGV[4])
while #out < 900 and tonumber(redis.call('GET', total) or '0') > most do
  local share = most / redis.call('ZCARD', bytes)
  local kind, who
  for _, owner in ipairs(redis.call('ZREVRANGEBYSCORE', bytes, '+inf', '(' .. string.format('%.0f', share), 'LIMIT', 0, 100)) do
    kind, who = oldest(owner), owner
    if kind then break end
  end
  if not kind or not evict(kind, who) then break end
end
return out
