package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/headgate/headgate/bench/compare"
	"github.com/headgate/headgate/bench/rivals"
)

// sqliteField is SQLite beside one upsert for each decision, and 512 of them in a transaction.
// All sync at every commit.
func (b *bench) sqliteField() *field {
	return &field{
		name: "sqlite", title: "SQLite",
		url: func(context.Context, int) (string, func(), error) {
			dir, err := os.MkdirTemp("", "headgate-bench-")
			return "sqlite:" + filepath.Join(dir, "headgate.db"), func() { os.RemoveAll(dir) }, err
		},
		beside: besideSQLite,
		goals: map[string][]compare.Goal{
			"sqlite-hot-512":  {compare.Times(200)},
			"sqlite-100k-512": {compare.Times(20), compare.Within(1.3)},
		},
	}
}

func besideSQLite(ctx context.Context, keys []string) (others []other, stop func(), err error) {
	dir, err := os.MkdirTemp("", "headgate-bench-")
	if err != nil {
		return nil, nil, err
	}
	one, endOne, err := rivals.BareSQLite(ctx, filepath.Join(dir, "one.db"), rivals.Always, keys, 1)
	if err != nil {
		return nil, func() { os.RemoveAll(dir) }, err
	}
	many, endMany, err := rivals.BareSQLite(ctx, filepath.Join(dir, "many.db"), rivals.Always, keys, 512)
	if err != nil {
		endMany = func() {}
	}
	return []other{
		{side: compare.Rival, name: "one upsert a decision", clients: 1, limiter: one, fresh: one},
		{side: compare.Ceiling, name: "512 upserts a transaction", clients: 1, limiter: many, fresh: many},
	}, func() { endMany(); endOne(); os.RemoveAll(dir) }, errors.Join(err)
}
