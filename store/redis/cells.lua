-- Arithmetic, cells and logs.

local on_trial = trial > 0 -- what is done may have to be undone: see mode in call.go

local function ceil_div(a, b)
  local q = floor(a / b)
  if a % b > 0 then q = q + 1 end
  return q
end

local function add_steps(t, steps, step)
  if t >= MAX or steps > floor((MAX - t) / step) then return MAX end
  return t + steps * step
end

-- rescale converts credits of one unit into credits of another, rounded up and
-- saturated: the product, up to 2^106, is built and divided bit by bit.
local function rescale(credits, from, to, most)
  local whole, part = floor(to / from), to % from
  local q, r, bit = 0, 0, 4503599627370496 -- 2^52
  while bit >= 1 do
    q, r = 2 * q, 2 * r
    if r >= from then q, r = q + 1, r - from end
    if credits >= bit then
      credits = credits - bit
      q = q + whole
      if r >= from - part then q, r = q + 1, r - (from - part) else r = r + part end
    end
    if q > MAX then return most end
    bit = bit / 2
  end
  if r > 0 then q = q + 1 end
  return min(q, most)
end

-- Cells ----------------------------------------------------------------------

local cells = {}
local function cell(op)
  local c = cells[op.key]
  if c then
    c.log = c.log or KEYS[op.log]
    return c
  end
  c = {
    key = op.key, log = KEYS[op.log], kind = 0, level = 0, prev = 0, at = 0, unit = 0, step = 0, empty = 0, block = 0,
    seq = 0, reason = '', clock = 0, test = false, dirty = false,
  }
  local v = call('GET', c.key)
  if v then
    local kind, level, prev, at, unit, step, empty, block, seq, reason =
      string.match(v, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (.*)$')
    if not kind then error('a newer version of headgate wrote ' .. c.key) end
    c.kind, c.level, c.prev, c.at, c.unit, c.step = kind + 0, level + 0, prev + 0, at + 0, unit + 0, step + 0
    c.empty, c.block, c.seq, c.reason = empty + 0, block + 0, seq + 0, reason
  end
  cells[op.key] = c
  return c
end

local function state(s)
  return {
    kind = s.kind, level = s.level, prev = s.prev, at = s.at, unit = s.unit, step = s.step, empty = s.empty, block = s.block,
  }
end

local function copy(to, from)
  to.kind, to.level, to.prev, to.at = from.kind, from.level, from.prev, from.at
  to.unit, to.step, to.empty, to.block = from.unit, from.step, from.empty, from.block
  return to
end

-- life is for how many ms a key must stay that matters until a time. Test
-- times have little to do with the time by which keys expire: such keys stay
-- for an hour.
local function life(until_, now, test)
  local ms = ceil_div(max(0, until_ - now), 1000) + slack
  if test then ms = max(ms, 3600000) end
  return fmt(int, ms)
end

local TEXT = string.rep(int .. ' ', 9)
local function text(c)
  return fmt(TEXT, c.kind, c.level, c.prev, c.at, c.unit, c.step, c.empty, c.block, c.seq) .. c.reason
end

local function save(c)
  if c.kind == 0 then
    call('DEL', c.key)
  else
    local ms = life(max(c.empty, c.block), c.clock, c.test)
    if c.kind == 3 and c.log then -- the numbers of its log go on from seq
      ms = fmt(int, max(tonumber(ms), call('PTTL', c.log)))
    end
    call('SET', c.key, text(c), 'PX', ms)
  end
end

-- Logs: a sorted set, the score is expires_at, 0 for what does not count. -----

local ENTRY = '^(%d+) (%d+) (%d+) (%d+) (%d)'

local function cost_of(member)
  local _, _, _, cost = string.match(member, ENTRY)
  return tonumber(cost)
end

local function sum(c, after, upto)
  local total = 0
  for _, m in ipairs(call('ZRANGEBYSCORE', c.log, fmt('(%.0f', after), fmt('%.0f', upto))) do
    total = total + cost_of(m)
  end
  return total
end

local function freed(c, after, need)
  local offset = 0
  while true do
    local page = call('ZRANGEBYSCORE', c.log, fmt('(%.0f', after), '+inf', 'WITHSCORES', 'LIMIT', offset, 64)
    for i = 1, #page, 2 do
      need = need - cost_of(page[i])
      if need <= 0 then return tonumber(page[i + 1]) end
    end
    if #page < 128 then return MAX end
    offset = offset + 64
  end
end

-- clear makes what is in the log count no more.
local function clear(c, history)
  if history == 0 then
    call('DEL', c.log)
    return
  end
  for _, m in ipairs(call('ZRANGEBYSCORE', c.log, '(0', '+inf')) do
    call('ZADD', c.log, 0, m)
  end
end

-- prune removes some of the entries that matter no more: twice as many as are
-- added, so that a log does not grow for ever.
local function prune(c, now)
  for _, range in ipairs({ { '0', '0' }, { '(0', fmt('%.0f', c.at) } }) do
    for _, m in ipairs(call('ZRANGEBYSCORE', c.log, range[1], range[2], 'LIMIT', 0, 4)) do
      local _, _, keep = string.match(m, ENTRY)
      if tonumber(keep) > now then break end
      call('ZREM', c.log, m)
    end
  end
  -- What does not count may go before its time, when there is too much of it.
  local over = call('ZCARD', c.log) - most_entries
  if over > 0 then
    over = min(over, call('ZCOUNT', c.log, '-inf', fmt('%.0f', c.at)), 16)
    if over > 0 then call('ZREMRANGEBYRANK', c.log, 0, over - 1) end
  end
end

-- add returns the number of a new entry.
local function add(c, at, expires, keep, cost, granted, id)
  local n = max(store_clock, c.seq + 1)
  c.seq = n
  local member = fmt('%016.0f %.0f %.0f %.0f %d ', n, at, keep, cost, granted) .. id
  call('ZADD', c.log, fmt('%.0f', expires), member)
  c.member = member -- the last one
  local ms = life(keep, at, c.test)
  if call('PTTL', c.log) < tonumber(ms) then call('PEXPIRE', c.log, ms) end
  -- A cell that goes back to what it was needs the entries it had.
  if not on_trial then prune(c, at) end
  return n
end

