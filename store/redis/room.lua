-- Limits that have as many keys as they may: see law/shared.go and room.go. It is in
-- no script for a Cluster, where ROOM would lie in another slot, and is nil.
--
-- ROOM is a hash, which is there only while keys are counted or shared. Its fields:
-- max, the maximum of limits that have none of their own; and of a limit, after
-- these letters its name: g: the generation of the cell that its keys share, if they
-- do; x: its own maximum; n: how many cells were made since it was first counted; k: see
-- count.lua. last is the generation that was the last to begin, took is about counts.

local FULL, ENDED = 6, -1 -- see law.Numbers and law.Ended
local limits = {}

local function limit_of(key)
  local name = string.match(key, '}:(.*)')
  local l = limits[name]
  if not l then
    local v = there and call('HMGET', ROOM, 'g:' .. name, 'x:' .. name, 'max', 'n:' .. name, 'k:' .. name) or {}
    local keys, made = counted(v[5])
    l = {
      name = name, generation = tonumber(v[1] or 0), own = tonumber(v[2] or 0), max = tonumber(v[3] or 0), most = 0, new = 0,
      at_most = keys + tonumber(v[4] or 0) - made, -- keys, if none has gone since they were counted
    }
    limits[name] = l
  end
  return l
end

-- full returns what stands in the way of an op: the generation of the cell that keys
-- without one share, ENDED where the op is on a shared cell that is none any more, or
-- 0. A shared cell may expire while its generation lasts. most of an op is its limit's
-- own maximum, 0 if there is none, less than 0 on a shared cell.
--
-- Whether a limit is full, is said by a count. If that takes too long, or nobody counts,
-- the keys share a cell without it.
local function full(op)
  if cell(op).kind ~= 0 then return 0 end
  if there == nil then there = call('EXISTS', ROOM) == 1 end
  local own = op.p.most
  if not there and own <= 0 then return own end
  local l = limit_of(op.key)
  if own < 0 then
    return tonumber(string.match(op.key, '{k:headgate:shared:(%d+)}')) == l.generation and 0 or ENDED
  end
  l.most = own
  local most = own > 0 and own or l.own > 0 and l.own or l.max
  if l.generation == 0 and most > 0 and l.at_most >= most * 1.25 + 64 then
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
  if next(limits) == nil then return end
  for key, c in pairs(cells) do
    if c.new and c.dirty and c.kind ~= 0 and c.shared == 0 then
      local l = limit_of(key)
      l.new = l.new + 1
    end
  end
  for name, l in pairs(limits) do
    if l.new > 0 and l.max + l.most > 0 then
      call('HINCRBY', ROOM, 'n:' .. name, l.new)
      if l.most ~= l.own and l.most > 0 then call('HSET', ROOM, 'x:' .. name, fmt(int, l.most)) end
    end
    if l.new > 0 and l.most == 0 and l.own > 0 then call('HDEL', ROOM, 'x:' .. name) end
  end
end
