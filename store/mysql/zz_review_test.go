package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	driver1 "github.com/go-sql-driver/mysql"

	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/mysql"
	"github.com/headgate/headgate/store/storetest"
)

var _ = rand.Int
var _ = memory.New
var _ sql.NullString

func bkt(limit, key string, g uint32, n int64) law.Op {
	return law.Op{Verb: law.Take, Group: g, Cell: law.Cell{Limit: limit, Key: key},
		Params: law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 10000, Step: 3600e6, Drain: 1000}, Cost: 1000 * n, Count: 1}
}
func lg(limit, key string, g uint32, hist int64) law.Op {
	return law.Op{Verb: law.Take, Group: g, Cell: law.Cell{Limit: limit, Key: key},
		Params: law.Params{Kind: law.Log, Unit: 1000, Capacity: 10000, Step: 3600e6, History: hist}, Cost: 1000, Count: 1}
}

func TestZRDeadFirstNode(t *testing.T) {
	url := dbtest.MariaDB(t)
	openAt(t, url)
	host := strings.TrimPrefix(url, "mysql://root@")
	s, err := mysql.Open(context.Background(), "mysql://root@127.0.0.1:1,"+host, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := range 3 {
		outs := make([]law.Outcome, 1)
		err = s.Apply(context.Background(), []law.Op{bkt("a", "k", 1, 1)}, outs)
		t.Log(i, err, errors.Is(err, store.ErrUnavailable), outs[0].Granted)
	}
	// warmed by migrate
	time.Sleep(10 * time.Millisecond)
	_, err = s.Sweep(context.Background(), 10)
	t.Log("sweep", err)
	_, _, err = s.Cells(context.Background(), store.Query{})
	t.Log("cells", err)
}

func TestZRHungNode(t *testing.T) {
	url := dbtest.MariaDB(t)
	openAt(t, url)
	host := strings.TrimPrefix(url, "mysql://root@")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	// hung second node: accepts by backlog, never speaks
	s, err := mysql.Open(context.Background(), "mysql://root@"+strings.Replace(host, "/", ","+l.Addr().String()+"/", 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	okAll, failAll := map[string]int{}, map[string]int{}
	for i := range 40 {
		k := fmt.Sprint("k", i%4)
		ctx, c := context.WithTimeout(context.Background(), 200*time.Millisecond)
		outs := make([]law.Outcome, 1)
		err := s.Apply(ctx, []law.Op{bkt("a", k, 1, 1)}, outs)
		c()
		if err != nil {
			failAll[k]++
			if failAll[k] == 1 {
				t.Log(k, err)
			}
		} else {
			okAll[k]++
		}
	}
	t.Log("ok", okAll, "failed", failAll)
}

func TestZRCheckOrder(t *testing.T) {
	url := dbtest.MariaDB(t)
	s := openAt(t, url)
	db := pool(t, url)
	for _, have := range []int{1, 2, 3, 10, 200} {
		db.Exec("delete from headgate_cells")
		for i := range have {
			outs := make([]law.Outcome, 1)
			if err := s.Apply(context.Background(), []law.Op{bkt("a", fmt.Sprint("k", i), 1, int64(1+i%9))}, outs); err != nil {
				t.Fatal(err)
			}
		}
		for _, an := range []bool{false, true} {
			if an {
				db.Exec("analyze table headgate_cells")
			}
			for _, n := range []int{2, 3, 20, 300} {
				var ops []law.Op
				for i := range n {
					op := bkt("a", fmt.Sprint("k", n-1-i), uint32(i), 1)
					op.Verb = law.Check
					ops = append(ops, op)
				}
				outs := make([]law.Outcome, n)
				if err := s.Apply(context.Background(), ops, outs); err != nil {
					t.Error(have, n, err)
					continue
				}
				bad := 0
				for i := range n {
					id := n - 1 - i
					want := int64(0)
					if id < have {
						want = int64(1+id%9) * 1000
					}
					if outs[i].State.Level != want {
						bad++
					}
				}
				if bad > 0 {
					t.Errorf("have %d, analyzed %v, %d checks: %d wrong", have, an, n, bad)
				}
			}
		}
	}
}

func TestZRBig(t *testing.T) {
	url := dbtest.MariaDB(t)
	s := openAt(t, url)
	run := func(name string, ops []law.Op) {
		outs := make([]law.Outcome, len(ops))
		want := make([]law.Outcome, len(ops))
		b := time.Now()
		ctx, c := context.WithTimeout(context.Background(), 60*time.Second)
		defer c()
		err := s.Apply(ctx, ops, outs)
		d := time.Since(b)
		m := memory.New(nil)
		m.Apply(context.Background(), ops, want)
		bad := 0
		for i := range outs {
			if outs[i].Granted != want[i].Granted {
				bad++
			}
		}
		e := fmt.Sprint(err)
		t.Logf("%s: %v in %v; %d of %d differ from memory; inv %v unk %v", name, e[:min(len(e), 200)], d, bad, len(ops), errors.Is(err, store.ErrInvalid), errors.Is(err, store.ErrUnknownOutcome))
	}
	var a, b, c, d, e, f []law.Op
	long := strings.Repeat("x", 505)
	for i := range 5000 {
		a = append(a, bkt("a", fmt.Sprint("k", i%3000), uint32(i), 1))
		b = append(b, bkt("b", fmt.Sprint("k", i), 7, 1))
		c = append(c, lg("c", fmt.Sprint("k", i), uint32(i), 0))
		d = append(d, lg("d", "hot", uint32(i), 3600e6))
		e = append(e, bkt("e", fmt.Sprint(long, i), uint32(i), 1))
		f = append(f, lg("f", fmt.Sprint(long, i), uint32(i), 0))
	}
	run("5000 buckets", a)
	run("group of 600", b[:600])
	run("group of 2000", b[:2000])
	run("group of 5000", b)
	b[4999].Cost = 1e9
	run("refused group of 5000", b)
	run("5000 logs", c)
	run("1000 on one log", d[:1000])
	run("5000 on one log", d)
	run("5000 buckets, long keys", e)
	run("5000 logs, long keys", f)
}

func TestZRLongID(t *testing.T) {
	s := open(t)
	good, bad := bkt("a", "k", 1, 1), lg("b", "k", 2, 0)
	bad.ID = strings.Repeat("i", 600)
	outs := make([]law.Outcome, 2)
	err := s.Apply(context.Background(), []law.Op{good, bad}, outs)
	t.Log("mysql:", err, outs[0].Granted)
	err = memory.New(nil).Apply(context.Background(), []law.Op{good, bad}, outs)
	t.Log("memory:", err, outs[0].Granted, outs[1].Granted)
}

func TestZRInTxPartial(t *testing.T) {
	url := dbtest.MariaDB(t)
	s := openAt(t, url)
	db := pool(t, url)
	outs := make([]law.Outcome, 1)
	if err := s.Apply(context.Background(), []law.Op{lg("z", "k", 1, 0)}, outs); err != nil {
		t.Fatal(err)
	}
	other, _ := db.BeginTx(context.Background(), nil)
	other.Exec("select * from headgate_entries for update")
	tx, _ := db.BeginTx(context.Background(), nil)
	tx.Exec("set session innodb_lock_wait_timeout=1")
	in := s.InTx(tx)
	r := lg("z", "k", 2, 0)
	r.Verb = law.Reset
	outs = make([]law.Outcome, 2)
	err := in.Apply(context.Background(), []law.Op{bkt("a", "k", 1, 1), r}, outs)
	t.Log(err, errors.Is(err, store.ErrConflict), outs[0])
	other.Rollback()
	err = in.Apply(context.Background(), []law.Op{bkt("a", "k", 1, 1), r}, outs)
	t.Log("asked again:", err, outs[0].State.Level)
	tx.Commit()
	cs, _, _ := s.Cells(context.Background(), store.Query{})
	t.Logf("%+v", cs)
}

func modePool(tb testing.TB, url, params string) *sql.DB {
	host, name, _ := strings.Cut(strings.TrimPrefix(url, "mysql://root@"), "/")
	db, err := sql.Open("mysql", "root@tcp("+host+")/"+name+"?multiStatements=true&"+params)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { db.Close() })
	return db
}

func TestZRModes(t *testing.T) {
	for _, m := range []string{"sql_mode=%27%27", "sql_mode=%27ANSI,NO_BACKSLASH_ESCAPES,HIGH_NOT_PRECEDENCE,PIPES_AS_CONCAT,STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO%27", "sql_mode=%27ORACLE%27", "sql_mode=%27MSSQL%27", "sql_mode=%27EMPTY_STRING_IS_NULL%27", "sql_mode=%27SIMULTANEOUS_ASSIGNMENT,ONLY_FULL_GROUP_BY%27", "autocommit=0", "completion_type=1", "sql_select_limit=1", "join_cache_level=8&optimizer_switch=%27mrr=on,join_cache_hashed=on,join_cache_bka=on%27", "character_set_connection=ucs2", "sql_safe_updates=1", "tx_isolation=%27SERIALIZABLE%27"} {
		t.Run(m, func(t *testing.T) {
			storetest.Run(t, func(tb testing.TB) store.Store {
				url := dbtest.MariaDB(tb)
				openAt(tb, url)
				return mysql.New(modePool(tb, url, m), nil)
			}, &storetest.Options{Histories: 150})
		})
	}
}

func TestZRClasses(t *testing.T) {
	for _, n := range []uint16{1568, 1130, 1129, 1114, 1021, 1030, 3101, 3100, 8501, 1213, 1862, 1820, 1048, 1301, 1114, 1041, 1461, 2013, 1159, 1161} {
		err := mysql.Classify(&driver1.MySQLError{Number: n, Message: "m"})
		in := "none"
		for _, c := range []error{store.ErrInvalid, store.ErrConflict, store.ErrUnavailable, store.ErrReadOnly, store.ErrUnknownOutcome, store.ErrSetup} {
			if errors.Is(err, c) {
				in = c.Error()
			}
		}
		t.Log(n, in)
	}
	t.Log(mysql.Classify(driver1.ErrPktTooLarge))
}

func TestZRProc(t *testing.T) {
	url := dbtest.MariaDB(t)
	s := openAt(t, url)
	_ = s
	db := pool(t, url)
	db.Exec("insert into headgate_limits(name, rule) values('sem','concurrency 5 ttl 1m')")
	var a, b, c, d, e, f any
	t.Log(db.QueryRow("call headgate_take('sem','k',1)").Scan(&a, &b, &c, &d, &e, &f), a)
	// clock after lock
	tx, _ := db.Begin()
	tx.Exec("insert into headgate_cells(limit_name,cell_key) values('token-bucket 1/s','w') on duplicate key update law=law")
	done := make(chan string)
	go func() {
		var at []byte
		err := db.QueryRow("call headgate_take('token-bucket 1/s','w',1)").Scan(&a, &b, &c, &d, &e, &at)
		done <- fmt.Sprint(err, string(at))
	}()
	time.Sleep(700 * time.Millisecond)
	rel := time.Now().UTC()
	tx.Rollback()
	t.Log("released", rel, "decided", <-done)
	// caller's transaction
	conn, _ := db.Conn(context.Background())
	defer conn.Close()
	for _, q := range []string{"create table mine(a int primary key) engine=innodb", "set autocommit=0", "insert into mine values(1)"} {
		if _, err := conn.ExecContext(context.Background(), q); err != nil {
			t.Fatal(err)
		}
	}
	conn.ExecContext(context.Background(), "call headgate_take('token-bucket 1/s','q',1)")
	conn.ExecContext(context.Background(), "rollback")
	var n, m int
	conn.QueryRowContext(context.Background(), "select (select count(*) from mine), (select count(*) from headgate_cells where cell_key='q')").Scan(&n, &m)
	t.Log("autocommit=0, rollback: mine", n, "cells", m)
	conn.ExecContext(context.Background(), "rollback")
	conn.ExecContext(context.Background(), "call headgate_take('token-bucket 1/s','q2',1)")
	conn.ExecContext(context.Background(), "rollback")
	conn.QueryRowContext(context.Background(), "select count(*) from headgate_cells where cell_key='q2'").Scan(&m)
	t.Log("autocommit=0, first statement, rollback: cells", m)
	for _, q := range []string{"set autocommit=1", "start transaction read only", "call headgate_take('token-bucket 1/s','q3',1)", "rollback",
		"xa start 'x'", "insert into mine values(5)", "call headgate_take('token-bucket 1/s','q4',1)", "xa end 'x'", "xa rollback 'x'"} {
		_, err := conn.ExecContext(context.Background(), q)
		t.Log(q, err)
	}
	conn.QueryRowContext(context.Background(), "select count(*) from headgate_cells where cell_key in ('q3','q4')").Scan(&m)
	t.Log("cells after", m)
}
