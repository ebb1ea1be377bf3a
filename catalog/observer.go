package catalog

import "time"

// Observer receives the events of a catalog, for metrics. Its methods are called by several
// goroutines at once, and hold up what they are called for until they return.
type Observer interface {
	// Looked is called after each look at the store.
	Looked(Look)
	// Applied is called after each attempt to apply a file. headgate serve reports a file that cannot be
	// read too.
	Applied(Application)
}

// Look is one look at the store for a newer version.
type Look struct {
	Version int64 // that is in force after it; 0: none was ever read
	Took    time.Duration
	Err     error // why nothing was read; what was read before stays in force
}

// Application is an attempt to apply a file.
type Application struct {
	Path    string // the file's; several are joined
	Known   Known  // whether the file was applied before: Newest and Older change nothing unless forced
	Version int64  // of the catalog afterwards; 0 with an error
	Err     error  // why nothing was changed
}

// unobserved stands in the place of an Observer where there is none.
type unobserved struct{}

func (unobserved) Looked(Look)         {}
func (unobserved) Applied(Application) {}
