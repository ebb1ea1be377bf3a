package page_test

import (
	"context"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/dbtest"
)

// chromium is the browser that all tests share. Each test has its own tabs, with their own storage.
var chromium struct {
	users atomic.Int64 // tests that have not ended
	once  sync.Once
	ctx   context.Context //nolint:containedctx // of the browser
	stop  func()
	err   error
}

// useChromium must be called first by each test that opens a tab. t.Parallel stops the test until all of them have
// called it, so the last test to end closes Chromium.
func useChromium(t *testing.T) {
	chromium.users.Add(1)
	t.Cleanup(func() {
		if chromium.users.Add(-1) == 0 && chromium.stop != nil {
			chromium.stop()
			chromium.once, chromium.stop = sync.Once{}, nil // with -count, the next run starts it again
		}
	})
	t.Parallel()
}

// startChromium starts Chromium for all tests.
func startChromium(t *testing.T) {
	program := dbtest.Program(t, "chromium", "chromium") // installs Chromium if it is missing
	folder, err := os.MkdirTemp("", "headgate-chromium-")
	if err != nil {
		chromium.err = err
		return
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox,
		chromedp.UserDataDir(folder), chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.WSURLReadTimeout(await.Patience))
	alloc, stopAlloc := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, stop := chromedp.NewContext(alloc)
	chromium.ctx = ctx
	chromium.stop = func() {
		_ = chromedp.Cancel(ctx)
		stop()
		stopAlloc()
		_ = os.RemoveAll(folder)
	}
	chromium.err = chromedp.Do(ctx)
}
