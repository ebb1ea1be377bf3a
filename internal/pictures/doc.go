// Package pictures draws the pictures of the documentation. What they show is decided by the limiter itself, over a
// memory store on a clock that the package moves, so that a picture is always what the code does: a test compares
// the files in docs/pictures with what is drawn, and writes them again with -update.
//
// The charts of package replay are parts of an HTML page, in two sizes, about one key of a log that somebody has. They
// know no leases, so this package has charts of its own. Both take their colours from package palette.
package pictures
