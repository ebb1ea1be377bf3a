package httpkey

import (
	"net"
	"strings"
)

// HostName returns the name or address in a Host header, in the form in which hosts are compared: in lower
// case, without port, brackets and the dot at the end of a fully qualified name.
func HostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	} else if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		host = host[1 : len(host)-1]
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}
