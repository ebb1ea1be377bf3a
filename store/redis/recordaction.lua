-- Records what somebody did to a key: catalog.go says how. KEYS: actions. ARGV: it as JSON; how many are kept. The
-- answer is its number.

local time = redis.call('TIME')
local newest = redis.call('LINDEX', KEYS[1], 0)
local number = 1
if newest then number = cjson.decode(newest)[1] + 1 end
redis.call('LPUSH', KEYS[1], string.format('[%.0f,%.0f,%s]', number, time[1] * 1e6 + time[2], ARGV[1]))
redis.call('LTRIM', KEYS[1], 0, ARGV[2] - 1)
return { string.format('%.0f', number) }
