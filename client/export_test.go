package client

// Waiting returns a Config by which so many callers may wait.
func Waiting(connections, callers int) *Config {
	return &Config{Connections: connections, maxWaiting: callers}
}
