package coalesce

// Waiting returns a Config with a limit of waiting callers.
func Waiting(flights, callers int) *Config { return &Config{Flights: flights, maxWaiting: callers} }
