-- Write a record, unconditionally or only if the stored one has an expected status.
-- KEYS: record, events, children
-- ARGV: expected statuses (",a,b,", or "" for any status or no record), status, owner, meta, input, output, ids of all
--       items, token, milliseconds to live (0: no expiry), results or "", attempt, the attempt that the stored one must have,
--       the uses of large parts or "", and, if expected is "": parent, ancestors, broken ("1" or "")
-- Returns false if nothing was written, else: the former parent if it changed, the ancestors, and the uses of the write before, or "".
local had = redis.call('HMGET', KEYS[1], 's', 'p', 't', 'g', 'x')
local expected, token, ttl = ARGV[1], ARGV[8], tonumber(ARGV[9])
local left = ''
if expected ~= '' then
  if not had[1] then return false end
  -- A call that is repeated because its answer was lost succeeds again.
  local fits = string.find(expected, ',' .. had[1] .. ',', 1, true) and (had[4] or '0') == ARGV[12]
  if had[3] ~= token and not fits then return false end
elseif not had[1] then
  redis.call('DEL', KEYS[2])
  redis.call('HDEL', KEYS[1], 'n', 'z', 'w')
end
redis.call('HSET', KEYS[1], 's', ARGV[2], 'o', ARGV[3], 'm', ARGV[4], 'i', ARGV[5], 'u', ARGV[6], 'h', ARGV[7], 't', token)
if ARGV[10] == '' then redis.call('HDEL', KEYS[1], 'r') else redis.call('HSET', KEYS[1], 'r', ARGV[10]) end
if ARGV[13] ~= '' then
  redis.call('HSET', KEYS[1], 'x', ARGV[13])
elseif had[5] then
  redis.call('HDEL', KEYS[1], 'x')
end
if (had[4] or '0') ~= ARGV[11] then redis.call('HSET', KEYS[1], 'g', ARGV[11]) end
if expected == '' and had[2] ~= ARGV[14] then
  left = had[2] or ''
  redis.call('HSET', KEYS[1], 'p', ARGV[14], 'a', ARGV[15], 'b', ARGV[16])
end
for _, key in ipairs(KEYS) do
  if ttl == 0 then
    redis.call('PERSIST', key)
  elseif redis.call('PTTL', key) < ttl then
    redis.call('PEXPIRE', key, ttl)
  end
end
return { left, redis.call('HGET', KEYS[1], 'a'), had[3] ~= token and had[5] or '' }
