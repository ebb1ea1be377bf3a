// Package doctest runs the documentation: every block of README.md and of the pages in docs, in the order of the page,
// in a folder of its own, against real servers. It has nothing but tests.
//
// How a block is treated depends on its language:
//
//	sh              a shell runs it; `headgate serve` goes on in the background
//	sql             psql runs it, or with the word mysql after sql, the mysql client
//	text, json      what the block before it prints
//	go              is compiled and run, unless its first line names a file
//	others          are written to the file that their first line names, in a comment
//
// The few blocks that cannot run are named in the test, each with its reason. A block without a language fails.
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

// TestDocumentation runs the pages that need only the command, each from its first block to its last, and
// compiles the Go blocks of all pages.
func TestDocumentation(t *testing.T) {
	t.Parallel()
	programs := t.TempDir()
	link(t, programs, "headgate", command.Path(t))
	link(t, programs, "curl", dbtest.Program(t, "curl", "curl"))
	link(t, programs, "jq", dbtest.Program(t, "jq", "jq"))
	all := onFreePorts(t)
	commandOnly := slices.DeleteFunc(slices.Clone(all), func(p page) bool {
		return len(p.blocks) == 0 || p.needs() != ""
	})
	compiled := buildSnippets(t, all, commandOnly, programs, command.Flags()...)
	for _, p := range commandOnly {
		runPage(t, &p, programs, compiled)
	}
	if len(commandOnly) < 10 {
		t.Errorf("%d pages need no more than the command", len(commandOnly))
	}
	for _, listed := range []map[string]map[string]string{notRun, readerFiles} {
		for name := range listed {
			if !slices.ContainsFunc(all, func(p page) bool { return p.name == name }) {
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
	all := onFreePorts(t)
	withServers := slices.DeleteFunc(slices.Clone(all), func(p page) bool { return p.needs() == "" })
	compiled := buildSnippets(t, all, withServers, programs, "-trimpath")
	for _, p := range withServers {
		t.Logf("%s needs %s", p.name, p.needs())
		runPage(t, &p, programs, compiled)
	}
}

// onFreePorts returns all pages. In their Go blocks, a free port replaces 8080.
func onFreePorts(t *testing.T) []page {
	t.Helper()
	all := pages(t)
	for i := range all {
		p := &all[i]
		p.port = strconv.Itoa(dbtest.FreePort(t))
		for j := range p.blocks {
			if b := &p.blocks[j]; b.language == "go" {
				b.text = strings.ReplaceAll(b.text, "8080", p.port)
			}
		}
	}
	return all
}

func runPage(t *testing.T, p *page, programs string, compiled *snippets) {
	t.Run(p.name, func(t *testing.T) {
		t.Parallel()
		r := newRun(t, p, programs, compiled)
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

// run is a page that is being run.
type run struct {
	page     *page
	session  *session
	compiled *snippets
	replace  [][2]string // addresses and names of the page, and those of this run
	postgres string
	mysql    *url.URL
	output   *string // of the last block; nil once it was compared
	passed   map[string]bool
	files    map[string]int // files of the page that no command has used: the line of their block
}

// newRun prepares a folder, and the servers that a page names.
func newRun(t *testing.T, p *page, programs string, compiled *snippets) *run {
	t.Helper()
	r := &run{page: p, compiled: compiled, passed: map[string]bool{}, files: map[string]int{}}
	says := func(what string) bool {
		return slices.ContainsFunc(p.blocks, func(b block) bool { return strings.Contains(b.text, what) })
	}
	sql := func(option string) bool {
		return slices.ContainsFunc(p.blocks, func(b block) bool { return b.language == "sql" && b.option == option })
	}
	if says("postgres://localhost/app") || sql("") {
		r.postgres = dbtest.Postgres(t)
		r.replace = append(r.replace, [2]string{"postgres://localhost/app", r.postgres},
			[2]string{"jdbc:postgresql://localhost/app", jdbc(t, "postgresql", r.postgres)},
			[2]string{"postgres://app@localhost/app", withUser(t, "app", r.postgres)})
		if says("create role app login") {
			t.Cleanup(func() { dropRole(t, r.postgres, "app") })
		}
	}
	if says("mysql://root@localhost/app") || sql("mysql") {
		dsn := dbtest.MariaDB(t)
		u, err := url.Parse(dsn)
		if err != nil {
			t.Fatal(err)
		}
		r.mysql = u
		name := strings.TrimPrefix(u.Path, "/")
		r.replace = append(r.replace, [2]string{"mysql://root@localhost/app", dsn},
			[2]string{"jdbc:mariadb://localhost/app?user=root", jdbc(t, "mariadb", dsn)},
			[2]string{"app.*", name + ".*"}, [2]string{"--articles app", "--articles " + name})
	}
	if says("redis://localhost/0") {
		dsn := dbtest.Redis(t)
		u, err := url.Parse(dsn)
		if err != nil {
			t.Fatal(err)
		}
		r.replace = append(r.replace, [2]string{"redis://localhost/0", dsn})
		for _, kind := range []string{"c:", "l:", "room"} {
			r.replace = append(r.replace, [2]string{"headgate:" + kind, u.Query().Get("prefix") + kind})
		}
	}
	r.replace = append(r.replace, [2]string{"8080", p.port})
	if web := "127.0.0.1:8000"; says(web) { // the address of a proxy of the page
		r.replace = append(r.replace, [2]string{web, "127.0.0.1:" + strconv.Itoa(dbtest.FreePort(t))})
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

// toLocal replaces addresses of the page by those of this run.
func (r *run) toLocal(text string) string {
	for _, p := range r.replace {
		text = strings.ReplaceAll(text, p[0], p[1])
	}
	return text
}

// toPage replaces addresses of this run by those of the page.
func (r *run) toPage(text string) string {
	for _, p := range r.replace {
		text = strings.ReplaceAll(text, p[1], p[0])
	}
	return text
}

// runBlock runs one block, and reports whether the following blocks can run.
func (r *run) runBlock(t *testing.T, b *block) bool {
	t.Helper()
	at := fmt.Sprintf("%s:%d", r.page.name, b.line)
	if _, listed := notRun[r.page.name][b.first()]; listed {
		r.passed[b.first()] = true
		return true
	}
	var script string
	switch {
	case b.language == "text" || b.language == "json":
		if r.output == nil {
			t.Errorf("%s: is the output of nothing", at)
			return true
		}
		anyNumbers := slices.Contains(shapeOnly[r.page.name], b.first())
		if err := compareOutput(b.text, r.toPage(*r.output), anyNumbers); err != nil {
			t.Errorf("%s: %v", at, err)
		}
		r.output = nil
		return true
	case b.language == "yaml" &&
		slices.Contains([]string{"docs/envoy.md", "docs/kubernetes.md", "docs/metrics.md"}, r.page.name):
		var err error
		if strings.HasPrefix(b.text, "domain:") {
			_, err = envoy.Parse(false, envoy.File{Name: at, Text: []byte(b.text)})
		} else { // of Envoy itself, of Prometheus, or of Kubernetes
			err = yaml.Unmarshal([]byte(b.text), new(any))
		}
		if err != nil {
			t.Errorf("%s: %v", at, err)
		}
		return true
	case b.file() != "":
		writeFile(t, filepath.Join(r.session.dir, b.file()), r.toLocal(b.text))
		r.files[b.file()] = b.line
		if b.language == "yaml" {
			if _, err := config.Parse(b.file(), []byte(b.text)); err != nil {
				t.Errorf("%s: %v", at, err)
			}
		}
		return true
	case b.language == "sh":
		script = inBackground.ReplaceAllString(r.toLocal(b.text), "$1")
		maps.DeleteFunc(r.files, func(name string, _ int) bool {
			return strings.Contains(script, name) || strings.HasSuffix(name, ".go") && goOfFolder.MatchString(script)
		})
	case b.language == "sql":
		script = r.sqlCommand(t, b)
	case b.language == "go":
		name := at
		if script = r.compiled.runs[name]; script == "" {
			return true // declarations, which are compiled
		}
	default:
		t.Errorf("%s: nothing treats a block of %q that names no file", at, b.language)
		return true
	}
	out, err := r.session.run(script)
	if err != nil {
		t.Errorf("%s: %v:\n%s\n%s", at, err, b.text, out)
		return false
	}
	r.output = &out
	return true
}

// sqlCommand returns the command that runs a block of SQL.
func (r *run) sqlCommand(t *testing.T, b *block) string {
	t.Helper()
	file := fmt.Sprintf(".block-%d.sql", b.line)
	writeFile(t, filepath.Join(r.session.dir, file), r.toLocal(b.text))
	if b.option != "mysql" {
		return fmt.Sprintf("psql -X -q -v ON_ERROR_STOP=1 -f %s '%s'", file, r.postgres)
	}
	return fmt.Sprintf("mysql --no-defaults --table -h %s -P %s -u %s %s <%s", r.mysql.Hostname(), r.mysql.Port(),
		r.mysql.User.Username(),
		strings.TrimPrefix(r.mysql.Path, "/"), file)
}

// finish finds files that a page has not used or made, and list entries without a block.
func (r *run) finish(t *testing.T) {
	t.Helper()
	for name, line := range r.files {
		t.Errorf("%s:%d: no command uses %s", r.page.name, line, name)
	}
	for first := range notRun[r.page.name] {
		if !r.passed[first] {
			t.Errorf("%s: no block begins with %q any more", r.page.name, first)
		}
	}
	for _, name := range createdFiles[r.page.name] {
		if _, err := os.Stat(filepath.Join(r.session.dir, name)); err != nil {
			t.Errorf("%s: %v", r.page.name, err)
		}
	}
}
