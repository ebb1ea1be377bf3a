package sqlite

import (
	"context"
	"database/sql"
	"strconv"
)

// statements are prepared once, on the one connection that writes.
type statements struct {
	load, save, remove                 *sql.Stmt
	sum, freed, entry                  *sql.Stmt
	add, renew, lower, clear           *sql.Stmt
	findRequests, findRequestOfCell    *sql.Stmt
	insertRequest, updateRequest       *sql.Stmt
	keepIDs, recordReset, eraOfReset   *sql.Stmt
	era, setEra                        *sql.Stmt
	sweepEntries, sweepCells, chunkEnd *sql.Stmt
	sweepRequests, sweepResets         *sql.Stmt
	begin, commit, rollback            *sql.Stmt
	prepared                           []*sql.Stmt // all of the above
}

// prepare prepares all statements on a connection.
func (st *statements) prepare(ctx context.Context, conn *sql.Conn) error {
	for _, p := range []struct {
		stmt **sql.Stmt
		text string
	}{
		{&st.load, `select law, level, prev, at, unit, step, empty_at, blocked_until, reason
			from cells where limit_name = ? and key = ?`},
		{&st.save, `insert into cells
			(limit_name, key, law, level, prev, at, unit, step, empty_at, blocked_until, reason, ids_until)
			values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
			on conflict (limit_name, key) do update set law = excluded.law, level = excluded.level, prev = excluded.prev,
			at = excluded.at, unit = excluded.unit, step = excluded.step, empty_at = excluded.empty_at,
			blocked_until = excluded.blocked_until, reason = excluded.reason,
			ids_until = max(ids_until, excluded.ids_until)`},
		{&st.remove, `delete from cells where limit_name = ? and key = ?`},
		{&st.sum, `select coalesce(sum(cost), 0) from entries
			where limit_name = ? and key = ? and granted and expires_at > ? and expires_at <= ?`},
		{&st.freed, `select expires_at, cost from entries
			where limit_name = ? and key = ? and granted and expires_at > ? order by expires_at, number`},
		{&st.entry, `select cost, expires_at from entries
			where number = ? and limit_name = ? and key = ? and granted and expires_at > 0`},
		{&st.lower, `update entries set cost = cost - ?1, expires_at = case when cost > ?1 then expires_at else 0 end
			where number = ?2`},
		{&st.add, `insert into entries (limit_name, key, id, at, expires_at, keep_until, cost, granted)
			values (?, ?, ?, ?, ?, ?, ?, ?)`},
		{&st.clear, `update entries set expires_at = 0 where limit_name = ? and key = ? and expires_at > 0`},
		{&st.renew, `update entries set expires_at = ?1, keep_until = max(keep_until, ?1) where number = ?2`},
		{&st.findRequests, `select * from (select number, several, charges from requests where id = ?1 and several = 0 limit ` +
			strconv.Itoa(maxSingles+1) + `) union all select number, several, charges from requests where id = ?1 and several = 1`},
		{&st.findRequestOfCell, `select number, several, charges from requests
			where id = ? and several = 0 and home_limit = ? and home_key = ?`},
		{&st.insertRequest, `insert into requests (id, several, home_limit, home_key, charges, keep_until) values (?, ?, ?, ?, ?, ?)`},
		{&st.updateRequest, `update requests set charges = ?2, keep_until = ?3 where number = ?1`},
		{&st.keepIDs, `update cells set ids_until = ?3 where limit_name = ?1 and key = ?2 and ids_until < ?3`},
		{&st.era, `select coalesce((select value from settings where name = 'resets'), 0), exists (select 1 from resets)`},
		{&st.setEra, `insert or replace into settings (name, value) values ('resets', ?)`},
		{&st.recordReset, `insert into resets (limit_name, key, era, keep_until)
			select limit_name, key, ?3, ids_until from cells where limit_name = ?1 and key = ?2 and ids_until > 0
			on conflict (limit_name, key) do update set era = excluded.era, keep_until = max(keep_until, excluded.keep_until)`},
		{&st.eraOfReset, `select era from resets where limit_name = ? and key = ?`},
		{&st.sweepRequests, `delete from requests where number in (select number from requests where keep_until <= ?1 limit ?2)`},
		{&st.sweepResets, `delete from resets where keep_until <= ?1`},
		{&st.sweepEntries, `delete from entries where number in (
			select e.number from entries e left join cells c on c.limit_name = e.limit_name and c.key = e.key
			where e.keep_until <= ?1 and (c.key is null or e.expires_at <= c.at or c.empty_at <= ?1) limit ?2)`},
		{&st.chunkEnd, `select limit_name, key from cells where (limit_name, key) > (?1, ?2) order by limit_name, key limit 1 offset ?3`},
		{&st.sweepCells, `delete from cells where (limit_name, key) in (
			select c.limit_name, c.key from cells c where (c.limit_name, c.key) > (?1, ?2) and (c.limit_name, c.key) <= (?3, ?4)
			and ` + deadCondition("?5") + ` limit ?6)`},
		{&st.begin, `begin immediate`},
		{&st.commit, `commit`},
		{&st.rollback, `rollback`},
	} {
		stmt, err := conn.PrepareContext(ctx, p.text) //nolint:sqlclosecheck // close does, all at once
		if err != nil {
			return err
		}
		*p.stmt = stmt
		st.prepared = append(st.prepared, stmt)
	}
	return nil
}

// deadCondition returns the condition under which a sweep removes the cell c. now is an expression in SQL.
func deadCondition(now string) string {
	return "c.empty_at <= " + now + " and c.blocked_until <= " + now + " and c.ids_until <= " + now +
		" and not exists (select 1 from entries e where e.limit_name = c.limit_name and e.key = c.key)"
}

func (st *statements) close() {
	for _, s := range st.prepared {
		s.Close()
	}
}
