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

// Classify classifies the error of a text that may have begun its COMMIT, Undone the error of a text that has not.
var (
	Classify     = func(err error) error { return classify("ask", err) }
	Undone       = func(err error) error { return classify("ask", undone.wrap(err)) }
	CheckVersion = checkVersion
	CheckServer  = checkServer
)

// Statements returns the statements of both texts, for checks of the first, for a batch of existing cells and ids.
func Statements(s *Store, ops []law.Op) (list []string) {
	rb := &rowBatch{ctx: context.Background(), ops: ops}
	rb.Batch = rows.New(ops, receiptReader{ops})
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

// receiptReader is a rows.Reader that finds a receipt of each id, and entries that count.
type receiptReader struct{ ops []law.Op }

func (r receiptReader) Receipt(cell law.Cell, id string) (law.Receipt, bool, error) {
	p := &r.ops[0].Params
	return law.Receipt{
		ID: id, Terms: p.Terms(), Cost: 500, Settled: law.Unsettled, KeepUntil: law.Max,
		Outcome: law.Outcome{
			Granted: 1, EntryNumber: 1,
			State: law.State{Kind: p.Kind, Level: 500, Unit: p.Unit, Step: p.Step},
		},
	}, true, nil
}

func (receiptReader) Sum(law.Cell, int64, int64) (int64, error)   { return 0, nil }
func (receiptReader) Freed(law.Cell, int64, int64) (int64, error) { return law.Never, nil }
func (receiptReader) Entry(law.Cell, int64) (int64, int64, error) { return 1000, law.Max, nil }

// Revision and Fingerprint identify this binary's procedures.
var (
	Revision    = revision
	Fingerprint = currentDefinition().fingerprint()
)

// WithRevision returns the name of a private procedure with the revision of this binary.
func WithRevision(name string) string { return fmt.Sprintf("%s_%d", name, revision) }

// WithNewerRevision makes s behave like the store of a binary with a later revision, in which headgate_take differs,
// and returns s.
func WithNewerRevision(s *Store) *Store {
	d := *currentDefinition()
	d.revision++
	replacer := strings.NewReplacer(fmt.Sprintf("_%d(", revision), fmt.Sprintf("_%d(", d.revision),
		fmt.Sprintf("_%d\n", revision), fmt.Sprintf("_%d\n", d.revision))
	renumber := func(list []ddl) (renumbered []ddl) {
		for _, s := range list {
			s.text = strings.TrimSuffix(replacer.Replace(s.text+"\n"), "\n")
			s.name = strings.TrimSuffix(replacer.Replace(s.name+"\n"), "\n")
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

// WithNewerState makes s behave like the store of a later binary, for which rows have another meaning, and returns s.
func WithNewerState(s *Store) *Store {
	WithNewerRevision(s).def.state++
	return s
}

// TrySums makes the store decide the next batch by sums if it can, and reports whether sums have failed for the last
// one.
func TrySums(s *Store) (failed bool) { return s.skipSums.Swap(0) > 0 }

// SweepEntries sweeps entries as if the server's clock showed now.
func (s *Store) SweepEntries(ctx context.Context, now int64) (removed int, err error) {
	removed, _, err = s.sweepEntries(ctx, s.pick(0), now, 100)
	return removed, err
}

// AsGroupReplication makes a store treat its server as a member of a Group Replication.
func (s *Store) AsGroupReplication() { s.groupRepl.Store(true) }

// RemoveCells removes cells as if the server's clock had shown now when the sweep read them.
func (s *Store) RemoveCells(ctx context.Context, now int64, cells []law.Cell) (removed int, err error) {
	return s.removeUnderLocks(ctx, s.pick(0), now, cells, deleteDeadCells)
}

// SetOldTransaction sets the age from which Examine reports a transaction.
func SetOldTransaction(s *Store, age time.Duration) { s.oldTransaction = age }

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
