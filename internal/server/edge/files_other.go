//go:build !unix

package edge

import "math"

// maxOpenFiles returns how many files this process may have open. Here the limit is unknown.
func maxOpenFiles() int { return math.MaxInt32 }
