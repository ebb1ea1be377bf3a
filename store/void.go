package store

import "github.com/headgate/headgate/law"

// Void clears the outcomes that mean nothing after an Apply that failed: all
// that have no Err. A driver that fills in outcomes before its commit calls it
// when the commit fails. A wrapper calls it because it cannot know whether the
// store behind it does.
func Void(outs []law.Outcome) {
	for i := range outs {
		if outs[i].Err == nil {
			outs[i] = law.Outcome{}
		}
	}
}
