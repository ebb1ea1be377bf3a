-- Reads items of the catalog: catalog.go says how they are kept. KEYS: versions, then
-- items or keys. ARGV: IDs. The answer is the newest version, and an item or nothing for
-- each ID.

local answer = #ARGV > 0 and redis.call('HMGET', KEYS[2], unpack(ARGV)) or {}
table.insert(answer, 1, redis.call('HGET', KEYS[1], 'newest') or '0')
return answer
