-- Corrections of charges: law/giveback.go and law/renew.go line by line, and what
-- they do to logs. It is in the scripts of calls that correct something, since each
-- function that a script has costs every call of it 0.1 us.

-- entry returns the member of a number that counts after a time, and when it
-- expires. Where the times do not ascend with the numbers (an entry was renewed,
-- the clock stepped back, the window was changed), it may stand anywhere: then it
-- is looked for among the next 10,000 to expire, so that nobody waits longer for it
-- than 10 ms.
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
  if new ~= old then call('ZREM', c.log, old) end
end

-- lower takes from an entry what was given back; less than 0: adds to it. One with
-- nothing left counts no more, and goes where no history is asked for.
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
  if p.at > now then return 0 end
  local unused = p.cost * p.count
  local left = drained(p, p.level, p.at, now)
  local returned = max(0, s.prev - p.returned)
  if x > p.capacity and not is_fixed_window(p) then
    return max(0, min(unused, p.capacity - (p.drain - 1)) - max(0, x - left + returned))
  end
  return min(unused, max(0, left - returned))
end

-- over tells whether a charge was made in a window that has ended: of a bucket that
-- each step empties.
local function over(p, now)
  if p.anchor == 0 and p.drain < p.capacity then return false end
  return drained(p, 1, p.at, max(now, p.at)) == 0
end

-- is_of tells whether a cell was charged last by a definition of its limit.
local function is_of(s, p)
  return s.kind == p.kind and s.unit == p.unit and (p.kind == 3 or s.step == p.step)
end

-- correct takes from a cell what an op of verb Return may give back: granted; or
-- charges more, then that is less than 0. Of a log, member is the entry it was
-- charged in, which the caller lowers, and expires when that counts no more.
local function correct(c, p)
  local now = max(c.clock, c.at)
  if is_stale(p, now) then return { granted = 0, used = 0, clock = now, stale = true } end
  local d = { granted = 0, used = 0, clock = c.clock }
  local n = p.cost * p.count
  local s = copy({ now = now, clear = false, carry = 0 }, c)
  if s.kind == 0 and n < 0 then s.kind, s.unit, s.step = p.kind, p.unit, p.step end
  if not is_of(s, p) then return d end -- reset, or the limit was changed
  if now >= s.empty then s.level, s.prev = 0, 0 end
  local u = use(s, c, p, false)
  if p.kind == 1 then
    if n > 0 then
      d.granted = min(undrained(p, s, u.x, now), u.x)
      if s.prev > MAX - d.granted then d.granted = 0 end
      if not is_fixed_window(p) then s.prev = s.prev + d.granted end
    elseif not over(p, now) then
      d.granted = max(n, u.x - MAX)
    end
  elseif p.kind == 2 then
    if p.at - p.at % p.step == u.start then
      d.granted = max(min(n, u.level), u.level - 4294967295)
      u.level = u.level - d.granted
    end
  elseif p.entry > 0 then
    d.member, d.expires = entry(c, p.entry, now)
    if d.member then d.granted = max(min(n, cost_of(d.member), u.x), u.x - MAX) end
  end
  u.x = u.x - d.granted
  d.used = u.x
  if d.granted == 0 then return d end
  charge(u, p, s, now)
  if p.kind == 3 or p.kind == 1 and d.granted > 0 then s.empty = c.empty end
  copy(c, s)
  c.dirty = true
  return d
end

-- renew lets an entry count for another step from now, and never for less than it did. It
-- returns 1; 0 if the entry counts no more.
local function renew(c, p)
  local now = max(c.clock, c.at)
  if not is_of(c, p) then return 0 end -- reset, or the limit was changed
  local member, expires = entry(c, p.entry, now)
  if not member then return 0 end
  local to = now + p.step
  if to <= expires then return 1 end
  local number, at, keep, cost, granted = string.match(member, ENTRY)
  keep = max(keep + 0, to)
  local new = string.gsub(member, ENTRY, fmt('%s %s %.0f %s %s', number, at, keep, cost, granted))
  rewrite(c, member, new, to)
  local ms = life(keep, now, c.test)
  if call('PTTL', c.log) < tonumber(ms) then call('PEXPIRE', c.log, ms) end
  c.empty, c.dirty = max(c.empty, to), true
  return 1
end
