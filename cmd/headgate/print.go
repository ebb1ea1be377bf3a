package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/service"
)

// printing is how a command prints: JSON for programs if it is true, else text for people.
type printing bool

// flag adds -o to a command.
func (o *printing) flag(cmd *cobra.Command) {
	cmd.Flags().VarP(o, "output", "o", "`text|json`: for people, or for programs")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"text", "json"},
		cobra.ShellCompDirectiveNoFileComp))
}

// String implements pflag.Value.
func (o *printing) String() string {
	if *o {
		return "json"
	}
	return ""
}

// Set implements pflag.Value.
func (o *printing) Set(text string) error {
	if text != "text" && text != "json" {
		return headgate.Invalid("output", "is text or json")
	}
	*o = text == "json"
	return nil
}

// Type implements pflag.Value.
func (o *printing) Type() string { return "text|json" }

// print prints an answer.
func (o printing) print(w io.Writer, answer any, text func(io.Writer) error) error {
	if o {
		return printJSON(w, answer)
	}
	return text(w)
}

func printJSON(w io.Writer, v any) error { return json.NewEncoder(w).Encode(v) }

// table aligns columns below their names. The first error of writing it is that of Flush.
type table struct{ *tabwriter.Writer }

func newTable(w io.Writer, names ...string) table {
	t := table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	if len(names) > 0 {
		t.row(names...)
	}
	return t
}

func (t table) row(fields ...string) { fmt.Fprintln(t, strings.Join(fields, "\t")) }

// instant writes a time of the store for people.
func instant(us int64) string { return moment(time.UnixMicro(us)) }

func moment(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05 MST") }

// span writes milliseconds for people.
func span(ms int64) string { return service.Span(time.Duration(ms) * time.Millisecond) }

// after writes after how many milliseconds something can pass; nil: never.
func after(ms *int64) string {
	switch {
	case ms == nil:
		return "never"
	case *ms == 0:
		return "now"
	}
	return span(*ms)
}

// short writes an amount for people: with one decimal, or as many as show that it is not 0.
func short(amount json.Number) string {
	text := amount.String()
	f, err := strconv.ParseFloat(text, 64)
	if _, decimals, _ := strings.Cut(text, "."); err != nil || len(decimals) < 2 {
		return text
	}
	digits := 1
	for f != 0 && math.Abs(f)*math.Pow10(digits) < 1 && digits < 9 {
		digits++
	}
	text = strconv.FormatFloat(f, 'f', digits, 64)
	return strings.TrimRight(strings.TrimRight(text, "0"), ".")
}

// key writes a key so that a terminal shows it and nothing else happens.
func key(k string) string {
	if q := strconv.Quote(k); q[1:len(q)-1] != k || k == "" {
		return q
	}
	return k
}

// text formats a key that may be empty.
func text(s string) string {
	if s == "" {
		return ""
	}
	return key(s)
}

// given writes a reason, if there is one.
func given(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + key(reason)
}

// instead writes what is in force in the place of a limit itself, if anything is.
func instead(applied string) string {
	if applied == "" {
		return ""
	}
	return ", by " + key(applied)
}

// yes writes an answer.
func yes(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}

// namesShown is how many names are listed where there may be many.
const namesShown = 10

// few lists some names, and says how many more there are.
func few(names []string) string {
	if more := len(names) - namesShown; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:namesShown], ", "), more)
	}
	return strings.Join(names, ", ")
}
