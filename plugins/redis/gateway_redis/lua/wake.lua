-- Interrupt the blocking read of the process that owns this stream.
-- KEYS: the stream
redis.call('XADD', KEYS[1], 'MAXLEN', 1, '*', 'w', '')
redis.call('EXPIRE', KEYS[1], 600)
