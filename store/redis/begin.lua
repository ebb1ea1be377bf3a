-- begin lets the keys of a limit share a cell, and returns its generation: the present
-- time, and one that no limit has had.
local function begin(room, name, now)
  local generation = max(now, tonumber(call('HGET', room, 'last') or 0) + 1)
  call('HSET', room, 'last', fmt(int, generation), 'g:' .. name, fmt(int, generation))
  return generation
end

