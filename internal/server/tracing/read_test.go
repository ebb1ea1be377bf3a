package tracing

import (
	"errors"
	"testing"

	"github.com/headgate/headgate"
)

func TestSettingsOfVariables(t *testing.T) {
	type vars map[string]string
	for _, c := range []struct {
		vars          vars
		enabled, grpc bool
		field         string // the variable that is invalid
	}{
		{vars{}, false, false, ""},
		{vars{"OTEL_SERVICE_NAME": "x", "OTEL_TRACES_SAMPLER": "always_on"}, false, false, ""},
		{vars{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, true, false, ""},
		{vars{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, true, false, ""},
		{vars{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, true, true, ""},
		{vars{
			"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
			"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc",
		}, true, true, ""},
		{vars{"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, false, false, ""},
		{vars{"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, false, false, ""},
		{vars{"OTEL_TRACES_EXPORTER": "zipkin"}, false, false, "OTEL_TRACES_EXPORTER"},
		{vars{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, false, false, "OTEL_EXPORTER_OTLP_PROTOCOL"},
		{vars{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_PROPAGATORS": "b3"}, false, false, "OTEL_PROPAGATORS"},
		{vars{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_PROPAGATORS": "tracecontext, none"}, true, false, ""},
	} {
		s, err := readSettings(func(name string) string { return c.vars[name] })
		invalid, _ := errors.AsType[*headgate.InvalidError](err)
		switch {
		case c.field != "" && (invalid == nil || invalid.Field != c.field), c.field == "" && err != nil:
			t.Errorf("%v: got %v, want an error of %q", c.vars, err, c.field)
		case c.field == "" && (s.enabled != c.enabled || s.grpc != c.grpc):
			t.Errorf("%v: got %+v, want on %v, grpc %v", c.vars, s, c.enabled, c.grpc)
		}
	}
}
