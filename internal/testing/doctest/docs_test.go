// Package doctest runs the documentation: every block of README.md and of the pages in docs, in the order of the page,
// in a folder of its own, against real servers. It has nothing but tests.
//
// How a block is treated depends on its language:
//
//	sh              a shell runs it; `headgate serve` goes on in the background
//	sql             psql runs it, or with the word mysql after sql, the mysql client
//	text, json      must be the output of the block before
//	go              is compiled and run, unless its first line names a file
//	yaml            is parsed, in the pages about Envoy, Kubernetes and metrics
//	others          are written to the file that their first line names, in a comment
//
// The few blocks that cannot run are listed in skippedBlocks, with the reason. A block without a language fails.
package doctest

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.yaml.in/yaml/v3"

	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/envoy"
	"github.com/headgate/headgate/internal/testing/command"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/tier"
)

// TestDocumentation runs the pages that need only the command, curl and jq, each from its first block to its last, and
// compiles the Go blocks of all pages.
func TestDocumentation(t *testing.T) {
	t.Parallel()
	programs := t.TempDir()
	link(t, programs, "headgate", command.Path(t))
	link(t, programs, "curl", dbtest.Program(t, "curl", "curl"))
	link(t, programs, "jq", dbtest.Program(t, "jq", "jq"))
	allPages := pagesOnFreePorts(t)
	commandOnly := slices.DeleteFunc(slices.Clone(allPages), func(p page) bool {
		return len(p.blocks) == 0 || p.needs() != ""
	})
	goBlocks := buildSnippets(t, allPages, commandOnly, programs, command.Flags()...)
	for _, p := range commandOnly {
		runPage(t, &p, programs, goBlocks)
	}
	if len(commandOnly) < 10 {
		t.Errorf("%d pages need no more than the command, want at least 10", len(commandOnly))
	}
	for _, list := range []map[string]map[string]string{skippedBlocks, readerFiles} {
		for name := range list {
			if !slices.ContainsFunc(allPages, func(p page) bool { return p.name == name }) {
				t.Errorf("a list names the page %s, which is not there", name)
			}
		}
	}
}

// TestDocumentationWithServers runs the other pages, with headgate built as for a release.
func TestDocumentationWithServers(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	programs := t.TempDir()
	buildHeadgate(t, programs)
	linkPrograms(t, programs)
	allPages := pagesOnFreePorts(t)
	withServers := slices.DeleteFunc(slices.Clone(allPages), func(p page) bool { return p.needs() == "" })
	goBlocks := buildSnippets(t, allPages, withServers, programs, "-trimpath")
	for _, p := range withServers {
		t.Logf("%s needs %s", p.name, p.needs())
		runPage(t, &p, programs, goBlocks)
	}
}

// pagesOnFreePorts returns all pages, each with a free port, which replaces 8080 in their Go blocks.
func pagesOnFreePorts(t *testing.T) []page {
	t.Helper()
	allPages := pages(t)
	for i := range allPages {
		p := &allPages[i]
		p.port = strconv.Itoa(dbtest.FreePort(t))
		for j := range p.blocks {
			if b := &p.blocks[j]; b.language == "go" {
				b.text = strings.ReplaceAll(b.text, "8080", p.port)
			}
		}
	}
	return allPages
}

func runPage(t *testing.T, p *page, programs string, goBlocks *snippets) {
	t.Run(p.name, func(t *testing.T) {
		t.Parallel()
		r := newRun(t, p, programs, goBlocks)
		begin := time.Now()
		for i := range p.blocks {
			if b := &p.blocks[i]; !r.runBlock(t, b) {
				t.Fatalf("%s:%d: the page does not run any further", p.name, b.line)
			}
		}
		t.Logf("%s: %d blocks in %.1f s", p.name, len(p.blocks), time.Since(begin).Seconds())
		r.finish(t)
	})
}

// run is one run of a page.
type run struct {
	page         *page
	session      *session
	goBlocks     *snippets
	replacements [][2]string // pairs of an address or name of the page, and of this run
	postgres     string
	mysql        *url.URL
	output       *string         // what the last block printed; nil once it was compared
	seenSkipped  map[string]bool // first lines of skipped blocks that the page still has
	files        map[string]int  // the lines of the blocks of files that no command has used yet
}

// newRun starts a session in a folder of its own, with the servers and files that a page names.
func newRun(t *testing.T, p *page, programs string, goBlocks *snippets) *run {
	t.Helper()
	r := &run{page: p, goBlocks: goBlocks, seenSkipped: map[string]bool{}, files: map[string]int{}}
	mentions := func(text string) bool {
		return slices.ContainsFunc(p.blocks, func(b block) bool { return strings.Contains(b.text, text) })
	}
	hasSQL := func(option string) bool {
		return slices.ContainsFunc(p.blocks, func(b block) bool { return b.language == "sql" && b.option == option })
	}
	if mentions("postgres://localhost/app") || hasSQL("") {
		r.postgres = dbtest.Postgres(t)
		r.replacements = append(r.replacements, [2]string{"postgres://localhost/app", r.postgres},
			[2]string{"jdbc:postgresql://localhost/app", jdbc(t, "postgresql", r.postgres)},
			[2]string{"postgres://app@localhost/app", withUser(t, "app", r.postgres)})
		if mentions("create role app login") {
			t.Cleanup(func() { dropRole(t, r.postgres, "app") })
		}
	}
	if mentions("mysql://root@localhost/app") || hasSQL("mysql") {
		dsn := dbtest.MariaDB(t)
		u, err := url.Parse(dsn)
		if err != nil {
			t.Fatal(err)
		}
		r.mysql = u
		name := strings.TrimPrefix(u.Path, "/")
		r.replacements = append(r.replacements, [2]string{"mysql://root@localhost/app", dsn},
			[2]string{"jdbc:mariadb://localhost/app?user=root", jdbc(t, "mariadb", dsn)},
			[2]string{"app.*", name + ".*"}, [2]string{"--articles app", "--articles " + name})
	}
	if mentions("redis://localhost/0") {
		dsn := dbtest.Redis(t)
		u, err := url.Parse(dsn)
		if err != nil {
			t.Fatal(err)
		}
		r.replacements = append(r.replacements, [2]string{"redis://localhost/0", dsn})
		for _, kind := range []string{"c:", "l:", "room"} {
			r.replacements = append(r.replacements, [2]string{"headgate:" + kind, u.Query().Get("prefix") + kind})
		}
	}
	r.replacements = append(r.replacements, [2]string{"8080", p.port})
	if proxyAddr := "127.0.0.1:8000"; mentions(proxyAddr) { // the address of a proxy of the page
		r.replacements = append(r.replacements, [2]string{proxyAddr, "127.0.0.1:" + strconv.Itoa(dbtest.FreePort(t))})
	}
	env := []string{"HEADGATE_HTTP=127.0.0.1:" + p.port, postgresURL + "=" + r.postgres}
	r.session = newSession(t, programs, env...)
	for name, text := range readerFiles[p.name] {
		if strings.HasPrefix(text, "../") {
			text = readFile(t, text)
		}
		writeFile(t, filepath.Join(r.session.dir, name), text)
	}
	if slices.ContainsFunc(p.blocks, func(b block) bool { return b.language == "js" }) {
		link(t, r.session.dir, "node_modules", dbtest.NodeModules(t, "testdata/node"))
	}
	return r
}

// withUser returns a DSN with another user.
func withUser(t *testing.T, user, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User(user)
	return u.String()
}

// dropRole removes a role, which all databases of the server share.
func dropRole(t *testing.T, dsn, role string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	if err == nil {
		defer conn.Close(ctx)
		_, err = conn.Exec(ctx, "drop owned by "+role+" cascade; drop role "+role)
	}
	if err != nil {
		t.Error(err)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// jdbc returns the JDBC URL of a database.
func jdbc(t *testing.T, kind, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("jdbc:%s://%s%s?user=%s", kind, u.Host, u.Path, u.User.Username())
}

// toLocal replaces addresses and names of the page by those of this run.
func (r *run) toLocal(text string) string {
	for _, pair := range r.replacements {
		text = strings.ReplaceAll(text, pair[0], pair[1])
	}
	return text
}

// toPage replaces addresses and names of this run by those of the page.
func (r *run) toPage(text string) string {
	for _, pair := range r.replacements {
		text = strings.ReplaceAll(text, pair[1], pair[0])
	}
	return text
}

// runBlock runs one block, and reports whether the following blocks can run.
func (r *run) runBlock(t *testing.T, b *block) bool {
	t.Helper()
	location := fmt.Sprintf("%s:%d", r.page.name, b.line)
	if _, isSkipped := skippedBlocks[r.page.name][b.firstLine()]; isSkipped {
		r.seenSkipped[b.firstLine()] = true
		return true
	}
	var script string
	switch {
	case b.language == "text" || b.language == "json":
		if r.output == nil {
			t.Errorf("%s: is the output of nothing", location)
			return true
		}
		anyNumbers := slices.Contains(anyNumberOutputs[r.page.name], b.firstLine())
		if err := compareOutput(b.text, r.toPage(*r.output), anyNumbers); err != nil {
			t.Errorf("%s: %v", location, err)
		}
		r.output = nil
		return true
	case b.language == "yaml" &&
		slices.Contains([]string{"docs/envoy.md", "docs/kubernetes.md", "docs/metrics.md"}, r.page.name):
		var err error
		if strings.HasPrefix(b.text, "domain:") {
			_, err = envoy.Parse(false, envoy.File{Name: location, Text: []byte(b.text)})
		} else { // of Envoy itself, of Prometheus, or of Kubernetes
			err = yaml.Unmarshal([]byte(b.text), new(any))
		}
		if err != nil {
			t.Errorf("%s: %v", location, err)
		}
		return true
	case b.file() != "":
		writeFile(t, filepath.Join(r.session.dir, b.file()), r.toLocal(b.text))
		r.files[b.file()] = b.line
		if b.language == "yaml" {
			if _, err := config.Parse(b.file(), []byte(b.text)); err != nil {
				t.Errorf("%s: %v", location, err)
			}
		}
		return true
	case b.language == "sh":
		script = backgroundServer.ReplaceAllString(r.toLocal(b.text), "$1")
		maps.DeleteFunc(r.files, func(name string, _ int) bool {
			return strings.Contains(script, name) || strings.HasSuffix(name, ".go") && goCommand.MatchString(script)
		})
	case b.language == "sql":
		script = r.sqlCommand(t, b)
	case b.language == "go":
		name := location
		if script = r.goBlocks.runs[name]; script == "" {
			return true // declarations, which are compiled
		}
	default:
		t.Errorf("%s: nothing treats a block of %q that names no file", location, b.language)
		return true
	}
	out, err := r.session.run(script)
	if err != nil {
		t.Errorf("%s: %v:\n%s\n%s", location, err, b.text, out)
		return false
	}
	r.output = &out
	return true
}

// sqlCommand writes a block of SQL to a file, and returns the command that runs it.
func (r *run) sqlCommand(t *testing.T, b *block) string {
	t.Helper()
	file := fmt.Sprintf(".block-%d.sql", b.line)
	writeFile(t, filepath.Join(r.session.dir, file), r.toLocal(b.text))
	if b.option != "mysql" {
		return fmt.Sprintf("psql -X -q -v ON_ERROR_STOP=1 -f %s '%s'", file, r.postgres)
	}
	return fmt.Sprintf("mysql --no-defaults --table -h %s -P %s -u %s %s <%s", r.mysql.Hostname(), r.mysql.Port(),
		r.mysql.User.Username(), strings.TrimPrefix(r.mysql.Path, "/"), file)
}

// finish reports files that the page has not used, files that it has not made, and list entries without a block.
func (r *run) finish(t *testing.T) {
	t.Helper()
	for name, line := range r.files {
		t.Errorf("%s:%d: no command uses %s", r.page.name, line, name)
	}
	for firstLine := range skippedBlocks[r.page.name] {
		if !r.seenSkipped[firstLine] {
			t.Errorf("%s: no block begins with %q any more", r.page.name, firstLine)
		}
	}
	for _, name := range createdFiles[r.page.name] {
		if _, err := os.Stat(filepath.Join(r.session.dir, name)); err != nil {
			t.Errorf("%s: %v", r.page.name, err)
		}
	}
}
