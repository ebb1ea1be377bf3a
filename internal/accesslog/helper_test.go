package accesslog

import "time"

// at returns microseconds as a time.
func at(us int64) time.Time { return time.UnixMicro(us).UTC() }
