package headgate_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

func TestNotationOfAwayAndDeadline(t *testing.T) {
	for _, tt := range []struct{ notation, want, wantField string }{
		{"token-bucket 5/s away share", "token-bucket 5/s burst 5 away share", ""},
		{"token-bucket 5/s away deny", "token-bucket 5/s burst 5", ""},
		{"deadline 1s", "", "deadline"},
		{"sliding-log 5/1m deadline 100ms away allow", "sliding-log 5/1m away allow deadline 100ms", ""},
		{"fixed-window 5/day UTC block 1m prefetch 10% away share", "fixed-window 5/day block 1m prefetch 10% away share", ""},
		{"5 per second away allow", "token-bucket 5/s burst 5 away allow", ""},
		{"concurrency 2 ttl 1s deadline 1s", "concurrency 2 ttl 1s deadline 1s", ""},
		{"concurrency 2 ttl 1s away share", "", "away"},
		{"token-bucket 5/s away", "", "away"},
		{"token-bucket 5/s away perhaps", "", "away"},
		{"token-bucket 5/s away share away allow", "", "away"},
		{"token-bucket 5/s deadline 0s", "", "deadline"},
		{"token-bucket 5/s deadline soon", "", "deadline"},
	} {
		l, err := headgate.Parse(tt.notation)
		if tt.wantField != "" {
			if !errors.Is(err, headgate.ErrInvalid) || !strings.Contains(err.Error(), tt.wantField) {
				t.Errorf("%s: %v, want an error that names %s", tt.notation, err, tt.wantField)
			}
			continue
		}
		if err != nil || l.String() != tt.want {
			t.Errorf("%s: %q, %v, want %q", tt.notation, l, err, tt.want)
			continue
		}
		reparsed, err := headgate.Parse(l.String())
		if err != nil || reparsed.Params() != l.Params() {
			t.Errorf("%s is parsed again as %v, %v, want the same limit", l, reparsed, err)
		}
	}
}

func TestNewLimitWithAwayAndDeadline(t *testing.T) {
	l, err := headgate.NewLimit("api", headgate.TokenBucket{
		Amount: headgate.Units(5), Period: time.Second,
		Tail: headgate.Tail{Away: headgate.AwayShare, Deadline: 30 * time.Millisecond},
	})
	if err != nil || l.Params().Away != headgate.AwayShare || l.Params().Deadline != 30_000 {
		t.Errorf("got %+v, %v; want AwayShare and a deadline of 30000 us", l.Params(), err)
	}
	for name, tail := range map[string]headgate.Tail{ // name: the field of the error
		"away": {Away: 9}, "deadline": {Deadline: -time.Second},
	} {
		if _, err := headgate.NewLimit("api", headgate.TokenBucket{
			Amount: headgate.Units(5), Period: time.Second, Tail: tail,
		}); !errors.Is(err, headgate.ErrInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("%+v: %v, want ErrInvalid about %s", tail, err, name)
		}
	}
}
