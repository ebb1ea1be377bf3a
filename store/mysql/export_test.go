package mysql

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/law"
)

// For the tests.
var (
	Classify     = func(err error) error { return classify("ask", err) }
	Undone       = func(err error) error { return classify("ask", &undone{err}) }
	CheckVersion = checkVersion
	CheckServer  = checkServer
	IsPlain      = func(ops []law.Op) bool { return newPlainPlan(ops) != nil }
)

// textFor returns the text for a batch; empty if none of its groups is valid.
func textFor(ops []law.Op, at site) string {
	p := newPlainPlan(ops)
	if p == nil {
		p = newPlan(ops, make([]law.Outcome, len(ops)))
	}
	if len(p.runs) == 0 {
		return ""
	}
	return p.text(at)
}

// Texts returns the texts for a batch, for servers and transactions of all kinds.
func Texts(ops []law.Op) (list []string) {
	for _, at := range []site{
		{own: true},
		{own: true, parts: true},
		{own: true, galera: true},
		{group: true, foreign: true},
		{foreign: true, snapshots: true},
		{galera: true, snapshots: true},
		{own: true, values: true, parts: true},
	} {
		if text := textFor(ops, at); text != "" {
			list = append(list, text)
		}
	}
	return list
}

// Statements returns those of the text for a batch.
func Statements(s *Store, ops []law.Op) (list []string) {
	text := textFor(ops, site{own: true, values: s.returning.Load()})
	quoted, from := false, 0
	for i := range len(text) {
		switch {
		case text[i] == '\'':
			quoted = !quoted
		case text[i] == ';' && !quoted:
			list = append(list, text[from:i])
			from = i + 1
		}
	}
	return append(list, text[from:])
}

// Revision and Fingerprint are those of this binary's procedures.
var (
	Revision    = revision
	Fingerprint = current().fingerprint()
)

// Numbered names a procedure of this binary that nobody else calls.
func Numbered(name string) string { return fmt.Sprintf("%s_%d", name, revision) }

// Newer returns a store as a binary of a later revision has it: headgate_take has one more
// column.
func Newer(s *Store) *Store {
	d := *current()
	d.revision++
	next := strings.NewReplacer(fmt.Sprintf("_%d(", revision), fmt.Sprintf("_%d(", d.revision),
		fmt.Sprintf("_%d\n", revision), fmt.Sprintf("_%d\n", d.revision))
	renumber := func(list []ddl) (renumbered []ddl) {
		for _, s := range list {
			s.text = strings.TrimSuffix(next.Replace(s.text+"\n"), "\n")
			if strings.Contains(s.text, "create procedure headgate_take(") {
				s.text = strings.Replace(s.text, "begin\n", "begin\n    set @hg_newer = 1;\n", 1)
			}
			renumbered = append(renumbered, s)
		}
		return renumbered
	}
	d.inner, d.plain, d.articles = renumber(d.inner), renumber(d.plain), renumber(d.articles)
	s.def = &d
	return s
}

// Later returns a store as a binary has it to which the rows mean something else.
func Later(s *Store) *Store {
	Newer(s).def.state++
	return s
}

// TrySums lets the next batch be tried by sums, and reports whether the last one was not
// decided so.
func TrySums(s *Store) (failed bool) { return s.unsummed.Swap(0) > 0 }

// SweepEntries looks at the entries as a sweep does at a time of the server's clock.
func (s *Store) SweepEntries(ctx context.Context, now int64) (removed int, err error) {
	removed, _, err = s.sweepEntries(ctx, s.pick(0), now, 100)
	return removed, err
}

// BeACluster makes sweeps take the server for a node of a cluster.
func (s *Store) BeACluster() { s.group.Store(true) }

// RemoveCells removes those of some cells that were of no use at a time of the server's clock.
func (s *Store) RemoveCells(ctx context.Context, now int64, cells []law.Cell) (removed int, err error) {
	return s.removeLocked(ctx, s.pick(0), now, cells, deadCells)
}

// OldTransactions has a store find transactions from an age on.
func OldTransactions(s *Store, age time.Duration) { s.old = age }

// AsGalera makes a store take its server for a node of a Galera cluster.
func AsGalera(s *Store) { s.galera.Store(true) }
