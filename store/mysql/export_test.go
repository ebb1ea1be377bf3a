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
	Undone       = func(err error) error { return classify("ask", undone.wrap(err)) }
	CheckVersion = checkVersion
	CheckServer  = checkServer
)

// Statements returns the statements of both texts for a batch whose cells exist and remember all its requests.
func Statements(s *Store, ops []law.Op) (list []string) {
	rb := &rowBatch{ctx: context.Background(), ops: ops}
	rb.Batch = rows.New(ops, remembers{ops})
	text := rb.lockText(s.beginText(onlyChecks(ops)))
	for _, c := range rb.Cells {
		c.Found = true
		first := []law.Op{{Verb: law.Take, Cell: c.Name, Params: ops[0].Params, Cost: 1000, Count: 1}}
		law.Apply(first, make([]law.Outcome, 1), time.Now().UnixMicro(), []*law.Record{&c.Record})
		c.Add, c.Dirty = nil, false
	}
	if err := rb.Decide(make([]law.Outcome, len(ops)), time.Now().UnixMicro()); err != nil {
		panic(err)
	}
	changes, _ := rb.changes()
	if onlyChecks(ops) {
		return strings.Split(text, ";")
	}
	for statement := range strings.SplitSeq(text+";"+changes+s.commitText(), ";") {
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
	Fingerprint = currentDefinition().fingerprint()
)

// Numbered returns the name of a private procedure of this binary.
func Numbered(name string) string { return fmt.Sprintf("%s_%d", name, revision) }

// Newer turns a store into that of a binary with a later revision, in which headgate_take differs.
func Newer(s *Store) *Store {
	d := *currentDefinition()
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
	d.privateProcedures, d.publicObjects = renumber(d.privateProcedures), renumber(d.publicObjects)
	d.articles = renumber(d.articles)
	s.def = &d
	return s
}

// Later turns a store into that of a binary for which the rows have another meaning.
func Later(s *Store) *Store {
	Newer(s).def.state++
	return s
}

// TrySums makes the store try the next batch by sums, and reports whether the last batch could not be decided so.
func TrySums(s *Store) (failed bool) { return s.skipSums.Swap(0) > 0 }

// SweepEntries sweeps entries as at a time of the server's clock.
func (s *Store) SweepEntries(ctx context.Context, now int64) (removed int, err error) {
	removed, _, err = s.sweepEntries(ctx, s.pick(0), now, 100)
	return removed, err
}

// BeACluster makes sweeps treat the server as a node of a cluster.
func (s *Store) BeACluster() { s.groupRepl.Store(true) }

// RemoveCells removes those cells that were dead at a time of the server's clock.
func (s *Store) RemoveCells(ctx context.Context, now int64, cells []law.Cell) (removed int, err error) {
	return s.removeFree(ctx, s.pick(0), now, cells, deleteDeadCells)
}

// OldTransactions sets the age from which Examine reports a transaction.
func OldTransactions(s *Store, age time.Duration) { s.oldTransaction = age }

// AsGalera makes a store treat its server as a node of a Galera cluster.
func AsGalera(s *Store) { s.galera.Store(true) }

// Procedures returns the texts of all procedures by their names, in which _N stands for the revision.
func Procedures() map[string]string {
	d, texts := currentDefinition(), make(map[string]string)
	for _, s := range slices.Concat(d.privateProcedures, d.publicObjects, d.articles) {
		if s.kind == "procedure" {
			texts[strings.Replace(s.name, d.withRevision("_N"), "_N", 1)] = s.text
		}
	}
	return texts
}
