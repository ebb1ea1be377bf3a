package sqlite

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/headgate/headgate/store"
)

// Examine implements store.Doctor.
func (s *Store) Examine(ctx context.Context) ([]store.Finding, error) {
	var f store.Findings
	db, release, err := s.acquireReader(ctx)
	if err != nil {
		if errors.Is(err, store.ErrClosed) || errors.Is(err, ctx.Err()) {
			return f, err
		}
		f.Add(store.Wrong, "file", err.Error(), "stop all programs that use the file, and start them again")
		return f, nil
	}
	defer release()
	scan := func(query string, to any) error { return db.QueryRowContext(ctx, query).Scan(to) }
	var version, journal, quick string
	var pages, free, size int64
	var unswept int
	for _, q := range []struct {
		query string
		to    any
	}{
		{"select sqlite_version()", &version},
		{"pragma journal_mode", &journal},
		{"pragma quick_check(1)", &quick},
		{"pragma page_count", &pages},
		{"pragma freelist_count", &free},
		{"pragma page_size", &size},
	} {
		if err := scan(q.query, q.to); err != nil {
			return f, classify("examine", err)
		}
	}
	f.OK("version", "SQLite %s, %d MB of which %d MB are free", version, pages*size>>20, free*size>>20)
	mode := "the journal mode is " + journal
	f.Expect(journal == "wal" || journal == "memory", "journal", mode,
		store.Wrong, mode+": readers and writers wait for each other",
		"put the file on a local disk; file systems of a network cannot have a write-ahead log")
	f.Expect(quick == "ok", "integrity", "the file is not damaged",
		store.Wrong, "the file is damaged: "+quick, "restore it from a backup")
	f.Expect(s.synchronous != "normal", "durability", "charges are on the disk before they are answered",
		store.Note, "synchronous is normal: a loss of power forgets what was admitted since the last checkpoint",
		"leave ?synchronous=normal out of the URL")
	tenMinutesAgo := strconv.FormatInt(s.clock()-600_000_000, 10)
	if err := scan(fmt.Sprintf("select count(*) from (select 1 from cells c where %s limit %d)",
		deadCondition(tenMinutesAgo), store.MostUnswept+1), &unswept); err != nil {
		return f, classify("examine", err)
	}
	f.Sweeper(unswept)
	if quick != "ok" { // rows of a damaged file cannot be counted
		return f, nil
	}
	counts, err := s.countKeysIn(ctx, db) // countKeys would wait for a second reader, and in memory there is one
	if err == nil {
		f.Keys(counts)
	}
	return f, err
}
