-- Takes down how many keys limits have, and lets them begin or end to share a cell.
--
-- KEYS: the hash that room.lua describes; then for each limit the cell that its keys
-- share, or again the hash where none does. ARGV: when the count began, in microseconds;
-- then for each limit its name, its keys, what n: was when the count began, and the
-- generation of its shared cell, 0 for none. Field k: becomes the keys, that n:, the
-- time and the generation that was the last to begin; took how long the count took.
--
-- Returned are, of each limit that begins or ends to share, its number and the
-- generation, less than 0 if it ended.

local call, fmt = redis.call, string.format
local room, time = KEYS[1], call('TIME')
local now = time[1] * 1000000 + time[2]
local max, switched = tonumber(call('HGET', room, 'max') or 0), {}

-- dead tells whether nothing in a cell counts any more.
local function dead(key)
  local v = call('GET', key)
  if not v then return true end
  local at, empty, block = string.match(v, '^%d+ %d+ %d+ (%d+) %d+ %d+ (%d+) (%d+) ')
  return now >= tonumber(at) and now >= tonumber(empty) and now >= tonumber(block)
end

-- begin returns a generation that no limit has had: the present time.
local function begin(name)
  local generation = math.max(now, tonumber(call('HGET', room, 'last') or 0) + 1)
  call('HSET', room, 'last', fmt('%.0f', generation), 'g:' .. name, fmt('%.0f', generation))
  return generation
end

for i = 2, #KEYS do
  local at = 4 * i - 6
  local name, keys, made, asked = ARGV[at], tonumber(ARGV[at + 1]), ARGV[at + 2], tonumber(ARGV[at + 3])
  local v = call('HMGET', room, 'g:' .. name, 'x:' .. name, 'n:' .. name, 'k:' .. name)
  local generation, most = tonumber(v[1] or 0), tonumber(v[2] or max)
  local last = string.match(v[4] or '', '(%d+)$') or '0'
  if generation == 0 and most > 0 and keys >= most then
    generation = begin(name)
    switched[#switched + 1] = { i - 1, generation }
  elseif generation > 0 and generation == asked and (most == 0 or keys < most * 0.95) and dead(KEYS[i]) then
    call('HDEL', room, 'g:' .. name)
    call('DEL', KEYS[i])
    switched[#switched + 1] = { i - 1, -generation }
    last, generation = fmt('%.0f', generation), 0
  end
  if generation > 0 then last = fmt('%.0f', generation) end
  if generation == 0 and (most == 0 or keys < most / 100 and made == (v[3] or '0')) then -- not worth a note
    call('HDEL', room, 'n:' .. name, 'k:' .. name)
    if most == 0 or keys == 0 then call('HDEL', room, 'x:' .. name) end
  else
    call('HSET', room, 'k:' .. name, fmt('%.0f %s %.0f %s', keys, made, now, last))
  end
end
call('HSET', room, 'took', fmt('%.0f %.0f', now - tonumber(ARGV[1]), now))
if max == 0 and call('HLEN', room) <= 2 then call('DEL', room) end -- took and last
return switched
