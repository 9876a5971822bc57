-- Record that items are no longer in a response.
-- KEYS: index entry of each item
-- ARGV: the response
for _, key in ipairs(KEYS) do redis.call('ZREM', key, ARGV[1]) end
