package main

import (
	"context"
	"os"
	"path/filepath"

	"github.com/headgate/headgate/bench/compare"
	"github.com/headgate/headgate/bench/gate"
	"github.com/headgate/headgate/bench/rivals"
)

// onSQLite compares with one upsert for each decision. Both sync at every
// commit.
func (b *bench) onSQLite() []compare.Comparison {
	return []compare.Comparison{
		{
			Name: "sqlite-hot-512", Title: "SQLite, one hot key, 512 callers",
			Goals: []compare.Goal{compare.Times(200)},
			Why: "one upsert takes 0.13 ms here, since the disk's flush is cheap; a hot key is bound by the " +
				"callers' own CPU",
			Cells: b.sqlite(b.one, true),
		},
		{
			Name: "sqlite-100k-512", Title: "SQLite, 100,000 keys, 512 callers",
			Goals: []compare.Goal{compare.Times(20)},
			Why: "27 us of CPU for a key, in one writer: a read, package law and a write in pure Go; one upsert " +
				"takes 0.13 ms here, since the disk's flush is cheap",
			Cells: b.sqlite(b.many, false),
		},
	}
}

func (b *bench) sqlite(keys []string, exact bool) func(context.Context) ([]compare.Cell, error) {
	return func(ctx context.Context) ([]compare.Cell, error) {
		dir, err := os.MkdirTemp("", "headgate-bench-")
		if err != nil {
			return nil, err
		}
		cells := []compare.Cell{ours{
			url: "sqlite:" + filepath.Join(dir, "headgate.db"), wrap: []gate.Wrap{gate.Front},
			limit: always, keys: keys, callers: 512, exact: exact,
			close: func() { os.RemoveAll(dir) },
		}.cell(ctx)}
		const name = "one upsert a decision"
		l, stop, err := rivals.BareSQLite(ctx, filepath.Join(dir, "bare.db"), rivals.Always, keys)
		if err != nil {
			return append(cells, failed(compare.Rival, name, err)), nil
		}
		c := rival(name, 1, l, keys)
		c.Close = stop
		return append(cells, c), nil
	}
}
