package coalesce

// Waiting returns a Config by which so many callers may wait.
func Waiting(flights, callers int) *Config { return &Config{Flights: flights, maxWaiting: callers} }
