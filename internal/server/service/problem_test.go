package service_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/store"
)

func TestProblemsSayWhetherAnythingWasCharged(t *testing.T) {
	t.Parallel()
	const nothing, unknown = "Nothing was charged.", "It is not known whether anything was charged."
	both := func(errs ...error) error { return fmt.Errorf("%w, %w", errs[0], errs[1]) }
	for _, tt := range []struct {
		err         error
		status      int
		problemType string
		want        string
	}{
		{headgate.Invalid("key", "is bad"), 400, "", "key: is bad"},
		{headgate.ErrUnsupported, 501, "", ""},
		{headgate.ErrUnknownID, 404, api.IDUnknown, "no request of this id"},
		{headgate.ErrReused, 409, api.IDReused, "used for other charges"},
		{headgate.ErrSettled, 409, api.IDSettled, "settled"},
		{store.ErrConflict, 503, api.Unavailable, nothing},
		{store.ErrUnavailable, 503, api.Unavailable, nothing},
		{store.ErrBusy, 503, api.Busy, nothing},
		{store.ErrNoSpace, 503, api.Unavailable, nothing},
		{store.ErrReadOnly, 503, api.Unavailable, nothing},
		{store.ErrSetup, 503, api.Unavailable, nothing},
		{store.ErrSchemaNewer, 503, api.Unavailable, nothing},
		{store.ErrFull, 503, api.Full, nothing},
		{store.ErrClosed, 503, api.Unavailable, nothing},
		{store.ErrUnknownOutcome, 503, api.OutcomeUnknown, unknown},
		{headgate.ErrLeaseLost, 503, api.OutcomeUnknown, unknown},
		{context.DeadlineExceeded, 504, api.OutcomeUnknown, unknown},
		{context.Canceled, 503, api.OutcomeUnknown, unknown},
		{errors.New("nobody has thought of this"), 503, api.OutcomeUnknown, unknown},
		{both(store.ErrUnknownOutcome, context.DeadlineExceeded), 504, api.OutcomeUnknown, unknown},
		{both(store.ErrUnavailable, context.DeadlineExceeded), 503, api.Unavailable, nothing},
		{both(store.ErrUnavailable, store.ErrUnknownOutcome), 503, api.OutcomeUnknown, unknown},
	} {
		p := service.ProblemOf(fmt.Errorf("%w: secret", tt.err))
		if p.Status != tt.status || p.Type != tt.problemType || !strings.Contains(p.Detail, tt.want) {
			t.Errorf("%v: got %+v, want %+v", tt.err, p, tt)
		}
		if tt.status >= 500 && strings.Contains(p.Detail, "secret") {
			t.Errorf("%v: the problem has the text of the error: %s", tt.err, p.Detail)
		}
	}
}
