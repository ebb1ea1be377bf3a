package grpclimit

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/metadata"

	"github.com/headgate/headgate"
)

// Call describes a call to a KeyFunc or a CostFunc, which must not change or keep it.
type Call struct {
	Context context.Context
	// Method is the full name of the method, such as "/pkg.Service/Method".
	Method string
	// Target is the target of the client's connection. It is empty on a server.
	Target string
	// Metadata is what the client sends; names are in lower case. It may be nil.
	Metadata metadata.MD
	// Message is the request of a unary call, or for a charge with PerMessage the received message. It is
	// nil when a stream starts.
	Message any
}

// CostFunc returns the cost of a call. The zero Cost is 1, and headgate.Units(0) nothing. Errors end the call like
// the errors of a [KeyFunc]. CostFuncs are safe for concurrent use.
type CostFunc func(*Call) (headgate.Cost, error)

// exemptServices are charged only if Methods names them.
var exemptServices = []string{
	"/grpc.health.v1.Health/", "/grpc.reflection.v1.ServerReflection/", "/grpc.reflection.v1alpha.ServerReflection/",
}

// selectsMethod reports whether methods contains a method; empty methods are all but those of exempt services.
func selectsMethod(methods []string, method string) bool {
	if len(methods) == 0 {
		return !containsMethod(exemptServices, method)
	}
	return containsMethod(methods, method)
}

func containsMethod(methods []string, method string) bool {
	return slices.ContainsFunc(methods, func(m string) bool {
		return m == method || strings.HasSuffix(m, "/") && strings.HasPrefix(method, m)
	})
}

// checkMethods returns an error for the first name that is neither of a method nor of a service.
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
