package service_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/server/api"
	"github.com/headgate/headgate/server/config"
	"github.com/headgate/headgate/server/service"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

func TestProblemsTellWhetherAnythingWasCharged(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err    error
		status int
		kind   string
		says   string
	}{
		{service.Invalid("key", "is bad"), 400, "", "key: is bad"},
		{headgate.ErrUnsupported, 501, "", ""},
		{store.ErrUnavailable, 503, "", "Nothing was charged"},
		{store.ErrBusy, 503, api.Busy, "Nothing was charged"},
		{store.ErrUnknownOutcome, 503, api.OutcomeUnknown, "not known"},
		{context.DeadlineExceeded, 504, api.OutcomeUnknown, "not known"},
	} {
		p := service.Problem(fmt.Errorf("%w: secret", tt.err))
		if p.Status != tt.status || p.Type != tt.kind || !strings.Contains(p.Detail, tt.says) {
			t.Errorf("%v: %+v", tt.err, p)
		}
		if tt.status != 400 && strings.Contains(p.Detail, "secret") {
			t.Errorf("%v: what is wrong here is told: %s", tt.err, p.Detail)
		}
	}
}

// TestNotationsAreNotKeptForEver asks with more limits than are remembered.
func TestNotationsAreNotKeptForEver(t *testing.T) {
	t.Parallel()
	s := service.New(headgate.New(memory.New(nil), nil), &config.Config{})
	for round := range 2 {
		for i := range 2500 {
			r := &api.Request{Charge: api.Charge{Limit: fmt.Sprintf("token-bucket %d/1h burst 1", i+1), Key: "k"}}
			d, err := s.Take(t.Context(), r, false)
			if err != nil || d.Limit != r.Limit || round == 0 && !d.Allowed {
				t.Fatalf("%s: %+v, %v", r.Limit, d, err)
			}
		}
	}
}
