-- Plain requests: of one charge or of several, all or none, of charges by the bucket law, without boundaries, of a cell
-- that has the limit's unit and step, is not blocked and remembers no returns. Each
-- cell is read once and written once, and what is in use in it is worked out once: all charges of a
-- limit are decided at one time, so those that are granted leave one time and a level that is
-- higher by the cost of each (see TakePlain of package law). What is not plain goes into rest, and
-- so does all that comes after it on its cells.
--
-- KEYS are the cells of plain requests, each once, then for each other op the key of its cell; then
-- as in head.lua. ARGV[2] has the number of the cell, from 1, of each charge of plain requests. A
-- run of plain requests has minus the number of their charges in the place of a group, and as many
-- ops as there are requests; after it stand the places of what the second charge and those after it
-- ask.
--
-- answers are the clock, a sign of each plain request, and of each cell what it was, with ';'
-- between them: nothing if there was none, '!' if it is not plain. From that package law tells the
-- outcomes. '+' is for a request that was granted, '-' for one that was refused and has written
-- nothing, '?' for one in rest. The answers about rest come after that, in the order of the batch.

local keys = KEYS

local function later(key, asked, group, log, note)
  rest = rest or {}
  rest[#rest + 1] = { at = #rest + 1, key = key, asked = asked, group = group, log = log, note = note, p = false, clock = 0 }
end

do
  local asks = {}
  local function read(asked)
    local p = {}
    {each ask: p.*} = unpack('<{ask.width * d}', packed, asked)
    p.need, p.lives, p.life = p.cost * p.count, {}, 0
    p.most = (p.ceiling > 0 and p.ceiling or p.capacity) - p.need
    p.clock = store_clock
    if p.now > 0 then p.clock, p.life = p.now, 3600000 end -- see life in cells.lua
    p.terms = fmt(int, p.unit) .. ' ' .. fmt(int, p.step)
    p.text = '1 ' .. int .. ' 0 ' .. int .. ' ' .. p.terms .. ' ' .. int .. ' 0 0 '
    asks[asked] = p
    return p
  end

  -- alike tells whether two limits find the same in a cell.
  local function alike(p, q)
    return p.unit == q.unit and p.step == q.step and p.drain == q.drain and p.anchor == q.anchor and p.heal == q.heal
      and p.now == q.now
  end

  local cell_of, charges, cells = {}, 0, 0 -- the cell of each charge, and how many there are
  for from = 1, #ARGV[2], 1024 do
    local n = min(256, (#ARGV[2] - from + 1) / 4)
    local part = { unpack('<' .. string.rep('I4', n), ARGV[2], from) }
    for k = 1, n do
      local c = part[k]
      cell_of[charges + k] = c
      if c > cells then cells = c end
    end
    charges = charges + n
  end

  -- Of each cell: what is in use, or false if it waits for rest, where closed has it; what was in
  -- use before the batch; as of when; from where the steps are counted in which it drains; by which
  -- limit that was worked out; the text of the cell.
  local usage, closed, was, times, origins, limits_by, texts = {}, {}, {}, {}, {}, {}, {}
  local signs = {}

  local function load(c, p)
    local v, clock, level, at, empty = call('GET', keys[c]), p.clock, 0, 0, 0
    if v then
      local terms
      level, at, terms, empty = match(v, '^1 (%d+) 0 (%d+) (%d+ %d+) (%d+) 0 0 $')
      if terms == p.terms then level, at, empty = level + 0, at + 0, empty + 0 else level = nil end
    end
    if not level or at - clock > p.heal then
      texts[c], usage[c] = '!', false
      return false
    end
    local anchor, step, drain = p.anchor, p.step, p.drain
    {bucket}
    texts[c], usage[c], was[c], times[c], origins[c], limits_by[c] = v or '', x, x, t, from, p
    return x
  end

  local pos, last, others, number = runs, 0, cells, 0
  while pos <= #packed do
    local asked, n, group, log, note
    asked, n, group, log, note, pos = unpack(RUN, packed, pos)
    if group > 0 then
      others = others + 1
      later(keys[others], asked, group, log, note)
    else
      local width, places, shape = -group, { asked }, { asks[asked] or read(asked) }
      local writes = shape[1].partial + shape[1].block > 0 -- a refusal, or a part that is granted
      for k = 2, width do
        places[k], pos = unpack('<d', packed, pos)
        shape[k] = asks[places[k]] or read(places[k])
        writes = writes or shape[k].block > 0
      end
      for _ = 1, n do
        local taken, plainly, fits = 0, true, true -- taken: how many of its charges usage has
        for k = 1, width do
          local c, p = cell_of[last + k], shape[k]
          local x = usage[c]
          if x == nil then x = load(c, p) end
          if not x or limits_by[c] ~= p and not alike(limits_by[c], p) then
            plainly = false
          elseif plainly and fits then
            if x <= p.most then
              usage[c], taken = x + p.need, k
            else
              fits = false
            end
          end
        end
        number = number + 1
        if plainly and fits then
          signs[number] = '+'
        else
          for k = 1, taken do
            local c = cell_of[last + k]
            usage[c] = usage[c] - shape[k].need
          end
          if plainly and not writes then
            signs[number] = '-'
          else
            signs[number] = '?'
            for k = 1, width do
              local c = cell_of[last + k]
              closed[c] = usage[c] or closed[c]
              usage[c] = false
              later(keys[c], places[k], -number, 0, 0)
            end
          end
        end
        last = last + width
      end
    end
  end

  for c = 1, cells do
    local x, p = usage[c] or closed[c], limits_by[c]
    if x and x > was[c] then
      local empty = drained_at(origins[c], x, p.drain, p.step)
      local seconds = floor((empty - p.clock) / 1000000) + 1 -- many have them in common
      local ms = p.lives[seconds]
      if not ms then
        ms = fmt(int, max(seconds * 1000 + slack, p.life))
        p.lives[seconds] = ms
      end
      call('SET', keys[c], fmt(p.text, x, times[c], empty), 'PX', ms)
    end
  end
  answers = { pack('<d', store_clock) .. table.concat(signs) .. table.concat(texts, ';') }
end
if not rest then
  return answers[1]
end

