package deploy_test

import (
	"bytes"
	"crypto/x509"
	"debug/elf"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/tier"
)

// instruction is a line of a Dockerfile.
type instruction struct{ name, args string }

// readDockerfile returns the instructions of each stage of ../Dockerfile.
func readDockerfile(t *testing.T) (stages [][]instruction) {
	t.Helper()
	text, err := os.ReadFile("../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	joined := ""
	for line := range strings.SplitSeq(string(text), "\n") {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		if part, isContinued := strings.CutSuffix(line, "\\"); isContinued {
			joined += part
			continue
		}
		name, args, _ := strings.Cut(joined+line, " ")
		joined = ""
		if name == "FROM" {
			stages = append(stages, nil)
		}
		stages[len(stages)-1] = append(stages[len(stages)-1], instruction{name, strings.TrimSpace(args)})
	}
	if len(stages) != 2 {
		t.Fatalf("the Dockerfile has %d stages", len(stages))
	}
	return stages
}

// image is the result of the last stage of the Dockerfile: a folder, and how to start a container in it.
type image struct {
	root       string
	env        []string
	uid, gid   uint32
	dir        string
	entrypoint []string
	command    []string
	health     []string
	ports      []string
	volume     string
}

// buildImage carries out the Dockerfile: the first stage by a shell, in a copy of the files that .dockerignore does not
// name, and the last stage in an empty folder.
func buildImage(t *testing.T) *image {
	t.Helper()
	stages := readDockerfile(t)
	source, out := filepath.Join(t.TempDir(), "src"), filepath.Join(t.TempDir(), "out")
	copyContext(t, source)
	for _, i := range stages[0] {
		switch i.name {
		case "FROM", "WORKDIR", "COPY", "ARG": // files are copied already; the argument is a variable
		case "RUN":
			cmd := exec.CommandContext(t.Context(), "sh", "-ec", strings.ReplaceAll(i.args, "/out", out))
			cmd.Dir = source
			cmd.Env = append(os.Environ(), "VERSION=v0.0.0-test")
			if text, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("RUN %s: %v\n%s", i.args, err, text)
			}
		default:
			t.Fatalf("the test does not know %s of the first stage", i.name)
		}
	}
	im := &image{root: filepath.Join(t.TempDir(), "root")}
	for _, i := range stages[1] {
		im.step(t, i, out)
	}
	return im
}

// step carries out an instruction of the last stage.
func (im *image) step(t *testing.T, in instruction, out string) {
	t.Helper()
	switch in.name {
	case "FROM":
		if in.args != "scratch" {
			t.Fatalf("the last stage begins with %s, and the folder of the test is empty", in.args)
		}
	case "COPY":
		im.copy(t, in.args, out)
	case "ENV":
		im.env = append(im.env, strings.Fields(in.args)...)
	case "USER":
		if _, err := fmt.Sscanf(in.args, "%d:%d", &im.uid, &im.gid); err != nil || im.uid == 0 || im.gid == 0 {
			t.Fatalf("USER %s: want numbers, and not those of root (%v)", in.args, err)
		}
	case "WORKDIR":
		im.dir = in.args
	case "VOLUME":
		im.volume = in.args
	case "EXPOSE":
		im.ports = strings.Fields(in.args)
	case "HEALTHCHECK":
		_, list, _ := strings.Cut(in.args, "CMD ")
		im.health = parseJSONCommand(t, list)
	case "ENTRYPOINT":
		im.entrypoint = parseJSONCommand(t, in.args)
	case "CMD":
		im.command = parseJSONCommand(t, in.args)
	default:
		t.Fatalf("the test does not know %s of the last stage", in.name)
	}
}

// copy copies a folder of the first stage. The copy belongs to root, unless --chown names another user.
func (im *image) copy(t *testing.T, args, out string) {
	t.Helper()
	words := strings.Fields(args)
	owner := "0:0"
	for len(words) > 2 {
		if name, ok := strings.CutPrefix(words[0], "--chown="); ok {
			owner = name
		} else if words[0] != "--from=build" {
			t.Fatalf("the test does not know COPY %s", words[0])
		}
		words = words[1:]
	}
	from, to := strings.Replace(words[0], "/out", out, 1), filepath.Join(im.root, words[1])
	const script = `mkdir -p "$(dirname "$2")" && cp -rT "$1" "$2" && chmod --reference="$1" "$2" && chown -R "$3" "$2"`
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", script, "copy", from, to, owner)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("COPY %s: %v\n%s", args, err, text)
	}
}

// parseJSONCommand parses a command in JSON form, which needs no shell.
func parseJSONCommand(t *testing.T, text string) (list []string) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return list
}

// copyContext copies the files that Docker sends to the build, which are all that .dockerignore does not name. Patterns
// may be paths, and names after **/.
func copyContext(t *testing.T, to string) {
	t.Helper()
	text, err := os.ReadFile("../.dockerignore")
	if err != nil {
		t.Fatal(err)
	}
	var patterns []string
	for line := range strings.SplitSeq(string(text), "\n") {
		if line != "" && line[0] != '#' {
			patterns = append(patterns, line)
		}
	}
	ignored := func(path string) bool {
		return slices.ContainsFunc(patterns, func(p string) bool {
			name := path
			if rest, anyFolder := strings.CutPrefix(p, "**/"); anyFolder {
				p, name = rest, filepath.Base(path)
			}
			matched, err := filepath.Match(p, name)
			return matched && err == nil
		})
	}
	err = fs.WalkDir(os.DirFS(".."), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path != "." && ignored(path) {
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if e.IsDir() {
			return os.MkdirAll(filepath.Join(to, path), 0o755)
		}
		if !e.Type().IsRegular() {
			return nil
		}
		data, err := os.ReadFile(filepath.Join("..", path))
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, path), data, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// start runs a command as the image's user, with the folder of the image as the root of the file system. env is added
// to the variables of the image.
func (im *image) start(t *testing.T, command []string, env ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	output := new(bytes.Buffer)
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Path = command[0]
	cmd.Env = slices.Concat(im.env, env)
	cmd.Dir = im.dir
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Chroot: im.root, Credential: &syscall.Credential{Uid: im.uid, Gid: im.gid}, Pdeathsig: syscall.SIGKILL,
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("%q: %v", command, err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	return cmd, output
}

// run runs a command as start does, until it ends.
func (im *image) run(t *testing.T, command []string, env ...string) (code int, output string) {
	t.Helper()
	cmd, out := im.start(t, command, env...)
	_ = cmd.Wait()
	return cmd.ProcessState.ExitCode(), out.String()
}

// TestTheImage builds the image without Docker and starts it. Without tokens the server refuses to start; with
// HEADGATE_OPEN it decides, keeps its state in its volume, and stops on SIGTERM.
func TestTheImage(t *testing.T) {
	tier.Nightly(t)
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("chroot needs root: the image is not tried")
	}
	im := buildImage(t)
	checkRoot(t, im)
	if !slices.Equal(im.ports, []string{"8080", "8081", "9090"}) || im.volume != "/var/lib/headgate" {
		t.Errorf("got ports %v, volume %s", im.ports, im.volume)
	}
	serve := slices.Concat(im.entrypoint, im.command)
	port, metricsPort := dbtest.FreePort(t), dbtest.FreePort(t)
	ports := []string{fmt.Sprintf("HEADGATE_HTTP=:%d", port), fmt.Sprintf("HEADGATE_METRICS=:%d", metricsPort)}
	if code, output := im.run(t, []string{"/headgate", "--version"}); code != 0 ||
		!strings.HasPrefix(output, "headgate v0.0.0-test ") {
		t.Errorf("--version: got exit code %d, %s, want 0", code, output)
	}
	if code, output := im.run(t, serve, ports...); code != 2 || !strings.Contains(output, "or open if that is meant") {
		t.Errorf("without tokens: got exit code %d, %s, want 2", code, output)
	}
	if code, output := im.run(t, im.health, ports...); code != 1 {
		t.Errorf("the health check without a server: got exit code %d, %s, want 1", code, output)
	}
	openEnv := slices.Concat(ports, []string{"HEADGATE_OPEN=true", "HEADGATE_DEADLINE=10s"}) // the disk may be busy

	for _, want := range []string{`"remaining":1`, `"remaining":0`} { // the second server finds the state of the first
		cmd, output := im.start(t, serve, openEnv...)
		waitFor200(t, fmt.Sprintf("http://127.0.0.1:%d/livez", metricsPort), output)
		if code, output := im.run(t, im.health, ports...); code != 0 {
			t.Errorf("the health check: got exit code %d, %s, want 0", code, output)
		}
		r, err := http.Post(fmt.Sprintf("http://127.0.0.1:%d/v1/take", port), "application/json",
			strings.NewReader(`{"limit":"sliding-log 2/1h","key":"a"}`))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil || !strings.Contains(string(body), want) {
			t.Errorf("take: %s, %v; want %s", body, err, want)
		}
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("after SIGTERM: %v\n%s", err, output)
		}
		http.DefaultClient.CloseIdleConnections() // they end with the server
	}
}

// checkRoot checks the files of the image: a static binary, authorities, and a folder that only its user can read.
func checkRoot(t *testing.T, im *image) {
	t.Helper()
	var files []string
	err := filepath.WalkDir(im.root, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			files = append(files, strings.TrimPrefix(path, im.root))
		}
		return err
	})
	if want := []string{"/etc/ssl/certs/ca-certificates.crt", "/headgate"}; err != nil || !slices.Equal(files, want) {
		t.Errorf("the image has %q, %v; want %q", files, err, want)
	}
	f, err := elf.Open(filepath.Join(im.root, "headgate"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		t.Error("the binary needs a dynamic linker, which the image does not have")
	}
	if f.Section(".symtab") != nil || f.Section(".debug_info") != nil {
		t.Error("the binary is not stripped")
	}
	pem, err := os.ReadFile(filepath.Join(im.root, "etc/ssl/certs/ca-certificates.crt"))
	if err != nil || !x509.NewCertPool().AppendCertsFromPEM(pem) {
		t.Errorf("the image has no authorities: %v", err)
	}
	info, err := os.Stat(filepath.Join(im.root, im.volume))
	if err != nil {
		t.Fatal(err)
	}
	if s := info.Sys().(*syscall.Stat_t); s.Uid != im.uid || s.Gid != im.gid || info.Mode().Perm() != 0o700 {
		t.Errorf("%s belongs to %d:%d with mode %v", im.volume, s.Uid, s.Gid, info.Mode())
	}
	binary, err := os.Stat(filepath.Join(im.root, "headgate"))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the binary has %.1f MB", float64(binary.Size())/1e6)
}

// waitFor200 waits until the status at a URL is 200.
func waitFor200(t *testing.T, url string, output *bytes.Buffer) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("the output is\n%s", output)
		}
	}()
	await.Until(t, url, func() bool {
		r, err := http.Get(url)
		if err != nil {
			return false
		}
		r.Body.Close()
		return r.StatusCode == http.StatusOK
	})
}

// TestImageHasTheGoVersionOfTheModule compares the versions of Go in the Dockerfile and in go.mod.
func TestImageHasTheGoVersionOfTheModule(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	_, goVersion, _ := strings.Cut(string(text), "\ngo ")
	minor := strings.Join(strings.SplitN(strings.SplitN(goVersion, "\n", 2)[0], ".", 3)[:2], ".")
	if from := readDockerfile(t)[0][0]; !strings.HasPrefix(from.args, "golang:"+minor+".") {
		t.Errorf("the Dockerfile is FROM %s, go.mod is for Go %s", from.args, minor)
	}
}
