-- The laws in Lua: package law line by line, with its names, here and in the files
-- after it. Change both or neither. A script is atomic, but what it did is not
-- undone when it fails half way: what can be wrong with an op was found before it
-- was sent.
--
-- Lua's numbers are doubles. Every value and product here stays below 2^53, so
-- that they are exact; math.floor(a / b) is exact too, as long as a is below
-- 2^53. They are written with %.0f, since tostring rounds to 14 digits.
--
-- This file is what all scripts begin with: arithmetic, cells and logs. After it
-- come ops.lua, laws.lua, in scripts that give something back returns.lua, and
-- apply.lua or giveback.lua. KEYS are for each cell its key and that of its log;
-- ARGV begin with the slack in ms and the most entries of a history.

local MAX = 9007199254740991
local on_trial = false -- apply.lua: what is done may have to be undone
local floor, max, min, fmt = math.floor, math.max, math.min, string.format

local slack, most_entries = tonumber(ARGV[1]), tonumber(ARGV[2])
local next_arg = 3
local function arg()
  local v = tonumber(ARGV[next_arg])
  next_arg = next_arg + 1
  return v
end

local time = redis.call('TIME')
local store_clock = time[1] * 1000000 + time[2]

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
local function cell(i)
  local c = cells[i]
  if c then return c end
  c = { key = KEYS[2 * i - 1], log = KEYS[2 * i], kind = 0, level = 0, prev = 0, at = 0, unit = 0, empty = 0, block = 0, seq = 0, reason = '' }
  local v = redis.call('GET', c.key)
  if v then
    local kind, level, prev, at, unit, empty, block, seq, reason =
      string.match(v, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (.*)$')
    c.kind, c.level, c.prev, c.at = tonumber(kind), tonumber(level), tonumber(prev), tonumber(at)
    c.unit, c.empty, c.block, c.seq, c.reason = tonumber(unit), tonumber(empty), tonumber(block), tonumber(seq), reason
  end
  cells[i] = c
  return c
end

local function copy(to, from)
  to.kind, to.level, to.prev, to.at = from.kind, from.level, from.prev, from.at
  to.unit, to.empty, to.block = from.unit, from.empty, from.block
  return to
end

-- life is for how many ms a key must stay that matters until a time. Test
-- times have little to do with the time by which keys expire: such keys stay
-- for an hour.
local function life(until_, now, test)
  local ms = ceil_div(max(0, until_ - now), 1000) + slack
  if test then ms = max(ms, 3600000) end
  return fmt('%.0f', ms)
end

local function text(c)
  return fmt('%.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f ', c.kind, c.level, c.prev, c.at, c.unit, c.empty, c.block, c.seq) .. c.reason
end

local function save(c)
  if c.kind == 0 then
    redis.call('DEL', c.key)
  else
    local ms = life(max(c.empty, c.block), c.clock, c.test)
    if c.kind == 3 then -- the numbers of its log go on from seq
      ms = fmt('%.0f', max(tonumber(ms), redis.call('PTTL', c.log)))
    end
    redis.call('SET', c.key, text(c), 'PX', ms)
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
  for _, m in ipairs(redis.call('ZRANGEBYSCORE', c.log, fmt('(%.0f', after), fmt('%.0f', upto))) do
    total = total + cost_of(m)
  end
  return total
end

local function freed(c, after, need)
  local offset = 0
  while true do
    local page = redis.call('ZRANGEBYSCORE', c.log, fmt('(%.0f', after), '+inf', 'WITHSCORES', 'LIMIT', offset, 64)
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
    redis.call('DEL', c.log)
    return
  end
  for _, m in ipairs(redis.call('ZRANGEBYSCORE', c.log, '(0', '+inf')) do
    redis.call('ZADD', c.log, 0, m)
  end
end

-- prune removes some of the entries that matter no more: twice as many as are
-- added, so that a log does not grow for ever.
local function prune(c, now)
  for _, range in ipairs({ { '0', '0' }, { '(0', fmt('%.0f', c.at) } }) do
    for _, m in ipairs(redis.call('ZRANGEBYSCORE', c.log, range[1], range[2], 'LIMIT', 0, 4)) do
      local _, _, keep = string.match(m, ENTRY)
      if tonumber(keep) > now then break end
      redis.call('ZREM', c.log, m)
    end
  end
  -- What does not count may go before its time, when there is too much of it.
  local over = redis.call('ZCARD', c.log) - most_entries
  if over > 0 then
    over = min(over, redis.call('ZCOUNT', c.log, '-inf', fmt('%.0f', c.at)), 16)
    if over > 0 then redis.call('ZREMRANGEBYRANK', c.log, 0, over - 1) end
  end
end

local function add(c, at, expires, keep, cost, granted, id)
  local n = max(store_clock, c.seq + 1)
  c.seq = n
  local member = fmt('%016.0f %.0f %.0f %.0f %d ', n, at, keep, cost, granted) .. id
  redis.call('ZADD', c.log, fmt('%.0f', expires), member)
  local ms = life(keep, at, c.test)
  if redis.call('PTTL', c.log) < tonumber(ms) then redis.call('PEXPIRE', c.log, ms) end
  -- A cell that goes back to what it was needs the entries it had.
  if not on_trial then prune(c, at) end
  return n
end

