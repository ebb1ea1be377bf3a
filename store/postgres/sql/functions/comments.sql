-- What people see of the schema in psql and other tools: \d+ and \df+.

comment on schema headgate is 'Headgate, a rate limiter. Made by headgate migrate.';
comment on schema headgate_internal is 'What the functions of schema headgate call. Made by headgate migrate.';

comment on table headgate.schema_version is 'The migrations of tables that were applied.';
comment on table headgate.installed is 'Which functions are installed: one row.';
comment on column headgate.installed.state is 'What the rows of all tables mean.';
comment on column headgate.installed.layout is 'The number in the names of the functions that programs call.';
comment on column headgate.installed.revision is 'Of the texts of all functions.';
comment on column headgate.installed.fingerprint is 'Of the texts of all functions, as the program has them.';
comment on column headgate.installed.digest is 'Of the functions in names, as the server has them.';
comment on column headgate.installed.names is 'The functions that were installed.';

comment on table headgate.cells is 'What each key uses of each limit. headgate.levels shows it for people. Times are microseconds since 1970.';
comment on column headgate.cells.limit_name is 'The name of the limit, or its notation.';
comment on column headgate.cells.key is 'Who the limit is applied to.';
comment on column headgate.cells.law is '1: a level that drains, 2: counters of two windows, 3: a log of entries; 0: no charge was made.';
comment on column headgate.cells.level is 'Credits in use at the time at.';
comment on column headgate.cells.prev is 'Credits of the window before, or the sum ever returned.';
comment on column headgate.cells.at is 'The time that level holds for.';
comment on column headgate.cells.unit is 'Credits to one unit of cost.';
comment on column headgate.cells.step is 'Microseconds of a step of the limit that charged last.';
comment on column headgate.cells.empty_at is 'From here on nothing is in use.';
comment on column headgate.cells.blocked_until is 'Everything is refused before this time.';
comment on column headgate.cells.reason is 'Why it is blocked.';
comment on column headgate.cells.generation is 'A number of its own, by which headgate.admissions names it. A reset gives it another.';
comment on column headgate.cells.ids_until is 'Before this time the cell remembers requests with an id.';

comment on table headgate.entries is 'The attempts of limits that keep a log. headgate.history shows them for people.';
comment on column headgate.entries.id is 'Of the request, where it has one.';
comment on column headgate.entries.expires_at is 'The attempt counts before this time; 0: it does not count.';
comment on column headgate.entries.keep_until is 'From here on a sweep may remove the row.';
comment on column headgate.entries.cost is 'In credits.';
comment on column headgate.entries.granted is 'It was allowed.';

comment on table headgate.limits is 'The limits by name. A row may be inserted, changed and deleted by hand: each transaction is a version in headgate.versions.';
comment on column headgate.limits.rule is 'The limit in one line, such as token-bucket 5/1m; or renamed from NAME, of another row. It is checked.';
comment on column headgate.limits.compiled is 'What the rule means. A trigger fills it in.';
comment on column headgate.limits.origin is 'What wrote it: file, zone or bucket; empty: somebody did.';
comment on column headgate.limits.retired is 'The file that defined it does not have it any more. It still decides.';
comment on column headgate.limits.varies is 'The sum of 1 if a key has an override, 2 if a prefix has one, 4 if a plan names the limit. Triggers keep it.';

comment on table headgate.notations is 'One-line limits that callers have used, compiled. Rows may be deleted at any time.';
comment on column headgate.notations.compiled is 'What the rule means. A trigger fills it in.';

comment on table headgate.zones is 'Limits for check_velocity: rate attempts in any window_seconds. Each is the limit zone.ID too.';
comment on column headgate.zones.rate is 'How many attempts may pass in a window.';
comment on column headgate.zones.history_days is 'For how long attempts are remembered.';
comment on table headgate.buckets is 'Buckets for request_token. Each is the limit bucket.ID too, where the id can be part of a name.';
comment on column headgate.buckets.capacity is 'Tokens in a full bucket.';
comment on column headgate.buckets.refill_seconds is 'How long after its first token the bucket is full again.';

comment on table headgate.admissions is 'Requests with an id that were admitted, so that each is charged once.';
comment on column headgate.admissions.home is 'The first of cells; negative if there are more.';
comment on column headgate.admissions.keep_until is 'From here on a sweep may remove the row.';
comment on column headgate.admissions.cells is 'The generation of each cell that was charged; the other arrays have the same order.';
comment on column headgate.admissions.prints is 'Of all charges of the request.';
comment on column headgate.admissions.keeps is 'From here on the cell has forgotten the id.';
comment on column headgate.admissions.costs is 'Credits charged to the cell in all.';
comment on column headgate.admissions.settled is 'Credits that it cost in the end; -1: not known yet; -2: it was cancelled.';
comment on column headgate.admissions.rules is 'Numbers of the limit at that time.';
comment on column headgate.admissions.outcomes is 'Numbers of the first answer.';
comment on column headgate.admissions.extensions is 'Numbers of the last extension; null: there was none.';

comment on table headgate.catalog is 'Plans, overrides, and files that were applied. Rows may be changed by hand: each transaction is a version.';
comment on column headgate.catalog.kind is 'What the row is.';
comment on column headgate.catalog.name is 'plan: its name. override, prefix-override: the limit. file: its hash. Else empty.';
comment on column headgate.catalog.key is 'plan: the limit. override, assignment: the key. prefix-override, prefix-assignment: what keys begin with.';
comment on column headgate.catalog.text is 'plan, override, prefix-override: the limit in one line. assignment, prefix-assignment: the plan.';
comment on column headgate.catalog.note is 'Why, or which file.';
comment on column headgate.catalog.origin is 'file if a file wrote it.';
comment on column headgate.catalog.until is 'The row counts before this time, in microseconds since 1970; 0: for ever.';
comment on column headgate.catalog.retired is 'The file that defined it does not have it any more.';
comment on column headgate.catalog.compiled is 'What the text means. A trigger fills it in.';
comment on table headgate.catalog_version is 'The number of the newest version of limits and catalog.';
comment on table headgate.versions is 'Changes of limits and catalog: when, by whom and why. SET LOCAL headgate.reason says why.';
comment on column headgate.versions.at is 'In microseconds since 1970.';
comment on table headgate.changes is 'What each version has changed.';
comment on table headgate.actions is 'What was done to keys by hand: blocks, resets and refunds, the newest 10,000.';
comment on column headgate.actions.number is 'Of a later one it is greater.';
comment on column headgate.actions.at is 'In microseconds since 1970.';
comment on column headgate.actions.verb is 'block, unblock, reset or refund.';
comment on column headgate.actions.lasts is 'Microseconds of a block.';
comment on table headgate.granted is 'Users that were given a role by headgate.grant_role.';

comment on type headgate.compiled is 'What a limit in one line means.';
comment on type headgate.decision is 'The answer of headgate.take and headgate.check.';

comment on view headgate.history is 'Attempts, allowed or refused, of limits that keep a history.';
comment on view headgate.blocked_per_hour is 'Refused attempts for each limit and hour, of limits that keep a history.';
comment on view headgate.levels is 'What each key uses of each limit now, and who is blocked.';
comment on column headgate.levels.used is 'What is in use now, in units of cost.';
comment on column headgate.levels.updated_at is 'When the row was written last; of a fixed window, when the window began.';
comment on column headgate.levels.empty_at is 'From here on nothing is in use.';
comment on column headgate.levels.blocked_until is 'Everything is refused before this time; null: the key is not blocked.';
comment on column headgate.levels.capacity is 'How much can be in use, by the override or plan of the key if it has one; null: the limit is not known here.';
comment on column headgate.levels.remaining is 'Whole units that could pass now. headgate.check(limit, key) says when more can.';
comment on column headgate.levels.percent is 'What is in use, of a hundred.';

comment on function headgate.take(text, text, numeric) is 'Takes cost from a limit, by its name or in one line, for a key.';
comment on function headgate.check(text, text, numeric) is 'Tells whether headgate.take would admit the cost, and what could pass now.';
comment on function headgate.take_once(text, text, text, numeric, interval) is 'headgate.take, charged once however often it is called with the id.';
comment on function headgate.extend(text, text, text, numeric, interval) is 'Charges more under an id, so that it is total in all, or nothing. charged is what is charged then.';
comment on function headgate.settle(text, text, text, numeric) is 'Sets the cost of the charge under an id. Returns what was given back; below 0: charged in addition.';
comment on function headgate.cancel(text, text, text) is 'Takes back the charge under an id. Returns how much of it.';
comment on function headgate.debit(text, text, text, numeric, interval) is 'Charges work that is done already, under an id, whatever the level.';
comment on function headgate.reserve(text, text, numeric, interval, text, interval) is 'Takes cost now for a start at most wait later.';
comment on function headgate.take_all(text[], text[], numeric[]) is 'Takes several charges, all or none. One row for each; refused says which would not have passed.';
comment on function headgate.take_first(text[], text[], numeric[], int[]) is 'Takes all charges of the first alternative that passes as a whole. One row for each charge that was looked at.';
comment on function headgate.take_first_once(text, text[], text[], numeric[], int[], interval) is 'headgate.take_first, charged once however often it is called with the id.';
comment on function headgate.take_all_once(text, text[], text[], numeric[], interval) is 'headgate.take_all, charged once however often it is called with the id.';
comment on function headgate.extend_all(text, text[], text[], numeric[], interval) is 'Charges more under an id, all or none: costs are what the charges are in all. One row for each, with charged.';
comment on function headgate.reserve_all(text[], text[], numeric[], interval, text, interval) is 'Takes several charges now, all or none, for a start in common at most wait later.';
comment on function headgate.settle_all(text, text[], text[], numeric[]) is 'Sets the costs of charges under an id. Returns what was given back of each; below 0: charged in addition.';
comment on function headgate.take_up_to(text, text, numeric) is 'Takes as much of a cost as fits.';
comment on function headgate.take_float(text, text, double precision) is 'headgate.take for a cost in floating point: the decimal that it prints as.';
comment on function headgate.enforce(text, text, numeric) is 'headgate.take, but an error with SQLSTATE PT429 where that refuses. For PostgREST.';
comment on function headgate.acquire(text, text, numeric) is 'Holds cost of a concurrency limit: a lease.';
comment on function headgate.renew(text, text, bigint) is 'Lets a lease last from now on. False: it is lost.';
comment on function headgate.release(text, text, bigint) is 'Ends a lease. False: it was lost before.';
comment on function headgate.override(text, text, text, interval, text) is 'Gives one key another rule than the limit, for some time or until it is removed by a null rule. Returns the version of the catalog.';
comment on function headgate.set_plan(text, text, interval, text) is 'Gives a key a plan, for some time or until it is removed by a null plan. Returns the version of the catalog.';
comment on function headgate.unblock(text, text) is 'Ends the block of a key. Returns whether it was blocked.';
comment on function headgate.block(text, text, interval, text) is 'Refuses everything of a key for a while; a zero interval lifts that.';
comment on function headgate.reset(text, text) is 'Forgets what a key has used of a limit, and its block.';
comment on function headgate.attempts(text, text, int) is 'The last attempts of a key, newest first, of a limit that keeps a history.';
comment on function headgate.limit_of(text, text) is 'Which limit holds for a key now, why it is that one, and until when.';
comment on function headgate.sweep(int) is 'Removes up to so many rows that can no longer refuse a request. Returns how many.';
comment on function headgate.grant_role(text, text) is 'Gives a user the role app or service.';
