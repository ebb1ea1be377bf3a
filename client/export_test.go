package client

// CloseTransport closes what the calls of the client go through, and not the client.
func (c *Client) CloseTransport() { c.wire.close() }

// Waiting returns a Config by which so many callers may wait.
func Waiting(connections, callers int) *Config {
	return &Config{Connections: connections, maxWaiting: callers}
}
