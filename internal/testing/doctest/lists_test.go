package doctest

import "regexp"

// noCluster is why blocks of docs/kubernetes.md do not run.
const noCluster = "a cluster is not there: make chart renders the chart with these values"

// skippedBlocks has the blocks that the tests do not run: the reason by page and first line.
var skippedBlocks = map[string]map[string]string{
	"docs/sql.md": {"select cron.schedule('headgate-sweep', '* * * * *', 'select headgate.sweep(10000)');": "the extension pg_cron is not installed here"},
	"docs/kubernetes.md": {
		"docker build --build-arg VERSION=v0.1.0 -t registry.example.com/headgate:v0.1.0 .": "Docker is not there: " +
			"TestTheImage of deploy carries out the steps",
		"kubectl create namespace limits": noCluster,
		`helm upgrade headgate deploy/helm/headgate -n limits -f deploy/helm/values/postgresql.yaml \`: noCluster,
	},
	"docs/project/yugabytedb.md": {
		"HEADGATE_TEST_YUGABYTE_DSN='postgres://yugabyte@n1:5433/yugabyte' go test ./store/postgres " +
			"-run TestConformanceOfYugabyteDB": "there is no YugabyteDB here, and the page says so",
	},
	"docs/installing.md": {
		"systemd-analyze verify /etc/systemd/system/headgate.service /etc/systemd/system/headgate.socket": "is for " +
			"installed units; TestUnits of deploy verifies these",
		"sudo systemctl enable --now headgate.socket": changesSystem,
	},
	"docs/access.md": {
		"callers:": "hashes of tokens that do not exist; internal/server/auth tests the form",
		`level=INFO msg="admin action" verb=block limit=login key=mallory by=oncall reason="password guessing" for=15m0s`: "a line " +
			"of the log, which TestAdminSocketAndMetricsAddress looks for",
	},
	"docs/metrics.md": {
		`{"time":"2026-11-26T14:41:07.3Z","level":"INFO","msg":"decision","outcome":"refused","limit":"login","key":"mallory","cost":"1","why":"a cost of 1 does not fit, 0 of 5 remain","capacity":5,"remaining":0,"retry_after":12000000000,"way":"store","verb":"take","protocol":"http","took":310000}`: "a line of the log, of which internal/server/decisionlog tests the form",
	},
	"docs/project/design.md": {".                 package headgate: limits and algorithms as values, Charge, " +
		"Decision, Limiter": "a list of folders: TestTheHouse compares it"},
}

const changesSystem = "changes the system that it runs on"

// anyNumberOutputs has the first lines of outputs in which every number differs from run to run, by page.
var anyNumberOutputs = map[string][]string{
	"docs/stores.md": {"granted"}, // what time it is
}

// readerFiles has the texts or paths of files that a reader has already, by page and file name.
var readerFiles = map[string]map[string]string{
	"docs/getting-started.md": {"backup.sh": touchScript("backed-up")},
	"docs/sql.md": {
		"retry_postgres.py": "../../../examples/sql/retry_postgres.py",
		"retry_mysql.py":    "../../../examples/sql/retry_mysql.py", "Retry.java": "../../../examples/sql/Retry.java",
	},
	"docs/tour-log.md": {"access.log": "../../replay/testdata/apache.log.gz"},
}

func touchScript(file string) string { return "#!/bin/sh\necho >>" + file + "\n" }

// goCommand matches a command that compiles the files of the page.
var goCommand = regexp.MustCompile(`(?m)^go (run|test|build)\b`)

// createdFiles has the files that a page leaves behind, which prove that its programs have run.
var createdFiles = map[string][]string{
	"README.md":               {"headgate.db"},
	"docs/getting-started.md": {"backed-up"},
	"docs/tour-log.md":        {"limit.html"},
}
