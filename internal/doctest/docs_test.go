package doctest

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"go.yaml.in/yaml/v3"

	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/server/config"
	"github.com/headgate/headgate/server/envoy"
)

// cluster is why blocks of docs/kubernetes.md do not run.
const cluster = "a cluster is not there: make chart renders the chart with these values"

// unrunnable are the blocks that nothing runs, by page and first line, and why.
var unrunnable = map[string]map[string]string{
	"README.md":   {"make test": "runs this test"},
	"docs/sql.md": {"select cron.schedule('headgate-sweep', '* * * * *', 'select headgate.sweep(10000)');": "the extension pg_cron is not installed here"},
	"docs/kubernetes.md": {
		"docker build --build-arg VERSION=v0.1.0 -t registry.example.com/headgate:v0.1.0 .": "Docker is not there: " +
			"TestTheImage of deploy carries out the steps",
		"kubectl create namespace limits": cluster,
		`helm upgrade headgate deploy/helm/headgate -n limits -f deploy/helm/values/postgresql.yaml \`: cluster,
	},
	"docs/forward-auth.md": {
		"# traefik.yml": traefik, "# headgate.yml": traefik, "traefik --configFile=traefik.yml": traefik,
	},
	"docs/adding-a-store.md": {"make engines                       # all of them": "takes an hour, and CI runs it"},
	"docs/yugabytedb.md": {
		"HEADGATE_TEST_YUGABYTE_DSN='postgres://yugabyte@n1:5433/yugabyte' go test ./store/postgres " +
			"-run TestConformanceOfRelatives": yugabyte,
		"select yb_get_effective_transaction_isolation_level();": yugabyte,
		`yb-admin --master_addresses m1:7100,m2:7100,m3:7100 \`:  yugabyte,
		`create tablespace headgate_eu with (replica_placement = ` +
			`'{"num_replicas": 3, "placement_blocks": [`: yugabyte,
		"select relname, leader, count(*) from yb_tablet_metadata where db_name = current_database() and " +
			"relname in ('cells', 'entries', 'admissions')": yugabyte,
	},
	"docs/installing.md": {
		"go install github.com/headgate/headgate/cmd/headgate@latest":                                "asks the network for a release",
		"sha256sum --check --ignore-missing checksums.txt":                                           "is for the files of a release, which make snapshot builds",
		"sudo dpkg -i headgate_0.4.0_amd64.deb        # or: sudo rpm -i headgate-0.4.0-1.x86_64.rpm": system,
		"systemd-analyze verify /etc/systemd/system/headgate.service /etc/systemd/system/headgate.socket": "is for " +
			"installed units; TestUnits of deploy verifies these",
		"sudo systemctl enable --now headgate.socket":                 system,
		"make reproducible":                                           "compiles everything again, which takes minutes",
		"sudo headgate migrate --store \"$HEADGATE_STORE\"":           system,
		"sudo apt-get remove headgate     # or: sudo rpm -e headgate": system,
	},
	"docs/access.md": {
		"callers:": "hashes of tokens that do not exist; server/auth tests the form",
		`level=INFO msg="admin action" verb=block limit=login key=mallory by=oncall reason="password guessing" for=15m0s`: "a line " +
			"of the log, which TestAddressesOfTheServer looks for",
	},
	"docs/metrics.md": {
		`{"time":"2026-11-26T14:41:07.3Z","level":"INFO","msg":"decision","outcome":"refused","limit":"login","key":"mallory","cost":"1","why":"a cost of 1 does not fit, 0 of 5 remain","capacity":5,"remaining":0,"retry_after":12000000000,"way":"store","verb":"take","protocol":"http","took":310000}`: "a line of the log, of which server/decisionlog tests the form",
	},
	"docs/design.md": {".                 package headgate: limits and algorithms as values, Charge, " +
		"Decision, Limiter": "a list of folders: TestTheHouse compares it"},
}

const (
	system   = "changes the system that it runs on"
	traefik  = "Traefik is built on request, and the tests of deploy start it then"
	yugabyte = "there is no YugabyteDB here; the page says so, and which of its statements run on PostgreSQL"
)

// shapes are outputs in which every number differs from run to run.
var shapes = map[string][]string{
	"docs/operating.md": {"store      redis://localhost/0"}, // how fast this machine is
	"docs/stores.md":    {"granted"},                        // what time it is
}

// given are the files that a reader has already, by page.
var given = map[string]map[string]string{
	"README.md": {
		"deploy.sh": script("deployed"), "backup.sh": script("backed-up"),
		"access.log": "../replay/testdata/apache.log.gz",
	},
	"docs/getting-started.md": {
		"backup.sh": script("backed-up"), "access.log": "../replay/testdata/apache.log.gz",
		"auth.log": "../accesslog/testdata/sshd.log",
	},
	"docs/choosing.md": {"access.log": "../replay/testdata/apache.log.gz"},
	"docs/tour-log.md": {"access.log": "../replay/testdata/apache.log.gz"},
}

func script(does string) string { return "#!/bin/sh\necho >>" + does + "\n" }

// goOfFolder is a command that compiles the files of the page.
var goOfFolder = regexp.MustCompile(`(?m)^go (run|test|build)\b`)

// left are the files that a page leaves behind: what it says that it starts has run.
var left = map[string][]string{
	"README.md":               {"deployed", "backed-up", "headgate.db"},
	"docs/getting-started.md": {"backed-up", "guessing.html"},
	"docs/choosing.md":        {"fills.html"},
	"docs/tour-log.md":        {"limit.html"},
}

// TestDocumentation runs all pages, each from its first block to its last.
func TestDocumentation(t *testing.T) {
	t.Parallel()
	all := pages(t)
	programs := t.TempDir()
	ports := map[string]string{}
	for i, p := range all {
		ports[p.name] = strconv.Itoa(dbtest.FreePort(t))
		for j := range p.blocks {
			if b := &all[i].blocks[j]; b.language == "go" {
				b.text = strings.ReplaceAll(b.text, "8080", ports[p.name])
			}
		}
	}
	buildHeadgate(t, programs)
	compiled := buildSnippets(t, all, programs)
	links(t, programs)
	for _, p := range all {
		if len(p.blocks) == 0 {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			r := newRun(t, &p, ports[p.name], programs, compiled)
			begin := time.Now()
			for i := range p.blocks {
				if b := &p.blocks[i]; !r.block(t, b) {
					t.Fatalf("%s:%d: the page does not run any further", p.name, b.line)
				}
			}
			t.Logf("%s: %d blocks in %.1f s", p.name, len(p.blocks), time.Since(begin).Seconds())
			r.finish(t)
		})
	}
	for _, listed := range []map[string]map[string]string{unrunnable, given} {
		for name := range listed {
			if !slices.ContainsFunc(all, func(p page) bool { return p.name == name }) {
				t.Errorf("a list names the page %s, which is not there", name)
			}
		}
	}
}

// run is a page that is being run.
type run struct {
	page     *page
	session  *session
	compiled *snippets
	replace  [][2]string // what a page says, and what it is here
	postgres string
	mysql    *url.URL
	output   *string // of the last block, until it was compared
	passed   map[string]bool
	files    map[string]int // written by the page, by the line of their block
}

// newRun prepares a folder, and the servers that a page names.
func newRun(t *testing.T, p *page, port, programs string, compiled *snippets) *run {
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
			[2]string{"postgres://app@localhost/app", as(t, "app", r.postgres)})
		if says("create role app login") {
			t.Cleanup(func() { drop(t, r.postgres, "app") })
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
			[2]string{
				`host="localhost", user="root", database="app"`,
				fmt.Sprintf(`host=%q, port=%s, user="root", database=%q`, u.Hostname(), u.Port(), name),
			},
			[2]string{"app.*", name + ".*"})
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
	r.replace = append(r.replace, [2]string{"8080", port})
	if web := "127.0.0.1:8000"; says(web) { // where a proxy of the page listens
		r.replace = append(r.replace, [2]string{web, "127.0.0.1:" + strconv.Itoa(dbtest.FreePort(t))})
	}
	env := []string{"HEADGATE_HTTP=127.0.0.1:" + port, postgresURL + "=" + r.postgres}
	r.session = newSession(t, programs, env...)
	for name, text := range given[p.name] {
		if strings.HasPrefix(text, "../") {
			text = read(t, text)
		}
		write(t, filepath.Join(r.session.dir, name), text)
	}
	if slices.ContainsFunc(p.blocks, func(b block) bool { return b.language == "js" }) {
		link(t, r.session.dir, "node_modules", dbtest.NodeModules(t, "testdata/node"))
	}
	return r
}

// as returns a DSN with another user.
func as(t *testing.T, user, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User(user)
	return u.String()
}

// drop removes a role, which all databases of the server share.
func drop(t *testing.T, dsn, role string) {
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

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// jdbc returns what Java calls a database.
func jdbc(t *testing.T, kind, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("jdbc:%s://%s%s?user=%s", kind, u.Host, u.Path, u.User.Username())
}

func (r *run) here(text string) string {
	for _, p := range r.replace {
		text = strings.ReplaceAll(text, p[0], p[1])
	}
	return text
}

func (r *run) there(text string) string {
	for _, p := range r.replace {
		text = strings.ReplaceAll(text, p[1], p[0])
	}
	return text
}

// block runs one block, and reports whether those after it can run.
func (r *run) block(t *testing.T, b *block) bool {
	t.Helper()
	at := fmt.Sprintf("%s:%d", r.page.name, b.line)
	if _, listed := unrunnable[r.page.name][b.first()]; listed {
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
		if err := agree(b.text, r.there(*r.output), slices.Contains(shapes[r.page.name], b.first())); err != nil {
			t.Errorf("%s: %v", at, err)
		}
		r.output = nil
		return true
	case b.language == "yaml" &&
		slices.Contains([]string{"docs/envoy.md", "docs/kubernetes.md", "docs/metrics.md"}, r.page.name):
		var err error
		if strings.HasPrefix(b.text, "domain:") {
			_, err = envoy.Parse(envoy.File{Name: at, Text: []byte(b.text)})
		} else { // of Envoy itself, of Prometheus, or of Kubernetes
			err = yaml.Unmarshal([]byte(b.text), new(any))
		}
		if err != nil {
			t.Errorf("%s: %v", at, err)
		}
		return true
	case b.file() != "":
		write(t, filepath.Join(r.session.dir, b.file()), r.here(b.text))
		r.files[b.file()] = b.line
		if b.language == "yaml" {
			if _, err := config.Parse(b.file(), []byte(b.text)); err != nil {
				t.Errorf("%s: %v", at, err)
			}
		}
		return true
	case b.language == "sh":
		script = inBackground.ReplaceAllString(r.here(b.text), "$1")
		maps.DeleteFunc(r.files, func(name string, _ int) bool {
			return strings.Contains(script, name) || strings.HasSuffix(name, ".go") && goOfFolder.MatchString(script)
		})
	case b.language == "sql":
		script = r.client(t, b)
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

// client returns the command that runs a block of SQL.
func (r *run) client(t *testing.T, b *block) string {
	t.Helper()
	file := fmt.Sprintf(".block-%d.sql", b.line)
	write(t, filepath.Join(r.session.dir, file), r.here(b.text))
	if b.option != "mysql" {
		return fmt.Sprintf("psql -X -q -v ON_ERROR_STOP=1 -f %s '%s'", file, r.postgres)
	}
	return fmt.Sprintf("mysql --no-defaults --table -h %s -P %s -u %s %s <%s", r.mysql.Hostname(), r.mysql.Port(),
		r.mysql.User.Username(),
		strings.TrimPrefix(r.mysql.Path, "/"), file)
}

// finish finds what a page promised and did not do, and what lists name in vain.
func (r *run) finish(t *testing.T) {
	t.Helper()
	for name, line := range r.files {
		t.Errorf("%s:%d: no command uses %s", r.page.name, line, name)
	}
	for first := range unrunnable[r.page.name] {
		if !r.passed[first] {
			t.Errorf("%s: no block begins with %q any more", r.page.name, first)
		}
	}
	for _, name := range left[r.page.name] {
		if _, err := os.Stat(filepath.Join(r.session.dir, name)); err != nil {
			t.Errorf("%s: %v", r.page.name, err)
		}
	}
}
