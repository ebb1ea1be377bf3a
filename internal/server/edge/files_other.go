//go:build !unix

package edge

import "math"

// openFiles returns how many files this process may have open. Here the limit is unknown.
func openFiles() int { return math.MaxInt32 }
