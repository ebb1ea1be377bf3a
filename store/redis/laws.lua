-- What the scripts share of the laws: what is in use, and what a charge writes.

local function after(p, t, credits)
  if credits <= 0 then return t end
  if p.anchor == 1 then
    t = t - t % p.step
  elseif p.anchor == 2 then
    if p.window0 > t then return p.window0 end
    if p.window1 > t then return p.window1 end
    return p.window2 > t and p.window2 or p.window3
  end
  return add_steps(t, ceil_div(credits, p.drain), p.step)
end

local function is_stale(p, now)
  return p.kind == 1 and p.anchor == 2 and (now < p.window0 or now >= p.window3) or
    now < p.since or p.lapse ~= 0 and now >= p.lapse
end

-- grain is the width of the share by which the window before counts.
local function grain(w)
  local q = ceil_div(w, 1048576)
  if w % q ~= 0 and w % 1000000 == 0 then q = w / 1000000 end
  return q
end

-- empty_at returns when neither window counts any more; 0 if neither does now.
local function empty_at(u, w)
  if u.level > 0 then return u.start + 2 * w end
  if u.prev > 0 then return u.start + w end
  return 0
end

-- drained is bucket of package law: the credits in use at now, and the time that
-- they hold for.
local function drained(p, level, at, now)
  local steps, t = 0, now
  if p.anchor == 0 then
    steps = floor((now - at) / p.step)
    t = at + steps * p.step
  elseif p.anchor == 1 then
    t = max(at, now - now % p.step)
    steps = ceil_div(t - at, p.step)
  else
    local last = p.window0
    if p.window2 <= now then last = p.window2 elseif p.window1 <= now then last = p.window1 end
    t = max(at, last)
    if t > at then steps = 1 end
  end
  if steps >= ceil_div(level, p.drain) then return 0, p.anchor == 0 and now or t end
  return level - p.drain * steps, t
end

-- is_fixed_window tells whether a bucket forgets all at once.
local function is_fixed_window(p)
  return p.kind == 1 and (p.anchor == 2 or p.drain == MAX)
end

-- use returns what a law finds in a cell, brought forward to b.now. nolog: what
-- is in the log counts no more.
local function use(b, c, p, nolog)
  local u, now = { x = 0, t = 0, start = 0, prev = 0, level = 0, q = 0, f = 0 }, b.now
  if p.kind == 1 then
    u.x, u.t = drained(p, b.level, b.at, now)
    if is_fixed_window(p) and b.level > 0 then -- all of it counts until it is empty
      u.x = b.level
      if p.anchor == 0 then u.t = b.at + floor((now - b.at) / p.step) * p.step end
    end
  elseif p.kind == 2 then
    local w = p.step
    u.start = now - now % w
    u.prev, u.level = 0, 0
    local began = b.at - b.at % w
    if began == u.start then
      u.prev, u.level = b.prev, b.level
    elseif began == u.start - w then
      u.prev = b.level
    end
    u.q = grain(w)
    u.f = floor(w / u.q)
    u.x = ceil_div(u.prev * min(u.f, ceil_div(w - (now - u.start), u.q)), u.f) + u.level
  else
    u.x = b.carry
    if not b.clear then
      u.x = 0
      if now < b.empty and b.level > 0 then
        u.x = b.level
        if now > b.at and not nolog then u.x = max(0, b.level - sum(c, b.at, now)) end
      end
    end
  end
  return u
end

-- charge writes the usage into a state.
local function charge(u, p, s, now)
  s.step = p.step
  if p.kind == 1 then
    local empty = after(p, u.t, u.x)
    if s.prev > 0 then empty = max(empty, s.empty) end -- see correct
    s.level, s.at, s.empty = u.x, u.t, empty
  elseif p.kind == 2 then
    s.prev, s.level, s.at = u.prev, u.level, now
    s.empty = empty_at(u, p.step)
  else
    s.level, s.at = u.x, now
    s.empty = max(s.empty, now + p.step)
  end
end

