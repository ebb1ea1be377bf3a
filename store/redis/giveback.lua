-- Gives back what a request took on trial in this slot, since another slot has
-- refused it. A cell that nobody has touched meanwhile becomes what it was; from
-- one that was, as much is taken as the return rule allows (docs/design.md).
--
-- ARGV go on with, for each cell, what it was ('' for none) and what the trial
-- made of it; then the limits of the charges and the charges: see giveBack in
-- trial.go. Returns the state of each charge's cell.

local texts = {}
for i = 1, #KEYS / 2 do
  texts[i] = { before = ARGV[next_arg], after = ARGV[next_arg + 1] }
  next_arg = next_arg + 2
end

local function parsed(v)
  local kind, level, prev, at, unit, empty = string.match(v, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+)')
  return { kind = tonumber(kind), level = tonumber(level), prev = tonumber(prev), at = tonumber(at), unit = tonumber(unit), empty = tonumber(empty) }
end

-- withdraw makes the entry of a charge one of a refused attempt, or removes it
-- where no history is asked for. It returns whether the entry still counted.
local function withdraw(c, op)
  for _, m in ipairs(redis.call('ZRANGEBYSCORE', c.log, fmt('%.0f', op.expires), fmt('%.0f', op.expires))) do
    local number, at, keep, cost = string.match(m, ENTRY)
    if tonumber(number) == op.entry then
      redis.call('ZREM', c.log, m)
      if op.history > 0 then
        redis.call('ZADD', c.log, 0, fmt('%016.0f %.0f %.0f %.0f 0 ', op.entry, tonumber(at), tonumber(keep), tonumber(cost)) .. op.note)
      end
      return true
    end
  end
  return false
end

-- boundaries counts the steps of a bucket in (now, until].
local function boundaries(op, c, now, upto)
  if upto <= now then return 0 end
  if op.anchor == 2 then return 1 end -- its windows empty in one step
  local from = op.anchor == 1 and 0 or c.at
  return floor((upto - from) / op.step) - floor((now - from) / op.step)
end

-- give_back follows the return rule for one charge.
local function give_back(c, op, made)
  local now = max(c.clock, c.at)
  if c.kind ~= made.kind or c.unit ~= made.unit then return end -- the limit has changed
  if c.kind == 1 then
    local steps = boundaries(op, c, now, made.empty)
    steps = steps - ceil_div(c.prev - made.prev, op.drain) -- for what was returned since
    local back = steps > 0 and op.cost or 0
    if steps > 0 and steps < ceil_div(op.cost, op.drain) then back = steps * op.drain end
    back = min(back, c.level)
    c.level, c.prev = c.level - back, min(MAX, c.prev + back)
  elseif c.kind == 2 then
    if now - now % op.step == made.at - made.at % op.step then c.level = max(0, c.level - op.cost) end
  elseif op.counted and op.expires > c.at then
    c.level = max(0, c.level - op.cost)
  end
end

local answers = {}
for i = 1, arg() do
  local op = { cell = arg(), anchor = arg(), step = arg(), drain = arg(), history = arg(), cost = arg(), now = arg(), entry = arg(), expires = arg() }
  op.note = ARGV[next_arg]
  next_arg = next_arg + 1
  local t, c = texts[op.cell], cell(op.cell)
  c.clock, c.test = op.now > 0 and op.now or store_clock, op.now > 0
  if op.entry > 0 then op.counted = withdraw(c, op) end
  if not t.untouched and not t.touched then
    t.untouched = redis.call('GET', c.key) == t.after
    t.touched = not t.untouched
  end
  if t.untouched then
    if t.before == '' then
      c.kind, c.level, c.prev, c.at, c.unit, c.empty, c.block = 0, 0, 0, 0, 0, 0, 0
      redis.call('DEL', c.key)
    else
      redis.call('SET', c.key, t.before, 'KEEPTTL')
      cells[op.cell] = nil
      c = cell(op.cell)
    end
  else
    give_back(c, op, parsed(t.after))
    save(c)
  end
  local o = (i - 1) * 7
  answers[o + 1], answers[o + 2], answers[o + 3], answers[o + 4] = c.kind, c.level, c.prev, c.at
  answers[o + 5], answers[o + 6], answers[o + 7] = c.unit, c.empty, c.block
end
return answers
