package mysql

import (
	"database/sql/driver"
	_ "embed"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"text/template"

	"github.com/headgate/headgate/law"
)

// A lone charge of a bucket is one statement that commits by itself, on MariaDB and on
// connections that Open has made. It inserts two rows of the same cell. The first makes
// the cell if it is missing, and leaves it alone if it is there; so the second always
// finds it, has locked it, and decides. The statement returns the cell after each of the
// two, which is the cell before and after the decision, and the clock. From the cell
// before and the clock package law derives the outcome, and the state after it must be the
// cell after.
//
// It decides about plain cells and those that no charge has touched. Others it leaves
// alone, and the general way decides about them.
//
// A node of a cluster takes the general way, since it may repeat a statement by itself
// after another node has won: see Store.begin.

//go:embed one.tmpl
var oneText string

// isLone reports whether a batch is a lone charge that one statement may decide: granted as a
// whole or not at all, and granted by a cell that no charge has touched. So the row of that
// cell need not be taken back.
func isLone(ops []law.Op) bool {
	return len(ops) == 1 && ops[0].Valid() == nil && summable(&ops[0]) &&
		(!ops[0].Partial || ops[0].Count == 1)
}

// room returns how many credits may be in use before a lone charge that is granted.
func room(op *law.Op) int64 {
	most := op.Params.Capacity
	if op.Ceiling > 0 {
		most = op.Ceiling
	}
	return most - op.Cost*op.Count
}

// lone is the statement for a lone charge: its anchor and what is put in its places. It is
// prepared once on each connection, since to read its text takes longer than to carry it out.
type lone struct {
	anchor law.Anchor
	values []driver.NamedValue
	turn   string
}

// oneSession makes a session of Open's ready for statements that commit by themselves: each is a
// transaction. A variable that is not known before a statement would be NULL in what it
// returns.
const oneSession = "SET autocommit = 1, @hg_one_turn = CONVERT('' USING latin1), @hg_one_clock = 0, " +
	"@hg_one_wait = 0, @hg_one_g = 0, @hg_one_new = 0, @hg_one_made = 0, @hg_one_cost = 0, @hg_one_count = 0, " +
	"@hg_one_ceiling = 0, @hg_one_unit = 0, @hg_one_step = 0, @hg_one_drain = 0, @hg_one_now = 0"

// oneTurn selects the turn of the last statement of these about which a session has begun
// to decide.
const oneTurn = "SELECT @hg_one_turn"

// oneNames are the columns in which the second row brings along the numbers of the charge.
var oneNames = strings.NewReplacer(
	"{second}", "VALUES(law)", "{need}", "VALUES(level)", "{room}", "VALUES(prev)", "{heal}", "VALUES(at)",
	"{unit}", "VALUES(unit)", "{step}", "VALUES(step)", "{drain}", "VALUES(empty_at)", "{now}", "VALUES(blocked_until)",
	"{turn}", "VALUES(reason)", "[", "headgate_cells.", "]", "", "@", "@hg_one_",
)

// oneTexts are the statements for each anchor.
var oneTexts = sync.OnceValue(func() (texts [2]string) {
	for anchor := range texts {
		texts[anchor] = oneNames.Replace(templated("one", sumsShape{Epoch: anchor == 1}))
	}
	return texts
})

var whiteSpace = regexp.MustCompile(`\s+`)

// templated executes a template of the statements that commit by themselves. It leaves one space wherever there is
// white space.
func templated(name string, shape sumsShape) string {
	t := template.Must(template.Must(template.New("").Parse(oneText)).Parse(sumsText))
	var b strings.Builder
	if err := t.ExecuteTemplate(&b, name, shape); err != nil {
		panic(err) // it is embedded
	}
	return whiteSpace.ReplaceAllString(b.String(), " ")
}

// loneOf returns the statement for a lone charge. The turn is another one for each.
func loneOf(op *law.Op, turn int64) lone {
	l := lone{anchor: op.Params.Anchor, turn: strconv.FormatInt(turn, 10)}
	values := [...]driver.Value{
		op.Cell.Limit, op.Cell.Key, op.Cell.Limit, op.Cell.Key,
		op.Cost * op.Count, room(op), op.Params.HealAfter(), op.Params.Unit, op.Params.Step, max(op.Params.Drain, 1),
		op.Now, l.turn,
	}
	l.values = make([]driver.NamedValue, len(values))
	for i, v := range values {
		l.values[i] = driver.NamedValue{Ordinal: i + 1, Value: v}
	}
	return l
}

// loneWidth is how many numbers the statement returns of each of the two rows: the cell, and the clock.
const loneWidth = 9

// hearOne turns the answer to a lone charge into its outcome. It reports that nothing was decided if the cell is
// none that the statement decides about.
func hearOne(op *law.Op, answer []int64, out *law.Outcome) (decided bool, err error) {
	if len(answer) != 2*loneWidth {
		return false, errNoSense(answer, "it has another number of numbers")
	}
	before, after, clock := cellOf(answer), cellOf(answer[loneWidth:]), answer[2*loneWidth-1]
	of, lp := law.State{Kind: before.Kind, Unit: before.Unit, Step: before.Step}, &op.Params
	if of != (law.State{}) && of != (law.State{Kind: lp.Kind, Unit: lp.Unit, Step: lp.Step}) || before.Prev != 0 ||
		before.At-clock > lp.HealAfter() || of.Kind == 0 && before != (law.State{}) {
		if before != after { // to ask again would charge again
			return false, errNoSense(answer, "a cell that is not plain was decided")
		}
		return false, nil
	}
	outs := []law.Outcome{{}}
	law.Apply([]law.Op{*op}, outs, clock, []*law.Record{{State: before}})
	if outs[0].Err == nil && outs[0].State != after {
		return false, errNoSense(answer, fmt.Sprintf("the cell should be %+v", outs[0].State))
	}
	*out = outs[0]
	return true, nil
}

func cellOf(n []int64) law.State {
	return law.State{
		Kind: law.Kind(n[0]), Level: n[1], Prev: n[2], At: n[3], Unit: n[4], Step: n[5],
		EmptyAt: n[6], BlockedUntil: n[7],
	}
}

// errNoSense is the error of an answer that cannot be read. It comes after the commit.
func errNoSense(answer []int64, why string) error {
	return fmt.Errorf("the server's answer makes no sense: %v: %s", answer, why)
}
