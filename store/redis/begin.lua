-- begin lets the keys of a limit share a cell, and returns its generation: the present
-- time, and one that no limit has had.
local function begin(room, name, now)
  local generation = math.max(now, tonumber(call('HGET', room, 'last') or 0) + 1)
  call('HSET', room, 'last', fmt('%.0f', generation), 'g:' .. name, fmt('%.0f', generation))
  return generation
end

-- counted returns what field k: says of a limit: its keys, what n: was when they were
-- counted, and the generation that was the last to begin.
local function counted(k)
  local keys, made, last = string.match(k or '', '^(%d+) (%d+) %d+ (%d+)$')
  return tonumber(keys or 0), tonumber(made or 0), tonumber(last or 0)
end

