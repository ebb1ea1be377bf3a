// Package leaktest finds goroutines that the tests of a package leave behind.
package leaktest

import (
	"net/http"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// ignored lists functions whose goroutines may outlive the tests.
var ignored = []string{
	// All tests of a process share the servers of package dbtest, which run until it ends.
	"github.com/headgate/headgate/internal/testing/dbtest.(*folder).launch.func1",
	// A client of rueidis for a cluster closes the connections to a node that has left it after 5 seconds, and
	// its Close does not wait for that.
	"github.com/redis/rueidis.(*clusterClient)._refresh.func2",
	// The same client reads the nodes up to a second after one did not answer, and Close does not wait for that.
	"github.com/redis/rueidis.(*call).DelayDo.func1",
	// A server of net/http waits for half a second after an error before it closes the connection, and its Close
	// does not wait for that.
	"net/http.(*conn).closeWriteAndWait",
}

// Main runs the tests of a package and ends the process. The TestMain of each package with tests calls it or Run:
//
//	func TestMain(m *testing.M) { leaktest.Main(m) }
func Main(m *testing.M) { os.Exit(Run(m)) }

// Run runs the tests of a package and returns the exit status, for a TestMain that has something to do
// afterwards. If the tests pass but goroutines are left after them, it prints their stacks and returns 1.
// Goroutines have about a second to end.
func Run(m *testing.M) int { return run(m) }

func run(m goleak.TestingM, options ...goleak.Option) (code int) {
	options = append(options, goleak.Cleanup(func(c int) { code = c }))
	for _, name := range ignored {
		options = append(options, goleak.IgnoreAnyFunction(name))
	}
	goleak.VerifyTestMain(tests{m}, options...)
	return code
}

// tests are the tests of a package. After them, the idle connections of [http.DefaultTransport] are closed: it keeps
// them for later requests of the process, and a test need not close them.
type tests struct{ goleak.TestingM }

func (t tests) Run() int {
	defer http.DefaultClient.CloseIdleConnections()
	return t.TestingM.Run()
}
