package tracing

import (
	"errors"
	"testing"

	"github.com/headgate/headgate"
)

func TestVariables(t *testing.T) {
	type vars map[string]string
	for _, c := range []struct {
		vars     vars
		on, grpc bool
		field    string // that is wrong
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
		wrong, _ := errors.AsType[*headgate.InvalidError](err)
		switch {
		case c.field != "" && (wrong == nil || wrong.Field != c.field), c.field == "" && err != nil:
			t.Errorf("%v: %v", c.vars, err)
		case c.field == "" && (s.on != c.on || s.grpc != c.grpc):
			t.Errorf("%v: %+v", c.vars, s)
		}
	}
}
