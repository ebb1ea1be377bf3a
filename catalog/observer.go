package catalog

import "time"

// Observer receives the events of a catalog, for metrics. Several goroutines call its methods
// at once, and each waits until the method returns.
type Observer interface {
	// Refreshed is called after each read of the catalog.
	Refreshed(Refresh)
	// Applied is called after each attempt to apply a file. headgate serve calls it also for a file that
	// cannot be read.
	Applied(Application)
}

// Refresh is one read of the catalog, which looks for a newer version.
type Refresh struct {
	Version int64 // the version in force after the read; 0: none was ever read, or written
	Took    time.Duration
	Err     error // why nothing was read; the version that was read before stays in force
}

// Application is an attempt to apply a file.
type Application struct {
	Path string // the file's; several are joined
	// Standing is FileNew if the file was put into force, FileNewest if it was in force already, FileOlder if it is not
	// applied. With an error it says nothing.
	Standing Standing
	Version  int64 // the catalog's version afterwards; 0 with an error
	Err      error // why nothing was changed
}

// noObserver ignores all events, for a Config without an Observer.
type noObserver struct{}

func (noObserver) Refreshed(Refresh)   {}
func (noObserver) Applied(Application) {}
