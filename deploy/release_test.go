package deploy_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// release has the fields of .goreleaser.yaml that the test checks.
type release struct {
	Builds   []struct{ Ldflags, Tags []string }
	Archives []struct{ Files []struct{ Src string } }
	NFPMs    []struct {
		Contents []struct{ Src, Dst string }
		Scripts  map[string]string
	} `yaml:"nfpms"`
}

// TestReleaseFilesExist checks that all files that a release does not make itself exist, that its packages have the
// units, and that its binary has the stamps and the tags of make build.
func TestReleaseFilesExist(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../.goreleaser.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var r release
	if err := yaml.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	files, packaged := []string{}, []string{}
	for _, a := range r.Archives {
		for _, f := range a.Files {
			files = append(files, f.Src)
		}
	}
	for _, p := range r.NFPMs {
		for _, c := range p.Contents {
			files = append(files, c.Src)
			packaged = append(packaged, filepath.Base(c.Dst))
		}
		for _, script := range p.Scripts {
			files = append(files, script)
		}
	}
	if len(files) < 15 {
		t.Fatalf("got the files %q, want 15 at least", files)
	}
	for _, file := range files {
		if found, err := filepath.Glob("../" + file); !strings.HasPrefix(file, "bin/") && (err != nil || len(found) == 0) {
			t.Errorf("%s is not there: %v", file, err)
		}
	}
	units, err := filepath.Glob("systemd/*")
	if err != nil || len(units) == 0 {
		t.Fatal(units, err)
	}
	for _, unit := range units {
		if name := filepath.Base(unit); !slices.Contains(packaged, name) {
			t.Errorf("the packages lack %s", name)
		}
	}

	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	stamp := regexp.MustCompile(`-X main\.(\w+)=`)
	buildStamps := stamp.FindAllString(string(makefile), -1)
	if releaseStamps := stamp.FindAllString(strings.Join(r.Builds[0].Ldflags, " "), -1); len(buildStamps) == 0 ||
		!slices.Equal(buildStamps, releaseStamps) {
		t.Errorf("make build stamps %q, a release %q", buildStamps, releaseStamps)
	}
	tags := regexp.MustCompile(`(?m)^TAGS +\?= (.*)$`).FindStringSubmatch(string(makefile))
	if releaseTags := strings.Join(r.Builds[0].Tags, ","); tags == nil || tags[1] != releaseTags {
		t.Errorf("make build has the tags %q, a release %q", tags, releaseTags)
	}
	image, err := os.ReadFile("../Dockerfile")
	if err != nil || tags == nil || !strings.Contains(string(image), `ARG TAGS="`+tags[1]+`"`) {
		t.Errorf("the image has other tags than make build, %q: %v", tags, err)
	}
}
