package replay

import "io"

// WriteHTML writes one page.
func (r *Report) WriteHTML(w io.Writer) error { return nil }
