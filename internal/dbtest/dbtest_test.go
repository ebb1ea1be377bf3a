package dbtest

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"
)

// TestServersComeAndGo starts each kind of server, and sees that its port and
// its files are gone after Stop.
func TestServersComeAndGo(t *testing.T) {
	for _, tt := range []struct {
		env   string
		start func(context.Context) (*Server, error)
	}{
		{PostgresDSN, StartPostgres},
		{MySQLDSN, func(ctx context.Context) (*Server, error) { return StartMariaDB(ctx) }},
		{RedisDSN, func(ctx context.Context) (*Server, error) { return StartRedis(ctx) }},
	} {
		begin := time.Now()
		s, err := tt.start(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s after %v", s.DSN, time.Since(begin).Round(time.Millisecond))
		s.Stop()
		if os.Getenv(tt.env) != "" {
			continue
		}
		host := s.DSN[strings.LastIndex(s.DSN, "@")+1:]
		host = strings.TrimPrefix(host, "redis://")
		host, _, _ = strings.Cut(host, "/")
		if answer, err := askRedis(host, "PING"); err == nil {
			t.Errorf("%s still answers: %q", s.DSN, answer)
		}
	}
}

func TestClustersComeUp(t *testing.T) {
	begin := time.Now()
	c, err := StartRedisCluster(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s after %v", c.URL(), time.Since(begin).Round(time.Millisecond))
	if _, err := c.Primary("k"); err != nil {
		t.Error(err)
	}
	c.Stop()
	begin = time.Now()
	g, err := StartGalera(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s after %v", g.Servers(), time.Since(begin).Round(time.Millisecond))
	g.Stop()
}
