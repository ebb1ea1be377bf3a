package grpclimit

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/metadata"

	"github.com/headgate/headgate"
)

// Call is a call for a KeyFunc or a CostFunc, which must not change or keep it.
type Call struct {
	// Context is the call's.
	Context context.Context
	// Method is the full name of the method, such as "/pkg.Service/Method".
	Method string
	// Target is the target of the client's connection. It is empty on a server.
	Target string
	// Metadata is the client's; names are in lower case. It may be nil.
	Metadata metadata.MD
	// Message is the request of a unary call, and of a charge with PerMessage the message that was received. It is
	// nil when a stream starts.
	Message any
}

// CostFunc says what a call costs. The zero Cost is 1, and headgate.Units(0) nothing. Its errors mean what those of
// a [KeyFunc] mean. CostFuncs are safe for concurrent use.
type CostFunc func(*Call) (headgate.Cost, error)

// exempt are the services that are charged only by a charge that names them.
var exempt = []string{
	"/grpc.health.v1.Health/", "/grpc.reflection.v1.ServerReflection/", "/grpc.reflection.v1alpha.ServerReflection/",
}

// selected reports whether a method is one of some, which are full names or services; nil: all that are not exempt.
func selected(methods []string, method string) bool {
	if len(methods) == 0 {
		return !within(exempt, method)
	}
	return within(methods, method)
}

func within(methods []string, method string) bool {
	return slices.ContainsFunc(methods, func(m string) bool {
		return m == method || strings.HasSuffix(m, "/") && strings.HasPrefix(method, m)
	})
}

// checkMethods returns which name is neither that of a method nor that of a service.
func checkMethods(methods []string) error {
	for _, m := range methods {
		service, _, ok := strings.Cut(strings.TrimPrefix(m, "/"), "/")
		if !ok || service == "" || !strings.HasPrefix(m, "/") {
			return invalid("Methods", "%.100q is neither a method such as /pkg.Service/Method nor a service such as "+
				"/pkg.Service/", m)
		}
	}
	return nil
}

// checkLimit returns what is wrong with the limit of a charge.
func checkLimit(limit headgate.Limit) error {
	switch {
	case limit.IsZero():
		return invalid("Limit", "is missing")
	case limit.Concurrency():
		return invalid("Limit", "%s is acquired and released, not taken", limit)
	}
	return nil
}

func invalid(field, format string, args ...any) error {
	return fmt.Errorf("grpclimit: %w", headgate.Invalid(field, format, args...))
}
