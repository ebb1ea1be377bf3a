package coalesce

// ConfigWithMaxWaiting returns a Config with a bound of waiting callers.
func ConfigWithMaxWaiting(flights, callers int) *Config {
	return &Config{Flights: flights, maxWaiting: callers}
}
