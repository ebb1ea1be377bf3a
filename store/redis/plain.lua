-- Plain charges: requests of one Take by the bucket law, without boundaries, of
-- a cell that has the limit's unit and step, is not blocked and remembers no returns. They
-- are decided in place, in the order of the batch. What is not plain goes into
-- rest, and so does all that comes after it on its cell.
--
-- answers are, after the clock, for each op the text of its cell, if all was
-- granted: nobody else has changed that since. Else they are a '=' and the numbers
-- of law.Numbers. Returned is all of it in one string.

local ANSWER = '<c1{out.width * d}'
local keys = KEYS
local answers = { pack('<d', store_clock) }
local waits = {} -- cells of which an op is in rest

local function later(at, key, asked, group, log, note)
  waits[key] = true
  rest = rest or {}
  rest[#rest + 1] = { at = at, key = key, asked = asked, group = group, log = log, note = note, p = false, clock = 0 }
end

local last, pos = 0, runs
while pos <= #packed do
  local asked, n, group, log, note
  asked, n, group, log, note, pos = unpack(RUN, packed, pos)
  local first = last + 1
  last = last + n
  if group > 0 then
    later(first, keys[first], asked, group, log, note)
  else
    local {each ask to partial: *} = unpack('<{ask.partial * d}', packed, asked)
    if ceiling == 0 then ceiling = capacity end
    local need, clock, life, lives = cost * count, now, 0, {}
    if clock == 0 then clock = store_clock else life = 3600000 end -- see life in cells.lua
    local name = fmt(int, unit) .. ' ' .. fmt(int, step)
    local pattern = '^1 (%d+) 0 (%d+) ' .. name .. ' (%d+) 0 0 $'
    local text = '1 ' .. int .. ' 0 ' .. int .. ' ' .. name .. ' ' .. int .. ' 0 0 '
    for i = first, last do
      local key, done, kind, level, at, empty = keys[i], false, 0, 0, 0, 0
      local v = not waits[key] and call('GET', key)
      if v then
        kind, level, at, empty = 1, match(v, pattern)
      end
      if level and not waits[key] and at - clock <= heal then
        level, at, empty = level + 0, at + 0, empty + 0
        {bucket}
        if x <= ceiling - need then
          x = x + need
          empty = drained_at(from, x, drain, step)
          v = fmt(text, x, t, empty)
          local seconds = floor((empty - clock) / 1000000) + 1 -- many have them in common
          local ms = lives[seconds]
          if not ms then
            ms = fmt(int, max(seconds * 1000 + slack, life))
            lives[seconds] = ms
          end
          call('SET', key, v, 'PX', ms)
          answers[i + 1], done = v, true
        elseif partial == 0 and block == 0 then -- the refusal is not to be written down
          local retry = MAX
          if need <= ceiling then
            retry = drain == MAX and empty or min(drained_at(from, x - (ceiling - need), drain, step), empty)
          end
          answers[i + 1] = pack(ANSWER, '=', {out: law => kind, level => level, at => at, unit => kind * unit, empty_at => empty,
            used => x, clock => clock, retry_at => retry, step => kind * step})
          done = true
        end
      end
      if not done then later(i, key, asked, -i, 0, 0) end
    end
  end
end
if not rest then return table.concat(answers) end

