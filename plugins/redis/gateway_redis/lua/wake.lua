-- Wake the process that reads this stream among others.
-- KEYS: its stream
redis.call('XADD', KEYS[1], 'MAXLEN', 1, '*', 'w', '')
redis.call('EXPIRE', KEYS[1], 600)
