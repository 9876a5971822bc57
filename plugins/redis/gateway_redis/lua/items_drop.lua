-- Items are in a response no more.
-- KEYS: homes of each item
-- ARGV: the response
for _, key in ipairs(KEYS) do redis.call('ZREM', key, ARGV[1]) end
