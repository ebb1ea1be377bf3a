package store

import "github.com/headgate/headgate/law"

// Void clears the outcomes without an Err, which mean nothing after an Apply that failed. A driver that fills in
// outcomes before its commit calls Void when the commit fails. A wrapper calls Void because it cannot know whether the
// store behind it does.
func Void(outs []law.Outcome) {
	for i := range outs {
		if outs[i].Err == nil {
			outs[i] = law.Outcome{}
		}
	}
}
