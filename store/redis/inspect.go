package redis

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// Cells implements store.Inspector. Redis has no order of keys: unless q names limit and key, it visits all keys.
func (s *Store) Cells(ctx context.Context, q store.Query) (list []store.Cell, clock int64, err error) {
	if err := s.ready(ctx); err != nil {
		return nil, 0, err
	}
	if err := q.Valid(); err != nil {
		return nil, 0, err
	}
	key := s.catalogKeys("versions")[0] // a list takes the clock of the server with the catalog
	if q.Limit != "" && q.HasKey {
		key = s.cellKey(law.Cell{Limit: q.Limit, Key: q.Key})
	}
	if clock, err = s.clock(ctx, key); err != nil {
		return nil, 0, classifyRead("read the clock", err)
	}
	isWanted := func(c law.Cell) bool {
		return (q.Limit == "" || c.Limit == q.Limit) && (!q.HasKey || c.Key == q.Key) &&
			(q.After == law.Cell{} || c.Compare(q.After) > 0)
	}
	if q.Limit != "" && q.HasKey {
		list, err = s.readCells(ctx, nil, []string{key}, isWanted)
	} else {
		list, err = s.scanCells(ctx, isWanted)
	}
	if err != nil {
		return nil, 0, classifyRead("list cells", err)
	}
	list = slices.DeleteFunc(list, func(c store.Cell) bool { return q.Blocked && c.State.BlockedUntil <= clock })
	slices.SortFunc(list, func(a, b store.Cell) int { return a.Compare(b.Cell) })
	list = slices.CompactFunc(list, func(a, b store.Cell) bool { return a.Cell == b.Cell }) // SCAN may name a key twice
	return list[:min(q.PageSize(), len(list))], clock, nil
}

// clock returns the time of the server that has a key, in microseconds. It runs a script, since the command TIME names
// no key: the client of a Cluster would send TIME to any node, which may be away while the server with the key is not.
func (s *Store) clock(ctx context.Context, key string) (int64, error) {
	return readClock(s.send(ctx, []*call{{script: clockScript, keys: []string{key}}})[0])
}

// readClock reads the answer of the command TIME.
func readClock(answer rueidis.RedisResult) (int64, error) {
	now, err := answer.AsIntSlice()
	if err != nil {
		return 0, err
	}
	if len(now) != 2 {
		return 0, errors.New("the server does not say what time it is")
	}
	return now[0]*1_000_000 + now[1], nil
}

// escapeGlob writes a text so that it matches only itself in a pattern of SCAN.
var escapeGlob = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`)

// scanCells reads the wanted cells of all primaries.
func (s *Store) scanCells(ctx context.Context, isWanted func(law.Cell) bool) (list []store.Cell, err error) {
	err = s.eachPage(ctx, func(keys []string) error {
		list, err = s.readCells(ctx, list, keys, isWanted)
		return err
	})
	return list, err
}

// eachPage calls page with the keys of the cells of all primaries, about 1000 at a time. It may name a key twice. It
// fails if it cannot reach a node: a list without the cells of one primary would look complete.
func (s *Store) eachPage(ctx context.Context, page func(keys []string) error) error {
	pattern := escapeGlob.Replace(s.cfg.Prefix+cellsKind) + "*"
	for _, node := range s.client.Nodes() {
		if s.cluster {
			role, err := node.Do(ctx, node.B().Role().Build()).ToArray()
			if err != nil {
				return err
			}
			if name, err := role[0].ToString(); err != nil || name != "master" {
				continue
			}
		}
		for cursor := uint64(0); ; {
			entry, err := node.Do(ctx, node.B().Scan().Cursor(cursor).Match(pattern).Count(1000).Build()).AsScanEntry()
			if err != nil {
				return err
			}
			if err := page(entry.Elements); err != nil {
				return err
			}
			if cursor = entry.Cursor; cursor == 0 {
				break
			}
		}
	}
	return nil
}

// readCells reads the cells of keys, and appends the wanted ones to list.
func (s *Store) readCells(ctx context.Context, list []store.Cell, keys []string, isWanted func(law.Cell) bool) (
	[]store.Cell, error,
) {
	var cells []store.Cell // in the order of commands
	var commands []rueidis.Completed
	for _, key := range keys {
		if c, ok := s.cellOf(key); ok && isWanted(c) {
			cells = append(cells, store.Cell{Cell: c})
			commands = append(commands, s.client.B().Get().Key(key).Build())
		}
	}
	if len(commands) == 0 {
		return list, nil
	}
	for i, res := range s.client.DoMulti(ctx, commands...) {
		v, err := res.ToString()
		if rueidis.IsRedisNil(err) {
			continue // the cell has expired meanwhile
		} else if err != nil {
			return nil, err
		}
		var ok bool
		if cells[i].State, cells[i].Reason, ok = parseCell(v); ok {
			list = append(list, cells[i])
		}
	}
	return list, nil
}

// Entries implements store.Inspector. Numbers ascend within a cell.
func (s *Store) Entries(ctx context.Context, cell law.Cell, n int) (entries []law.Entry, err error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	if err := store.ValidEntries(cell, n); err != nil {
		return nil, err
	}
	members, err := s.client.Do(ctx, s.client.B().Zrange().Key(s.logKey(cell)).Min("0").Max(
		"-1").Withscores().Build()).AsZScores()
	if err != nil {
		return nil, classifyRead("list entries", err)
	}
	for _, m := range members {
		if e, ok := parseEntry(m.Member, m.Score); ok {
			entries = append(entries, e)
		}
	}
	slices.SortFunc(entries, func(a, b law.Entry) int { return cmp.Compare(b.Number, a.Number) })
	return entries[:min(n, len(entries))], nil
}
