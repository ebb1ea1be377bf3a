package envoypb_test

import (
	"testing"

	_ "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/headgate/headgate/internal/server/envoy/envoypb"
	"github.com/headgate/headgate/internal/testing/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestTheMessagesAreEnvoys compares each field with that of go-control-plane. What the rate limit service is asked and
// answers lacks none.
func TestTheMessagesAreEnvoys(t *testing.T) {
	t.Parallel()
	own, messages := envoypb.Files.NumFiles(), 0
	envoypb.Files.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		theirs, err := protoregistry.GlobalFiles.FindFileByPath(f.Path())
		if err != nil {
			t.Error(err)
			return true
		}
		for i := range f.Enums().Len() {
			sameEnum(t, f.Enums().Get(i), theirs.Enums().ByName(f.Enums().Get(i).Name()))
		}
		for i := range f.Messages().Len() {
			m := f.Messages().Get(i)
			whole := m.Name() == "RateLimitDescriptor" || f.Package() == "envoy.service.ratelimit.v3"
			sameMessage(t, m, theirs.Messages().ByName(m.Name()), whole)
			messages++
		}
		return true
	})
	if own != 5 || messages != 8 {
		t.Errorf("%d files with %d messages were compared", own, messages)
	}
}

func sameMessage(t *testing.T, m, theirs protoreflect.MessageDescriptor, whole bool) {
	t.Helper()
	if theirs == nil {
		t.Fatalf("%s is not Envoy's", m.FullName())
	}
	if whole && m.Fields().Len() != theirs.Fields().Len() {
		t.Errorf("%s has %d fields, Envoy's has %d", m.FullName(), m.Fields().Len(), theirs.Fields().Len())
	}
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		of := theirs.Fields().ByNumber(f.Number())
		if of == nil || of.Name() != f.Name() || of.Kind() != f.Kind() || of.Cardinality() != f.Cardinality() ||
			of.IsPacked() != f.IsPacked() || of.IsMap() != f.IsMap() || of.HasPresence() != f.HasPresence() ||
			of.JSONName() != f.JSONName() ||
			f.Message() != nil && f.Message().FullName() != of.Message().FullName() ||
			f.Enum() != nil && f.Enum().FullName() != of.Enum().FullName() {
			t.Errorf("%s is not as Envoy's: %v, %v", f.FullName(), f, of)
		}
	}
	for i := range m.Enums().Len() {
		sameEnum(t, m.Enums().Get(i), theirs.Enums().ByName(m.Enums().Get(i).Name()))
	}
	for i := range m.Messages().Len() {
		n := m.Messages().Get(i)
		sameMessage(t, n, theirs.Messages().ByName(n.Name()), whole)
	}
}

func sameEnum(t *testing.T, e, theirs protoreflect.EnumDescriptor) {
	t.Helper()
	if theirs == nil || theirs.Values().Len() != e.Values().Len() {
		t.Fatalf("%s: %v, Envoy's is %v", e.FullName(), e, theirs)
	}
	for i := range e.Values().Len() {
		v, of := e.Values().Get(i), theirs.Values().Get(i)
		if v.Name() != of.Name() || v.Number() != of.Number() {
			t.Errorf("%s is %d, Envoy's %s %d", v.FullName(), v.Number(), of.Name(), of.Number())
		}
	}
}
