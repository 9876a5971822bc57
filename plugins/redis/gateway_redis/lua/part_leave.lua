-- Give up the use of a part. It is removed with its last use.
-- KEYS: part, uses
-- ARGV: response, token, whether the response was removed (1 or 0)
-- Returns whether the part was removed (1 or 0), and the bytes that are counted without a response from now on.
redis.call('ZREM', KEYS[2], ARGV[1] .. ' ' .. ARGV[2])
if redis.call('EXISTS', KEYS[2]) == 0 then
  redis.call('DEL', KEYS[1])
  return { 1, 0 }
end
if ARGV[3] == '1' and redis.call('HGET', KEYS[1], 'b') == ARGV[1] then
  redis.call('HSET', KEYS[1], 'b', '')
  return { 0, redis.call('HSTRLEN', KEYS[1], 'd') }
end
return { 0, 0 }
