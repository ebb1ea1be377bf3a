package dbtest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// flavour is a server that speaks MySQL's protocol.
type flavour struct {
	server  string   // the program
	options []string // beside those that all flavours know
	plain   string   // the option of a server without TLS
	zones   func() (string, error)
	// prepare makes the files of an empty server, whose root needs no password.
	prepare func(ctx context.Context, f *folder, data string) error
}

// newFlavour returns the flavour to test with.
func newFlavour() (*flavour, error) {
	e, mine, err := chosen(mysqlKind)
	switch {
	case err != nil:
		return nil, err
	case !mine:
		return installedMariaDB()
	}
	t, err := e.tree()
	if err != nil {
		return nil, err
	}
	if e.programs["mysqld"] != "" {
		return mysqlOf(&e, t)
	}
	return mariadbOf(&e, t)
}

var mariadbOptions = []string{"--innodb-log-file-size=64M", "--log-warnings=1"}

const mariadbPlain = "--skip-ssl"

func mariadbZones() (string, error) {
	return program("mariadb-tzinfo-to-sql", MySQLDSN, "mariadb-server")
}

// installedMariaDB returns the distribution's own.
func installedMariaDB() (*flavour, error) {
	install, err := program("mariadb-install-db", MySQLDSN, "mariadb-server")
	if err != nil {
		return nil, err
	}
	server, err := program("mariadbd", MySQLDSN, "mariadb-server")
	if err != nil {
		return nil, err
	}
	return &flavour{
		server: server, options: mariadbOptions, plain: mariadbPlain, zones: mariadbZones,
		prepare: func(ctx context.Context, f *folder, data string) error {
			return f.run(ctx, install, "--no-defaults", "--datadir="+data, "--auth-root-authentication-method=normal",
				"--skip-test-db", "--innodb-log-file-size=64M")
		},
	}, nil
}

// mariadbOf returns the MariaDB of a tree. Its mariadb-install-db would start the
// server by this machine's loader, so the server gets that script's statements.
func mariadbOf(e *engine, t *tree) (*flavour, error) {
	server, err := e.program("mariadbd")
	if err != nil {
		return nil, err
	}
	share := filepath.Join(t.root, "usr/share/mariadb")
	places := t.places(share)
	prepare := func(ctx context.Context, f *folder, data string) error {
		text := strings.Builder{}
		text.WriteString("create database mysql;\nuse mysql;\nset @auth_root_socket=NULL;\n")
		for _, name := range []string{"system_tables", "performance_tables", "system_tables_data"} {
			sql, err := os.ReadFile(filepath.Join(share, "mariadb_"+name+".sql"))
			if err != nil {
				return err
			}
			for line := range strings.Lines(string(sql)) {
				if !strings.Contains(line, "@current_hostname") { // accounts of this machine's name
					text.WriteString(line)
				}
			}
		}
		if err := f.run(ctx, "mkdir", data); err != nil {
			return err
		}
		cmd := f.command(ctx, server, append([]string{
			"--no-defaults", "--bootstrap", "--datadir=" + data,
			"--tmpdir=" + f.path, "--innodb-log-file-size=64M",
		}, places...)...)
		cmd.Stdin = strings.NewReader(text.String())
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("mariadbd --bootstrap: %w\n%s", err, tail(string(out), 20))
		}
		return nil
	}
	return &flavour{
		server: server, options: append(places, mariadbOptions...), plain: mariadbPlain,
		zones: mariadbZones, prepare: prepare,
	}, nil
}

// places returns options with the folders of a tree.
func (t *tree) places(share string) []string {
	return []string{
		"--basedir=" + filepath.Join(t.root, "usr"), "--lc-messages-dir=" + share,
		"--character-sets-dir=" + filepath.Join(share, "charsets"),
		"--plugin-dir=" + filepath.Join(t.root, "usr/lib/mysql/plugin"),
	}
}

// mysqlOf returns the MySQL of a tree.
func mysqlOf(e *engine, t *tree) (*flavour, error) {
	server, err := e.program("mysqld")
	if err != nil {
		return nil, err
	}
	share := filepath.Join(t.root, "usr/share/mysql")
	options := append(t.places(share), "--secure-file-priv=", "--mysqlx=OFF", "--innodb-redo-log-capacity=128M")
	prepare := func(ctx context.Context, f *folder, data string) error {
		// It makes root@localhost alone, who cannot come by TCP where names are not resolved.
		accounts := filepath.Join(f.path, "accounts.sql")
		const text = "create user root@'%';\ngrant all on *.* to root@'%' with grant option;\n"
		if err := os.WriteFile(accounts, []byte(text), 0o644); err != nil {
			return err
		}
		return f.run(ctx, server, append([]string{
			"--no-defaults", "--initialize-insecure", "--skip-log-bin",
			"--init-file=" + accounts, "--datadir=" + data,
		}, options...)...)
	}
	zones := func() (string, error) { return e.program("mysql_tzinfo_to_sql") }
	return &flavour{server: server, options: options, plain: "--tls-version=", zones: zones, prepare: prepare}, nil
}

// fill puts the files of an empty server into data in a folder.
func (v *flavour) fill(ctx context.Context, f *folder) error {
	make := func(f *folder, data string) error { return v.prepare(ctx, f, data) }
	return f.fill(ctx, v.server, filepath.Join(f.data, "data"), make)
}

// launch starts a server over files in a folder.
func (v *flavour) launch(ctx context.Context, f *folder, data, host string, port int, ping func() error,
	args ...string,
) (*process, error) {
	files, data := filepath.Join(f.data, data), filepath.Join(f.path, data)
	all := []string{
		"--no-defaults", "--datadir=" + files, "--bind-address=" + host, "--port=" + strconv.Itoa(port),
		"--socket=" + data + ".sock", "--pid-file=" + data + ".pid", "--tmpdir=" + f.path,
		"--skip-name-resolve", "--max-connections=800", "--innodb-buffer-pool-size=256M",
		"--innodb-flush-log-at-trx-commit=1", "--character-set-server=utf8mb4",
	}
	all = append(append(all, v.options...), args...)
	cmd := f.command(context.WithoutCancel(ctx), v.server, all...)
	f.network.within(host, cmd)
	return f.launch(ctx, cmd, time.Minute, ping)
}
