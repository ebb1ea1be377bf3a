package main

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/internal/leaktest"
)

func TestMain(m *testing.M) {
	if child() {
		return
	}
	completeWithin = time.Minute
	testscript.Main(tests{m}, map[string]func(){"headgate": main})
}

// tests look for leaks when they have run.
type tests struct{ *testing.M }

func (t tests) Run() int { return leaktest.Run(t.M) }

func TestScripts(t *testing.T) {
	s, err := dbtest.StartPostgres(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			env.Vars = slices.DeleteFunc(env.Vars, func(v string) bool { return strings.HasPrefix(v, "HEADGATE_") })
			dsn, drop, err := s.Database(context.Background())
			if err != nil {
				return err
			}
			env.Defer(drop)
			env.Setenv("POSTGRES", dsn)
			env.Setenv("MYSQL", dbtest.MariaDB(t))
			env.Setenv("REDIS", dbtest.Redis(t))
			env.Setenv("LONGKEY", strings.Repeat("k", 513))
			return nil
		},
		UpdateScripts: os.Getenv("UPDATE_SCRIPTS") != "",
	})
}
