-- Writes a key for a second, as all other scripts write. KEYS: any key of the store.
return redis.call('SET', KEYS[1], '1', 'PX', '1000')
