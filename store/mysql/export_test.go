package mysql

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store/internal/rows"
)

// For the tests.
var (
	Classify     = func(err error) error { return classify("ask", err) }
	Undone       = func(err error) error { return classify("ask", undone.of(err)) }
	CheckVersion = checkVersion
	CheckServer  = checkServer
)

// Statements returns those of the two texts for a batch whose cells are there, and remember all requests.
func Statements(s *Store, ops []law.Op) (list []string) {
	f := &flight{ctx: context.Background(), ops: ops}
	f.Batch = rows.New(ops, remembers{ops})
	text := f.lockText(s.begin(onlyChecks(ops)))
	for _, c := range f.Cells {
		c.Found = true
		first := []law.Op{{Verb: law.Take, Cell: c.Name, Params: ops[0].Params, Cost: 1000, Count: 1}}
		law.Apply(first, make([]law.Outcome, 1), time.Now().UnixMicro(), []*law.Record{&c.Record})
		c.Add, c.Dirty = nil, false
	}
	if err := f.Decide(make([]law.Outcome, len(ops)), time.Now().UnixMicro()); err != nil {
		panic(err)
	}
	changes, _ := f.changes()
	if onlyChecks(ops) {
		return strings.Split(text, ";")
	}
	for statement := range strings.SplitSeq(text+";"+changes+s.commit(), ";") {
		list = append(list, statement)
	}
	return list
}

// remembers is a reader of cells that remember all requests of a batch.
type remembers struct{ ops []law.Op }

func (r remembers) Receipt(cell law.Cell, id string) (law.Receipt, bool, error) {
	p := &r.ops[0].Params
	return law.Receipt{
		ID: id, Terms: p.Terms(), Cost: 500, Settled: law.Unsettled, KeepUntil: law.Max,
		Outcome: law.Outcome{
			Granted: 1, EntryNumber: 1,
			State: law.State{Kind: p.Kind, Level: 500, Unit: p.Unit, Step: p.Step},
		},
	}, true, nil
}

func (remembers) Sum(law.Cell, int64, int64) (int64, error)   { return 0, nil }
func (remembers) Freed(law.Cell, int64, int64) (int64, error) { return law.Never, nil }
func (remembers) Entry(law.Cell, int64) (int64, int64, error) { return 1000, law.Max, nil }

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
			s.text, s.name = strings.TrimSuffix(next.Replace(s.text+"\n"), "\n"), strings.TrimSuffix(next.Replace(s.name+"\n"), "\n")
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
	return s.removeFree(ctx, s.pick(0), now, cells, deadCells)
}

// OldTransactions has a store find transactions from an age on.
func OldTransactions(s *Store, age time.Duration) { s.old = age }

// AsGalera makes a store take its server for a node of a Galera cluster.
func AsGalera(s *Store) { s.galera.Store(true) }

// Procedures returns the texts of all procedures by their names, in which _N stands for the revision.
func Procedures() map[string]string {
	d, texts := current(), make(map[string]string)
	for _, s := range slices.Concat(d.inner, d.plain, d.articles) {
		if s.kind == "procedure" {
			texts[strings.Replace(s.name, d.numbered("_N"), "_N", 1)] = s.text
		}
	}
	return texts
}
