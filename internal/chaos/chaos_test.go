package chaos_test

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/redis/rueidis"

	"github.com/headgate/headgate/internal/chaos"
	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/internal/leaktest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/mysql"
	"github.com/headgate/headgate/store/postgres"
	"github.com/headgate/headgate/store/redis"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

var (
	lasts  = flag.Duration("for", 20*time.Second, "how long to break each engine")
	chosen = flag.String("engines", "postgres mariadb redis", "which, with spaces between them; all for all")
	seed   = flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the order of the faults")
	table  = flag.String("table", "", "file to write the table to")
)

func start(with func(context.Context) (*dbtest.Server, error)) func(*testing.T) *dbtest.Server {
	return func(t *testing.T) *dbtest.Server {
		t.Helper()
		s, err := with(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Stop)
		return s
	}
}

func openPostgres(ctx context.Context, url string) (store.Store, error) {
	s, err := postgres.Open(ctx, url, &postgres.Config{SkipArticles: true})
	if err == nil {
		_, err = s.Migrate(ctx)
	}
	return s, err
}

func endPostgres(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, `select pg_terminate_backend(pid) from pg_stat_activity
		where datname = current_database() and pid <> pg_backend_pid()`)
	return err
}

func endMariaDB(ctx context.Context, url string) error {
	host, name, _ := strings.Cut(strings.TrimPrefix(url, "mysql://root@"), "/")
	db, err := sql.Open("mysql", "root@tcp("+host+")/"+name)
	if err != nil {
		return err
	}
	defer db.Close()
	rows, err := db.QueryContext(ctx,
		"SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()")
	if err != nil {
		return err
	}
	defer rows.Close()
	var list []int64
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return err
		}
		list = append(list, id)
	}
	for _, id := range list {
		_, _ = db.ExecContext(ctx, fmt.Sprint("KILL ", id)) // it may have ended
	}
	return rows.Err()
}

func endRedis(ctx context.Context, url string) error {
	option, err := rueidis.ParseURL(url)
	if err != nil {
		return err
	}
	c, err := rueidis.NewClient(option)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Do(ctx, c.B().ClientKill().TypeNormal().SkipmeYes().Build()).Error()
}

var engines = []chaos.Engine{
	{
		Name: "postgres", Start: start(dbtest.NewPostgres), Open: openPostgres, Kill: endPostgres,
		URL: func(t *testing.T, s *dbtest.Server) string { return dbtest.PostgresAt(t, s.DSN) },
	},
	{
		Name: "postgres-serializable", Start: start(dbtest.NewPostgres), Open: openPostgres, Kill: endPostgres,
		URL: func(t *testing.T, s *dbtest.Server) string {
			url, mark := dbtest.PostgresAt(t, s.DSN), "?"
			if strings.Contains(url, "?") {
				mark = "&"
			}
			return url + mark + "default_transaction_isolation=serializable"
		},
	},
	{
		Name: "mariadb", Kill: endMariaDB,
		Start: start(func(ctx context.Context) (*dbtest.Server, error) {
			return dbtest.StartMariaDB(ctx, "--innodb-flush-log-at-trx-commit=1")
		}),
		URL: func(t *testing.T, s *dbtest.Server) string { return dbtest.MariaDBAt(t, s.DSN)[0] },
		Open: func(ctx context.Context, url string) (store.Store, error) {
			s, err := mysql.Open(ctx, url, &mysql.Config{SkipArticles: true})
			if err == nil {
				_, err = s.Migrate(ctx)
			}
			return s, err
		},
	},
	{
		Name: "redis", Kill: endRedis,
		Start: start(func(ctx context.Context) (*dbtest.Server, error) {
			return dbtest.StartRedis(ctx, "--appendonly", "yes", "--appendfsync", "always")
		}),
		URL:  func(_ *testing.T, s *dbtest.Server) string { return s.DSN },
		Open: func(ctx context.Context, url string) (store.Store, error) { return redis.Open(ctx, url, nil) },
	},
}

// TestWhatAKillForgetsIsFound runs on a Redis that keeps nothing on its disk.
func TestWhatAKillForgetsIsFound(t *testing.T) {
	e := engines[len(engines)-1]
	e.Name, e.Start = "redis without a disk", start(func(ctx context.Context) (*dbtest.Server, error) {
		return dbtest.StartRedis(ctx, "--save", "")
	})
	for s := uint64(1); s < 10; s++ {
		r := chaos.Run(t, &e, 5*time.Second, s)
		if t.Log(r.Row()); r.Over > 0 {
			t.Log(r.First)
			return
		}
	}
	t.Error("nothing was found, although each kill forgets all charges")
}

// TestChaos breaks engines, one after the other, and writes a table.
func TestChaos(t *testing.T) {
	var mu sync.Mutex
	var rows strings.Builder
	t.Logf("-seed %d", *seed)
	for i := range engines {
		e := &engines[i]
		if *chosen != "all" && !strings.Contains(" "+*chosen+" ", " "+e.Name+" ") {
			continue
		}
		t.Run(e.Name, func(t *testing.T) {
			r := chaos.Run(t, e, *lasts, *seed)
			t.Log(r.Row())
			if r.Over > 0 {
				t.Errorf("%d intervals are over the bound; %s", r.Over, r.First)
			}
			faults := 0
			for _, n := range r.Faults {
				faults += n
			}
			if r.Decisions < 100 || faults < 3 || r.Decisions-r.Admitted < 10 {
				t.Errorf("nothing was tested: %d decisions, %d refused, %d faults", r.Decisions, r.Decisions-r.Admitted,
					faults)
			}
			mu.Lock()
			defer mu.Unlock()
			rows.WriteString(r.Row() + "\n")
		})
	}
	if *table == "" || t.Failed() {
		return
	}
	if err := os.WriteFile(*table,
		[]byte("| engine | decisions | admitted | faults | over the bound | longest without a decision | "+
			"longest recovery |\n|---|---|---|---|---|---|---|\n"+rows.String()), 0o600); err != nil {
		t.Error(err)
	}
}
