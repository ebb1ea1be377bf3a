package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testing/migrated"
)

// TestAFileThatIsChangedBackIsInForce undoes changes of files, also where two servers read files of their own.
func TestAFileThatIsChangedBackIsInForce(t *testing.T) {
	t.Parallel()
	url := migrated.Postgres(t)
	for _, urls := range [][]string{{"memory:"}, {url, url}} {
		files, servers := make([]string, len(urls)), make([]*server, len(urls))
		for i, url := range urls {
			dir := t.TempDir()
			files[i] = filepath.Join(dir, "c.yaml")
			write(t, files[i], "store: \""+url+"\"\nlimits: {api: fixed-window 5/1h}\n")
			servers[i] = startReady(t, dir, "--config", files[i])
		}
		for n, most := range []int{2, 6, 5, 2, 6} {
			i := n % len(files)
			text := fmt.Sprintf("fixed-window %d/1h", most)
			write(t, files[i], "store: \""+urls[i]+"\"\nlimits: {api: "+text+"}\n")
			for _, s := range servers {
				s.until(t, text, func() bool { return strings.HasPrefix(s.limits(t)["api"], text) })
			}
			// The limits are in force a moment before the server says that its file is.
			s := servers[i]
			s.until(t, text+" without a complaint", func() bool { return s.health(t).Config == "" })
		}
		for _, s := range servers {
			s.stop(t)
		}
	}
}
