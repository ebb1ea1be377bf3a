package check

import "github.com/headgate/headgate/internal/history"

type Violation struct {
	Rule   string
	Events []int
	Text   string
}

func (v Violation) String() string { return v.Rule + ": " + v.Text }

func Check(h *history.History) []Violation { return nil }
