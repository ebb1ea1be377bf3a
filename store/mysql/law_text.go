package mysql

import (
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/template"

	"github.com/headgate/headgate/law"
)

var (
	//go:embed decide.tmpl
	decideText string
	//go:embed giveback.tmpl
	giveBackText string
	//go:embed admission.tmpl
	admissionText string
	//go:embed rooms.tmpl
	roomsText string
)

// shape says which parts of the laws a statement needs, so that it carries no
// others.
type shape struct {
	Bucket, Window, Log                  bool // laws
	Single, Groups, Return, Block, Reset bool // kinds of rows
	Anchor                               int  // of all buckets, plus one; 0: they may differ
	Plain                                bool // of plain cells: see plan_plain.go
	Put                                  bool // what goes into the log is put together for one statement
	Settle, Renew, Once, Extend          bool // kinds of rows too: see admission.tmpl
	IDs, Late                            bool // some requests have an ID; some may start late
	Timed                                bool // what some ask holds for a time only
	Admit                                bool // what is remembered is put together too
	Mark                                 bool // what became of each op that settles is put together in @marks
	More                                 bool // charges may be corrected upwards
	Parts                                bool // charges of two parts may be settled, to buckets or windows
	Rooms                                bool // it is decided for each cell whether its limit is full: see rooms.tmpl
	Guard                                bool // it fails where a cell is missing while a limit shares
	Known                                bool // only within the templates: see Remembered and First
}

// Only tells whether all rows are requests of one charge.
func (s shape) Only() bool {
	return s.Single && !s.Groups && !s.Return && !s.Block && !s.Reset && !s.Settle && !s.Renew && !s.Once &&
		!s.Extend
}

// Remembered is the shape for corrections of charges that are remembered with an
// ID, so that not the op says what they were.
func (s shape) Remembered() shape {
	s.Known = true
	return s
}

// First is the shape for a correction that follows another one in the same row: of what was
// charged before the last extension, and never upwards. A log has no such two parts.
func (s shape) First() shape {
	s.Known, s.More, s.Log = true, false, false
	return s
}

// Had is what a charge to be corrected has left: a number of the op, or one that
// is remembered.
func (s shape) Had(name string) string {
	if s.Known {
		return "@had_" + name
	}
	return "{" + name + "}"
}

// piece of a sequence: text, then what is to be put after it.
type piece struct {
	text   string
	column string // of headgate_cells; or
	param  int    // of the op; -1: none
}

// sequence is the laws as a list of assignments, cut at what differs from
// statement to statement.
type sequence []piece

// render writes the sequence with the columns and parameters in their places.
func (s sequence) render(b *strings.Builder, column func(name string) string, param func(p int) string) {
	for i := range s {
		b.WriteString(s[i].text)
		switch {
		case s[i].column != "":
			b.WriteString(column(s[i].column))
		case s[i].param >= 0:
			b.WriteString(param(s[i].param))
		}
	}
}

var sequences sync.Map // shape -> sequence

// sequenceOf returns the laws for statements of a shape.
func sequenceOf(s shape) sequence {
	if known, ok := sequences.Load(s); ok {
		return known.(sequence)
	}
	var b strings.Builder
	if err := laws(s).ExecuteTemplate(&b, "sequence", s); err != nil {
		panic(err) // it is embedded
	}
	cut := cut(b.String())
	sequences.Store(s, cut)
	return cut
}

var placeholder = regexp.MustCompile(`\[(\w+)\]|\{(\w+)\}`)

// oneSpace returns a text with one space wherever there is white space. The expression \s+ took a tenth of the time of
// this package's tests.
func oneSpace(text string) string {
	var b strings.Builder
	b.Grow(len(text))
	space := false
	for i := range len(text) {
		switch c := text[i]; c {
		case ' ', '\n', '\t', '\r', '\f':
			space = true
		default:
			if space {
				b.WriteByte(' ')
				space = false
			}
			b.WriteByte(c)
		}
	}
	if space {
		b.WriteByte(' ')
	}
	return b.String()
}

// cut cuts a text at its placeholders. Variables get a prefix that keeps them
// apart from the caller's own.
func cut(text string) sequence {
	text = oneSpace(strings.ReplaceAll(text, "@", "@hg_"))
	var s sequence
	from := 0
	for _, m := range placeholder.FindAllStringSubmatchIndex(text, -1) {
		p := piece{text: text[from:m[0]], param: -1}
		if m[2] >= 0 {
			p.column = text[m[2]:m[3]]
		} else if p.param = paramIndex(text[m[4]:m[5]]); p.param < 0 {
			panic("decide.tmpl: unknown parameter " + text[m[4]:m[5]])
		}
		s = append(s, p)
		from = m[1]
	}
	return append(s, piece{text: text[from:], param: -1})
}

// laws is decide.tmpl with giveback.tmpl, admission.tmpl and rooms.tmpl. Its functions
// are a row's way to what depends on its law or anchor, to the memory of a request's
// first pass, and to what is remembered of an ID: see law_memory.go.
func laws(s shape) *template.Template {
	t := template.New("")
	t.Funcs(memoryFuncs).Funcs(template.FuncMap{
		"bylaw":    func(s shape, section string) (string, error) { return bylaw(t, s, section) },
		"byanchor": func(section string) (string, error) { return byanchor(t, s, section) },
		"section":  func(name string, s shape) (string, error) { return unlessFull(t, s, name) },
		"extending": func(s shape, section string) (string, error) {
			return extending(t, s, section)
		},
		"pass": passNumber,
	})
	for _, text := range []string{decideText, giveBackText, admissionText, roomsText} {
		template.Must(t.Parse(text))
	}
	return t
}

// passNumber returns the number of a pass.
func passNumber(name string) (int, error) {
	n, ok := passNames[name]
	if !ok {
		return 0, fmt.Errorf("there is no pass %q", name)
	}
	return n, nil
}

// unlessFull returns a section of one row, or what says that its op is Full.
func unlessFull(t *template.Template, s shape, section string) (string, error) {
	var b strings.Builder
	if err := t.ExecuteTemplate(&b, section, s); err != nil || !s.Rooms {
		return b.String(), err
	}
	text := b.String()
	b.Reset()
	err := t.ExecuteTemplate(&b, "unless full", text)
	return b.String(), err
}

// charging makes the text that decides a charge one that decides what an op costs more.
var charging = strings.NewReplacer("{cost}", "@more", "{verb}", strconv.Itoa(int(law.Take)))

// extending returns a section that decides what is charged in addition to a charge.
func extending(t *template.Template, s shape, section string) (string, error) {
	s.Late = false
	var b strings.Builder
	if err := t.ExecuteTemplate(&b, section, s); err != nil {
		return "", err
	}
	return charging.Replace(b.String()), nil
}

// byanchor returns a section as the anchor of each row has it.
func byanchor(t *template.Template, s shape, section string) (string, error) {
	arms := [3]string{"own", "epoch", "calendar"}
	for i, name := range arms {
		var b strings.Builder
		if err := t.ExecuteTemplate(&b, section+" "+name, nil); err != nil {
			return "", err
		}
		arms[i] = b.String()
	}
	if s.Anchor > 0 {
		return arms[s.Anchor-1], nil
	}
	return "CASE {anchor} WHEN 0 THEN " + arms[0] + " WHEN 1 THEN " + arms[1] + " ELSE " + arms[2] + " END", nil
}

// bylaw returns a section as the law of each row has it.
func bylaw(t *template.Template, s shape, section string) (string, error) {
	var texts []string
	var kinds []law.Kind
	for _, l := range []struct {
		wanted bool
		name   string
		kind   law.Kind
	}{{s.Bucket, "bucket", law.Bucket}, {s.Window, "window", law.Window}, {s.Log, "log", law.Log}} {
		if !l.wanted {
			continue
		}
		var b strings.Builder
		if err := t.ExecuteTemplate(&b, section+" "+l.name, s); err != nil {
			return "", err
		}
		texts, kinds = append(texts, b.String()), append(kinds, l.kind)
	}
	if len(texts) == 1 {
		return texts[0], nil
	}
	for i := range texts {
		texts[i] = fmt.Sprintf("IF({kind} = %d, GREATEST(0, %s), 0)", kinds[i], texts[i])
	}
	return strings.Join(texts, ", "), nil
}

// variables are the user variables of the laws. They are set to integers
// before each batch, since an expression takes their type, and so its own,
// when it is prepared.
var variables = sync.OnceValue(func() string {
	var b strings.Builder
	b.WriteString("SET ")
	for _, name := range variablesOf(decideText) {
		if name != "r" && name != "undo" && name != "pend" && name != "nolog" && name != "plain" && name != "put" &&
			name != "wipe" {
			b.WriteString("@hg_" + name + "=0,")
		}
	}
	for i, name := range []string{"r", "out", "pend", "nolog", "undo", "entries"} {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString("@hg_" + name + "=CAST('' AS BINARY)")
	}
	// the character set of numbers
	b.WriteString(",@hg_plain=CONVERT(';' USING latin1),@hg_put=CONVERT('' USING latin1),@hg_wipe=CONVERT('' USING " +
		"latin1)")
	// whether COMMIT has begun
	b.WriteString(",@hg_end=0;")
	return b.String()
})

// moreVariables are those that only the return rule has, nameVariables those that
// only admission.tmpl has, and roomVariables those of rooms.tmpl.
var (
	roomVariables = "SET @hg_full=0;"
	moreVariables = sync.OnceValue(func() string { return newVariables(giveBackText) })
	nameVariables = sync.OnceValue(func() string {
		return newVariables(admissionText, "known", "m", "memo", "names", "marks")
	})
)

// newVariables sets the variables of a text that decide.tmpl does not have.
func newVariables(text string, texts ...string) string {
	known := variablesOf(decideText)
	var set []string
	for _, name := range variablesOf(text) {
		switch {
		case slices.Contains(texts, name):
			set = append(set, "@hg_"+name+"=CAST('' AS BINARY)")
		case !slices.Contains(known, name):
			set = append(set, "@hg_"+name+"=0")
		}
	}
	return "SET " + strings.Join(set, ",") + ";"
}

// variablesOf returns the variables of a text, each once.
func variablesOf(text string) (list []string) {
	for _, name := range regexp.MustCompile(`@\w+`).FindAllString(text, -1) {
		if name = name[1:]; !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return list
}
