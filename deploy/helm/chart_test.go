// Package helm_test renders the Helm chart with several values, and checks the objects.
package helm_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/envoy"
	"github.com/headgate/headgate/internal/testing/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const (
	chart       = "headgate"
	alerts      = "../prometheus/alerts.yaml"
	helmEnv     = "HEADGATE_TEST_HELM"        // names the program
	validateEnv = "HEADGATE_TEST_KUBECONFORM" // names the program and its -schema-location; not set: skip the schemas
)

// kubernetes are the versions that the chart is rendered for, the oldest first.
var kubernetes = []string{"1.34.0", "1.37.0"}

// helm runs helm with folders of its own, for the oldest Kubernetes, and returns its output.
func helm(t *testing.T, args ...string) (out string, err error) {
	t.Helper()
	program := os.Getenv(helmEnv)
	if program == "" {
		t.Skipf("%s is not set: make chart builds helm and runs this test", helmEnv)
	}
	cmd := exec.CommandContext(t.Context(), program, append(args, "--kube-version", kubernetes[0])...)
	home := t.TempDir()
	for _, name := range []string{"HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"} {
		cmd.Env = append(cmd.Env, name+"="+home)
	}
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	err = cmd.Run()
	return output.String(), err
}

// valuesFiles returns the example files of values, to which docs/kubernetes.md links.
func valuesFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("values/*.yaml")
	if err != nil || len(files) < 4 {
		t.Fatalf("found %q, %v", files, err)
	}
	return files
}

// TestChartObjects lints and renders the chart with each file of values, and checks the objects.
func TestChartObjects(t *testing.T) {
	t.Parallel()
	for _, file := range append(valuesFiles(t), "testdata/all.yaml") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			if out, err := helm(t, "lint", "--strict", chart, "-f", file); err != nil {
				t.Errorf("helm lint: %v\n%s", err, out)
			}
			out, err := helm(t, "template", "limits", chart, "-n", "edge", "-f", file)
			if err != nil {
				t.Fatalf("helm template: %v\n%s", err, out)
			}
			validate(t, out)
			checkContents(t, out)
		})
	}
}

// validate checks objects by the schemas of each version of Kubernetes, which allow no other fields.
func validate(t *testing.T, objects string) {
	t.Helper()
	command := strings.Fields(os.Getenv(validateEnv))
	if len(command) == 0 {
		return
	}
	for _, version := range kubernetes {
		// Kubernetes does not define the kinds of the Prometheus operator.
		args := slices.Concat(command[1:], []string{
			"-strict", "-summary", "-skip", "ServiceMonitor,PrometheusRule", "-kubernetes-version", version,
		})
		cmd := exec.CommandContext(t.Context(), command[0], args...)
		cmd.Stdin = strings.NewReader(objects)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("Kubernetes %s: %v\n%s", version, err, out)
		}
		t.Logf("Kubernetes %s: %s", version, strings.TrimSpace(string(out)))
	}
}

type object struct {
	Kind     string
	Metadata struct{ Name string }
	Data     map[string]string
	Spec     yaml.Node
}

func objects(t *testing.T, text string) (list []object) {
	t.Helper()
	for d := yaml.NewDecoder(strings.NewReader(text)); ; {
		var o object
		err := d.Decode(&o)
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, o)
	}
}

// deployment has the fields of a Deployment that tests check.
type deployment struct {
	Template struct {
		Spec struct {
			Containers []struct{ Args []string }
		}
	}
}

// checkContents parses the files and flags of Headgate, and compares the alert rules.
func checkContents(t *testing.T, text string) {
	t.Helper()
	for _, o := range objects(t, text) {
		for name, text := range o.Data {
			var err error
			if strings.HasSuffix(o.Metadata.Name, "-envoy") {
				_, err = envoy.Parse(false, envoy.File{Name: name, Text: []byte(text)})
			} else {
				_, err = config.Parse(name, []byte(text))
			}
			if err != nil {
				t.Errorf("%s of the ConfigMap %s: %v", name, o.Metadata.Name, err)
			}
		}
		switch o.Kind {
		case "Deployment":
			var d deployment
			if err := o.Spec.Decode(&d); err != nil || len(d.Template.Spec.Containers) != 1 {
				t.Fatalf("%+v, %v", d, err)
			}
			checkFlags(t, d.Template.Spec.Containers[0].Args)
		case "PrometheusRule":
			compareAlerts(t, &o.Spec)
		}
	}
}

// checkFlags compares the arguments of the container with the settings of headgate serve.
func checkFlags(t *testing.T, args []string) {
	t.Helper()
	if len(args) == 0 || args[0] != "serve" {
		t.Errorf("the container has the arguments %q", args)
	}
	for _, arg := range args[1:] {
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		if !slices.ContainsFunc(config.Settings, func(s config.Setting) bool { return s.Flag() == name }) {
			t.Errorf("headgate serve has no flag %s", arg)
		}
	}
}

// compareAlerts compares the rules of a PrometheusRule with the file of alerts.
func compareAlerts(t *testing.T, spec *yaml.Node) {
	t.Helper()
	text, err := os.ReadFile(alerts)
	if err != nil {
		t.Fatal(err)
	}
	var got, want any
	if err := errors.Join(spec.Decode(&got), yaml.Unmarshal(text, &want)); err != nil {
		t.Fatal(err)
	}
	a, err := yaml.Marshal(got)
	b, wantErr := yaml.Marshal(want)
	if err := errors.Join(err, wantErr); err != nil || !bytes.Equal(a, b) {
		t.Errorf("the PrometheusRule has\n%s\nwant\n%s\n%v", a, b, err)
	}
}

// TestChartHasTheAlertRules checks the chart's copy of the alert rules: a chart can read only files of its own folder.
func TestChartHasTheAlertRules(t *testing.T) {
	t.Parallel()
	got, err := os.ReadFile("headgate/files/alerts.yaml")
	want, wantErr := os.ReadFile(alerts)
	if err != nil || wantErr != nil || !bytes.Equal(got, want) {
		t.Errorf("headgate/files/alerts.yaml differs from deploy/prometheus/alerts.yaml: %v, %v",
			err, wantErr)
	}
}

// TestChartRefusesInvalidValues checks the messages about invalid values, and that the chart accepts some valid ones.
func TestChartRefusesInvalidValues(t *testing.T) {
	t.Parallel()
	const validValues = "store.url=redis://valkey/0,open=true"
	for _, c := range []struct{ values, wantText string }{
		{"open=true", "store: set existingSecret to a Secret"},
		{"open=true,store.url=redis://valkey/0,store.existingSecret=x", "store: set url or existingSecret, not both"},
		{"open=true,store.url=memory:", `2 replicas cannot share a store of the kind "memory"`},
		{"open=true,store.url=sqlite:/x.db", `2 replicas cannot share a store of the kind "sqlite"`},
		{
			"open=true,store.url=memory:,replicaCount=1,autoscaling.enabled=true",
			`6 replicas cannot share a store of the kind "memory"`,
		},
		{"open=true,store.url=redis:/", ""}, // the chart accepts it; the server reports the error
		{"open=true,store.url=oracle://db", "url"},
		{"store.url=redis://valkey/0", "access: headgate does not start"},
		{"store.url=redis://valkey/0,tls.existingSecret=x", "access: headgate does not start"},
		{"store.url=redis://valkey/0,tls.clientCA=true", "tls: clientCA needs existingSecret"},
		{validValues + ",tokens.file=x,tokens.existingSecret=x", "tokens: set file or existingSecret, not both"},
		{validValues + ",grpc.enabled=false,envoy.a\\.yaml.domain=x", "envoy: the rate limit service needs grpc.enabled"},
		{validValues + ",persistence.enabled=true", "persistence: the volume is for SQLite"},
		{validValues + ",terminationGracePeriodSeconds=20", "terminationGracePeriodSeconds: set it to"},
		{validValues + ",autoscaling.enabled=true,autoscaling.minReplicas=9", "autoscaling: minReplicas is above maxReplicas"},
		{validValues + ",replicas=3", "replicas"},                       // a mistyped name
		{validValues + ",probes.readiness.path=/healthz", "readiness"},  // /healthz is not for this probe
		{validValues + ",probes.readiness.timeoutSeconds=1", "timeout"}, // /readyz may take 2 s
		{validValues, ""},
		{"open=true,store.url=memory:,replicaCount=1", ""},
	} {
		out, err := helm(t, "template", "limits", chart, "--set", c.values)
		switch {
		case c.wantText == "" && err != nil:
			t.Errorf("%s: %v\n%s", c.values, err, out)
		case c.wantText != "" && err == nil:
			t.Errorf("%s: got no error, want %q", c.values, c.wantText)
		case c.wantText != "" && !strings.Contains(out, c.wantText):
			t.Errorf("%s: got\n%s\nwant %q", c.values, out, c.wantText)
		}
	}
}

// TestChartUpgradeStrategyAndMigrationJob checks that a store of one process never has a second pod, not even during an
// upgrade. Another store gets a new pod before the old one ends, and, if it has a schema, a Job for it.
func TestChartUpgradeStrategyAndMigrationJob(t *testing.T) {
	t.Parallel()
	for values, want := range map[string]struct{ present, absent string }{
		"store.url=memory:,replicaCount=1":                    {"type: Recreate", "kind: Job"},
		"store.url=redis://valkey/0":                          {"type: RollingUpdate", "kind: Job"},
		"store.url=postgres://db/app":                         {"kind: Job", "type: Recreate"},
		"store.existingSecret=x":                              {"kind: Job", "type: Recreate"},
		"store.existingSecret=x,migration.enabled=false":      {"type: RollingUpdate", "kind: Job"},
		"store.url=redis://valkey/0,autoscaling.enabled=true": {"kind: HorizontalPodAutoscaler", "  replicas:"},
	} {
		out, err := helm(t, "template", "limits", chart, "--set", "open=true,"+values)
		if err != nil || !strings.Contains(out, want.present) || strings.Contains(out, want.absent) {
			t.Errorf("%s: %v, want %q and not %q\n%s", values, err, want.present, want.absent, out)
		}
	}
}

// TestConfigChangeReplacesThePods checks that a change of the config changes a checksum, unlike other values.
func TestConfigChangeReplacesThePods(t *testing.T) {
	t.Parallel()
	checksums := func(values string) (list []string) {
		t.Helper()
		out, err := helm(t, "template", "limits", chart, "--set", "open=true,store.url=redis://valkey/0,"+values)
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for line := range strings.Lines(out) {
			if strings.Contains(line, "checksum/") {
				list = append(list, line)
			}
		}
		return list
	}
	first := checksums("config.limits.api=gcra 1/s")
	second := checksums("config.limits.api=gcra 2/s")
	if len(first) != 2 || first[0] == second[0] || first[1] != second[1] {
		t.Errorf("got %q and %q", first, second)
	}
	if second := checksums("config.limits.api=gcra 1/s,replicaCount=5"); !slices.Equal(first, second) {
		t.Errorf("got %q and %q", first, second)
	}
}
