-- Limits that have as many keys as they may: see limits.lua, which is in the same
-- scripts.

local FULL, ENDED = 6, -1 -- see law.Numbers and law.Ended

-- full returns what stands in the way of an op: the generation of the cell that keys
-- without one share, ENDED where the op is on a shared cell that is none any more, or
-- 0. A shared cell may expire while its generation lasts. max_keys of an op is its limit's
-- own maximum, 0 if there is none, less than 0 on a shared cell.
--
-- Whether a limit is full, is said by a count. If that takes too long, or nobody counts,
-- the keys share a cell without it.
local function full(op)
  if cell(op).kind ~= 0 then return 0 end
  if there == nil then there = call('EXISTS', ROOM) == 1 end
  local own = op.p.max_keys
  if not there and own <= 0 then return own end
  local l = limit_of(op.key)
  if own < 0 then
    return tonumber(string.match(op.key, '{k:headgate:shared:(%d+)}')) == l.generation and 0 or ENDED
  end
  l.most = own
  if l.generation == 0 and l.at_most >= (own > 0 and own * 1.25 + 64 or l.enough) then
    l.generation = begin(ROOM, l.name, store_clock)
  end
  return l.generation
end

-- among_full tells whether something stands in the way of one of the ops of a list,
-- and answers those from i to j if so, of which they are: nothing is done about them.
among_full = function(i, j, list, first, last)
  local found
  for k = first, last do
    local generation = full(list[k])
    if generation ~= 0 then
      found = found or {}
      found[list[k]] = generation
    end
  end
  if not found then return false end
  for k = i, j do
    local op = rest[k]
    answer(op, 0, NONE, 0, 0, found[op], 0, found[op] and FULL or STALE)
  end
  return true
end

-- created counts the cells that were made.
created = function()
  if not limits then return end
  for key, c in pairs(cells) do
    if c.new and c.dirty and c.kind ~= 0 and c.shared == 0 then
      local l = limit_of(key)
      l.made = l.made + 1
    end
  end
  note_made()
end
