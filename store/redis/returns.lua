-- The return rule: law/giveback.go line by line, and what it does to logs. It is
-- in the scripts of calls that give something back, since each function that a
-- script has costs every call of it 0.1 us.

-- entry returns the member of a number that counts after a time, and when it
-- expires. Where the times do not ascend with the numbers (the clock stepped
-- back, the window was changed), it may stand anywhere: then it is looked for
-- among the next 10,000 to expire, so that nobody waits longer for it than 10 ms.
local function entry(c, number, after)
  local first = call('ZCOUNT', c.log, '-inf', fmt('%.0f', after))
  local last = call('ZCARD', c.log) - 1
  local low, high = first, last
  while low <= high do
    local middle = floor((low + high) / 2)
    local at = call('ZRANGE', c.log, middle, middle, 'WITHSCORES')
    local n = tonumber(string.match(at[1], '^%d+'))
    if n == number then return at[1], tonumber(at[2]) end
    if n < number then low = middle + 1 else high = middle - 1 end
  end
  local prefix = fmt('%016.0f ', number)
  for from = first, min(last, first + 9999), 500 do
    local page = call('ZRANGE', c.log, from, from + 499, 'WITHSCORES')
    for i = 1, #page, 2 do
      if string.sub(page[i], 1, #prefix) == prefix then return page[i], tonumber(page[i + 1]) end
    end
  end
end

-- rewrite puts a member in the place of another, nil for none: first the new one,
-- since a log that is empty for an instant forgets when it is to expire.
local function rewrite(c, old, new, expires)
  if new then call('ZADD', c.log, fmt('%.0f', expires), new) end
  call('ZREM', c.log, old)
end

-- lower takes from an entry what was given back. One with nothing left counts no
-- more, and goes where no history is asked for.
local function lower(c, member, expires, credits, history)
  local number, at, keep, cost, granted = string.match(member, ENTRY)
  local left, new = cost - credits, nil
  if left > 0 or history > 0 then
    new = string.gsub(member, ENTRY, fmt('%s %s %s %.0f %s', number, at, keep, left, granted))
  end
  rewrite(c, member, new, left > 0 and expires or 0)
end

-- undrained returns how much of a charge to a bucket can be given back.
local function undrained(p, s, x, now)
  local unused = p.cost * p.count
  local left = drained(p, p.level, p.made, max(now, p.made))
  local returned = max(0, s.prev - p.returned)
  if x > p.capacity then return max(0, unused - max(0, x - left + returned)) end
  return min(unused, max(0, left - returned))
end

-- give_back takes from a cell what what an op of verb Return asks may give back: granted.
-- Of a log, member is the entry it was charged in, which the caller lowers, and
-- expires when that counts no more.
local function give_back(c, p)
  local now = max(c.clock, c.at)
  if is_stale(p, now) then return { granted = 0, used = 0, clock = now, stale = true } end
  local d = { granted = 0, used = 0, clock = c.clock }
  if c.kind ~= p.kind or c.unit ~= p.unit then return d end -- reset, or the limit was changed
  local s = copy({ now = now, clear = false, carry = 0 }, c)
  local u = use(s, c, p, false)
  if p.kind == 1 then
    d.granted = min(undrained(p, c, u.x, now), u.x)
    if s.prev > MAX - d.granted then d.granted = 0 end
    s.prev = s.prev + d.granted
  elseif p.kind == 2 then
    if p.made - p.made % p.step == u.start then
      d.granted = min(p.cost * p.count, u.level)
      u.level = u.level - d.granted
    end
  else
    d.member, d.expires = entry(c, p.entry, now)
    if d.member then d.granted = min(p.cost * p.count, cost_of(d.member), u.x) end
  end
  u.x = u.x - d.granted
  d.used = u.x
  if d.granted == 0 then return d end
  local empty = c.empty
  charge(u, p, s, now)
  if p.kind ~= 2 then s.empty = empty end
  copy(c, s)
  c.dirty = true
  return d
end

