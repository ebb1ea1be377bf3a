package front_test

import (
	"context"
	"fmt"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/front"
	"github.com/headgate/headgate/store/sqlite"
)

// A program opens its store, puts the stack in front of it, and gives that to a limiter. Close stops the sweeper and
// closes the store.
func ExampleNew() {
	ctx := context.Background()
	db, err := sqlite.Open(ctx, "sqlite::memory:", nil) // or postgres.Open, mysql.Open, redis.Open
	if err != nil {
		fmt.Println(err)
		return
	}
	s := front.New(db, nil)
	defer s.Close()

	limiter := headgate.New(s, nil)
	login := headgate.MustParse("fixed-window 2/1d")
	for range 5 {
		d, err := limiter.Allow(ctx, login, "alice")
		fmt.Println(d.Allowed, err)
	}
	st := s.Stats()
	fmt.Println("asked the store:", st.Callers, "repeated:", st.Repeated)
	// Output:
	// true <nil>
	// true <nil>
	// false <nil>
	// false <nil>
	// false <nil>
	// asked the store: 2 repeated: 3
}
