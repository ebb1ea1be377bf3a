-- Takes down how many keys limits have, and lets them begin or end to share a cell.
-- Before it stand head.lua, of which it uses little, and begin.lua.
--
-- KEYS: the hash that room.lua describes; then for each limit the cell that its keys
-- share, or again the hash where none does. ARGV, after what head.lua reads: when the
-- count began, in microseconds; then for each limit its name, its keys, what n: was when
-- the count began, and the generation of its shared cell, 0 for none. Field k: becomes
-- the keys, what n: was half-way through the count, the time and the generation that was
-- the last to begin; took how long the count took, and the time. Of the cells that were
-- made during a count, it has seen about half.

local room, now = KEYS[1], store_clock
local setting = tonumber(call('HGET', room, 'max') or 0)

-- dead tells whether nothing in a cell counts any more.
local function dead(key)
  local v = call('GET', key)
  if not v then return true end
  local at, empty, block = string.match(v, '^%d+ %d+ %d+ (%d+) %d+ %d+ (%d+) (%d+) ')
  return now >= tonumber(at) and now >= tonumber(empty) and now >= tonumber(block)
end

for i = 2, #KEYS do
  local at = 4 * i - 5
  local name, keys, before, asked = ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  local v = call('HMGET', room, 'g:' .. name, 'x:' .. name, 'n:' .. name, 'k:' .. name)
  local generation, most, made = tonumber(v[1] or 0), tonumber(v[2] or setting), tonumber(v[3] or 0)
  local last = tonumber(string.match(v[4] or '0', '(%d+)$'))
  if generation == 0 and most > 0 and keys >= most then
    generation = begin(room, name, now)
  elseif generation > 0 and generation == asked and (most == 0 or keys < most * 0.95) and dead(KEYS[i]) then
    call('HDEL', room, 'g:' .. name)
    call('DEL', KEYS[i])
    last, generation = generation, 0
  end
  if generation == 0 and (most == 0 or keys < most / 100 and made == before) then -- not worth a note
    call('HDEL', room, 'n:' .. name, 'k:' .. name)
    if most == 0 or keys == 0 then call('HDEL', room, 'x:' .. name) end
  else
    call('HSET', room, 'k:' .. name, fmt('%.0f %.0f %.0f %.0f', keys, floor((before + made) / 2), now, max(last, generation)))
  end
end
call('HSET', room, 'took', fmt('%.0f %.0f', now - tonumber(ARGV[2]), now))
if setting == 0 and call('HLEN', room) <= 2 then call('DEL', room) end -- took and last
