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

// outputFlag is the value of -o: true is JSON, and false text.
type outputFlag bool

func (o *outputFlag) addFlag(cmd *cobra.Command) {
	cmd.Flags().VarP(o, "output", "o", "`text|json`: for people, or for programs")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"text", "json"},
		cobra.ShellCompDirectiveNoFileComp))
}

// String implements pflag.Value.
func (o *outputFlag) String() string {
	if *o {
		return "json"
	}
	return ""
}

// Set implements pflag.Value.
func (o *outputFlag) Set(text string) error {
	if text != "text" && text != "json" {
		return headgate.Invalid("output", "is text or json")
	}
	*o = text == "json"
	return nil
}

// Type implements pflag.Value.
func (o *outputFlag) Type() string { return "text|json" }

// print prints an answer: as JSON, or as text by printText.
func (o outputFlag) print(w io.Writer, answer any, printText func(io.Writer) error) error {
	if o {
		return printJSON(w, answer)
	}
	return printText(w)
}

func printJSON(w io.Writer, v any) error { return json.NewEncoder(w).Encode(v) }

// table aligns columns, below their names if it has some. Flush writes it, and returns the first error.
type table struct{ *tabwriter.Writer }

func newTable(w io.Writer, names ...string) table {
	t := table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	if len(names) > 0 {
		t.row(names...)
	}
	return t
}

func (t table) row(fields ...string) { fmt.Fprintln(t, strings.Join(fields, "\t")) }

// formatMicros formats a time of the store, in microseconds since 1970, for people.
func formatMicros(us int64) string { return formatTime(time.UnixMicro(us)) }

func formatTime(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05 MST") }

// formatMillis formats a duration in milliseconds for people.
func formatMillis(ms int64) string { return service.Span(time.Duration(ms) * time.Millisecond) }

// formatDelay formats the milliseconds after which a charge can pass; nil means never.
func formatDelay(ms *int64) string {
	switch {
	case ms == nil:
		return "never"
	case *ms == 0:
		return "now"
	}
	return formatMillis(*ms)
}

// formatAmount rounds an amount for people: to one decimal, or to as many, at most nine, as show that it is not 0.
func formatAmount(amount json.Number) string {
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

// quoteKey quotes a key that is empty, or has quotes, backslashes or characters that a terminal does not print.
func quoteKey(k string) string {
	if q := strconv.Quote(k); q[1:len(q)-1] != k || k == "" {
		return q
	}
	return k
}

// quoteText quotes text as quoteKey does, unless it is empty.
func quoteText(s string) string {
	if s == "" {
		return ""
	}
	return quoteKey(s)
}

// reasonSuffix formats a reason for the end of a line; it is empty if there is no reason.
func reasonSuffix(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + quoteKey(reason)
}

// appliedSuffix formats the plan or override that replaces a limit, for the end of a line; it may be empty.
func appliedSuffix(applied string) string {
	if applied == "" {
		return ""
	}
	return ", by " + quoteKey(applied)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// namesShown is how many names joinNames lists at most, and didYouMean suggests at most.
const namesShown = 10

// joinNames lists up to namesShown names, and how many more there are.
func joinNames(names []string) string {
	if hidden := len(names) - namesShown; hidden > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:namesShown], ", "), hidden)
	}
	return strings.Join(names, ", ")
}
