package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// Exit codes.
const (
	exitFound       = 0
	exitNotFound    = 1
	exitError       = 2
	exitInterrupted = 130
)

// summary is what became of all faults.
type summary struct {
	Faults        int     `json:"faults"`
	Found         int     `json:"found"`
	MedianSeeds   int64   `json:"median_seeds"`
	MedianSeconds float64 `json:"median_seconds"`
	Interrupted   bool    `json:"interrupted,omitempty"`
}

// report prints the results, and returns the exit code.
func report(list []result, interrupted, asJSON bool, w io.Writer) int {
	s := summarize(list)
	s.Interrupted = interrupted
	if asJSON {
		out := json.NewEncoder(w)
		out.SetEscapeHTML(false)
		for i := range list {
			_ = out.Encode(&list[i])
		}
		_ = out.Encode(&s)
	} else {
		table(list, w)
		fmt.Fprintf(w, "%d of %d found, median %d seeds, median %s\n", s.Found, s.Faults, s.MedianSeeds,
			seconds(s.MedianSeconds))
	}
	switch {
	case interrupted:
		return exitInterrupted
	case s.Found < s.Faults:
		return exitNotFound
	}
	return exitFound
}

// table prints a line for each fault.
func table(list []result, w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "FAULT\tRESULT\tSEEDS\tTIME\tRULE")
	for i := range list {
		r := &list[i]
		said, rule := "found", r.Rule
		if !r.Found {
			said, rule = "NOT FOUND", r.Text
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\n", r.Fault, said, r.Seeds, seconds(r.Seconds), rule)
	}
	_ = t.Flush()
}

// summarize counts. The medians are those of the faults that were found.
func summarize(list []result) summary {
	s := summary{Faults: len(list)}
	var seeds []int64
	var times []float64
	for i := range list {
		if r := &list[i]; r.Found {
			seeds, times = append(seeds, r.Seeds), append(times, r.Seconds)
		}
	}
	s.Found, s.MedianSeeds, s.MedianSeconds = len(seeds), median(seeds), median(times)
	return s
}

// median returns the value in the middle; of two the mean, and 0 of none.
func median[T int64 | float64](list []T) T {
	if len(list) == 0 {
		return 0
	}
	slices.SortFunc(list, cmp.Compare[T])
	half := len(list) / 2
	if len(list)%2 == 1 {
		return list[half]
	}
	return (list[half-1] + list[half]) / 2
}

// seconds writes a time in tenths of a second.
func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(100 * time.Millisecond).String()
}
