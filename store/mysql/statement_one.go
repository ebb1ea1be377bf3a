package mysql

import (
	"database/sql/driver"
	_ "embed"
	"strconv"
	"strings"
	"sync"
	"text/template"
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
// A statement that knows of new keys takes longer. So the first attempt is one that does
// not, and fails for a new key, unless the charge before was of one: new keys come together.
//
// A node of a cluster takes the general way, since it may repeat a statement by itself
// after another node has won: see plan.begin.

//go:embed one.tmpl
var oneText string

// lone reports whether a plan is a lone charge that one statement may decide: granted as a
// whole or not at all, and granted by a cell that no charge has touched. So the row of that
// cell need not be taken back.
func (p *plan) lone() bool {
	if p.plain == nil || len(p.ops) != 1 || p.ops[0].Partial && p.ops[0].Count > 1 {
		return false
	}
	return p.room() >= 0
}

// room returns how many credits may be in use before a lone charge that is granted.
func (p *plan) room() int64 {
	op := &p.ops[0]
	most := op.Params.Capacity
	if op.Ceiling > 0 {
		most = op.Ceiling
	}
	return most - op.Cost*op.Count
}

// lone is the statement for a lone charge: its number and what is put in its places. It is
// prepared once on each connection, since to read its text takes longer than to carry it out.
type lone struct {
	number int
	values []driver.NamedValue
	turn   string
}

// oneSession makes a session ready for statements that commit by themselves: each is a
// transaction. A variable that is not known before a statement would be NULL in what it
// returns.
const oneSession = "SET autocommit = 1, @hg_one_turn = CONVERT('' USING latin1), @hg_one_clock = 0, " +
	"@hg_one_wait = 0, @hg_one_g = 0, @hg_one_new = 0, @hg_one_made = 0, @hg_one_cost = 0, @hg_one_count = 0, " +
	"@hg_one_ceiling = 0, @hg_one_drain = 0, @hg_one_now = 0;SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"

// oneTurn selects the turn of the last statement of these about which a session has begun
// to decide.
const oneTurn = "SELECT @hg_one_turn"

// oneNames are the columns in which the second row brings along the numbers of the charge.
var oneNames = strings.NewReplacer(
	"{second}", "VALUES(law)", "{need}", "VALUES(level)", "{room}", "VALUES(prev)", "{heal}", "VALUES(at)",
	"{unit}", "VALUES(unit)", "{step}", "VALUES(step)", "{drain}", "VALUES(empty_at)", "{now}", "VALUES(blocked_until)",
	"{turn}", "VALUES(reason)", "[", "headgate_cells.", "]", "", "@", "@hg_one_",
)

// oneTexts are the statements by their numbers: for each anchor those that fail for a cell
// that no charge has touched, and then those that do not.
var oneTexts = sync.OnceValue(func() (texts [4]string) {
	t := template.Must(template.New("").Parse(oneText))
	for i := range texts {
		var b strings.Builder
		if err := t.ExecuteTemplate(&b, "one", struct{ Epoch, Fresh bool }{i%2 == 1, i >= 2}); err != nil {
			panic(err) // it is embedded
		}
		texts[i] = oneNames.Replace(oneSpace(b.String()))
	}
	return texts
})

// one returns the statement for a lone charge. Unless fresh it fails for a cell that no
// charge has touched. The turn is another one for each.
func (p *plan) one(fresh bool, turn int64) lone {
	op := &p.ops[0]
	l := lone{number: int(op.Params.Anchor), turn: strconv.FormatInt(turn, 10)}
	if fresh {
		l.number += 2
	}
	values := [...]driver.Value{
		op.Cell.Limit, op.Cell.Key, op.Cell.Limit, op.Cell.Key,
		op.Cost * op.Count, p.room(), op.Params.HealAfter(), op.Params.Unit, op.Params.Step, max(op.Params.Drain, 1),
		op.Now, l.turn,
	}
	l.values = make([]driver.NamedValue, len(values))
	for i, v := range values {
		l.values[i] = driver.NamedValue{Ordinal: i + 1, Value: v}
	}
	return l
}
