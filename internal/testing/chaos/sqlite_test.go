package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/internal/testing/chaos"
	"github.com/headgate/headgate/internal/testing/command"
	"github.com/headgate/headgate/internal/testing/dbtest"
)

// startSQLite starts three processes of `headgate serve` over one file. SQLite has no server: faults hit the processes.
func startSQLite(t *testing.T) *chaos.System {
	t.Helper()
	dir := t.TempDir()
	program := command.Path(t)
	var servers []*dbtest.Server
	var hosts []string
	for range 3 {
		addr := fmt.Sprintf("127.0.0.1:%d", dbtest.FreePort(t))
		serve := func() *exec.Cmd {
			return exec.Command(program, "serve", "--store", "sqlite:"+filepath.Join(dir, "limits.db"), "--http", addr)
		}
		servers = append(servers, dbtest.Start(t, serve, func() error { return checkReady(addr) }))
		hosts = append(hosts, addr)
	}
	openCount := 0
	return &chaos.System{
		URL: "http://" + hosts[0], Hosts: hosts[:1],
		// Each stack calls the next server; the first server through a proxy.
		Open: func(_ context.Context, url string) (*chaos.Stack, error) {
			i := openCount % len(hosts)
			if openCount++; i > 0 {
				url = "http://" + hosts[i]
			}
			c, err := client.New(url, nil)
			if err != nil {
				return nil, err
			}
			return &chaos.Stack{Limiter: c, Node: hosts[i], Close: c.Close}, nil
		},
		Faults: []chaos.Fault{
			{Name: "killed", Weight: 3, Do: func(ctx context.Context, rng *rand.Rand) error {
				s := servers[rng.IntN(len(servers))]
				s.Crash()
				chaos.Pause(rng, 500*time.Millisecond)
				return s.Restart(ctx)
			}},
			{Name: "stopped", Weight: 3, Do: func(_ context.Context, rng *rand.Rand) error {
				s := servers[rng.IntN(len(servers))] // the server may hold the lock of the file
				s.Pause()
				chaos.Pause(rng, 2*time.Second)
				s.Resume()
				return nil
			}},
		},
	}
}

// checkReady returns an error unless a Headgate server is ready.
func checkReady(addr string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/readyz", http.NoBody)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("/readyz answers %s", res.Status)
	}
	return nil
}
