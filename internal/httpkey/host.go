package httpkey

import (
	"net"
	"strings"
)

// HostName returns the name or address of a Host header, in the form in which hosts are compared: without a
// port, in lower case, without the dot that a full name may end with, an IPv6 address without brackets.
func HostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	} else if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		host = host[1 : len(host)-1]
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}
