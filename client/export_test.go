package client

// CloseTransport closes the transport of the client, and not the client.
func (c *Client) CloseTransport() { c.transport.close() }

// WithMaxWaiting returns a Config with a number of connections, and a bound on the callers that wait.
func WithMaxWaiting(connections, maxWaiting int) *Config {
	return &Config{Connections: connections, maxWaiting: maxWaiting}
}
