-- What is known of limits that may be full: see law/shared.go, room.go and room.lua. It
-- stands before plain.lua, in all scripts but those for a Cluster, where ROOM would lie in
-- another slot; there all of this is nil.
--
-- ROOM is a hash, which is there only while keys are counted or shared. Its fields:
-- max, the maximum of limits that have none of their own; and of a limit, after
-- these letters its name: g: the generation of the cell that its keys share, if they
-- do; x: its own maximum; n: how many cells were made since it was first counted; k: see
-- count.lua. last is the generation that was the last to begin, took is about counts.

local ROOM = KEYS[#KEYS]
local there -- nil: it is not known yet whether the hash is
local limits -- by name; nil: none was looked up

-- limit_of returns what the hash says of the limit of a cell. at_most are its keys if none
-- has gone since they were counted, enough as many as it must not have, made the cells
-- that this call makes. watched says that room.lua decides whether a key gets a cell.
local function limit_of(key)
  local name = string.match(key, '}:(.*)')
  limits = limits or {}
  local l = limits[name]
  if not l then
    local v = there and call('HMGET', ROOM, 'g:' .. name, 'x:' .. name, 'max', 'n:' .. name, 'k:' .. name) or {}
    local keys, before = string.match(v[5] or '0 0', '^(%d+) (%d+)')
    l = { name = name, generation = tonumber(v[1] or 0), own = tonumber(v[2] or 0), max = tonumber(v[3] or 0), most = 0, made = 0 }
    l.at_most = keys + (v[4] or 0) - before
    l.enough = max(l.own, l.max) > 0 and (l.own > 0 and l.own or l.max) * 1.25 + 64 or MAX
    l.watched = l.generation > 0 or l.own > 0 or l.at_most >= l.enough
    limits[name] = l
  end
  return l
end

-- note_made writes down how many cells this call has made, and what the ops say of their
-- limits' own maxima.
local function note_made()
  for name, l in pairs(limits) do
    if l.made > 0 and l.max + l.most > 0 then
      call('HINCRBY', ROOM, 'n:' .. name, l.made)
      if l.most ~= l.own and l.most > 0 then call('HSET', ROOM, 'x:' .. name, fmt(int, l.most)) end
    end
    if l.made > 0 and l.most == 0 and l.own > 0 then call('HDEL', ROOM, 'x:' .. name) end
  end
end

