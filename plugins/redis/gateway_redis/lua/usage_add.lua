-- Add what was used on a day. A batch is added once.
-- KEYS: sums of the day, the batch
-- ARGV: seconds that sums are kept, seconds that the batch is known, then for each sum its field and a number
if not redis.call('SET', KEYS[2], '1', 'NX', 'EX', ARGV[2]) then return end
for at = 3, #ARGV, 2 do redis.call('HINCRBY', KEYS[1], ARGV[at], ARGV[at + 1]) end
redis.call('EXPIRE', KEYS[1], ARGV[1])
