package dbtest

import (
	"context"
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
	zones   func() string
	// prepare makes the files of an empty server, whose root needs no password.
	prepare func(ctx context.Context, f *folder, data string)
}

func newFlavour() *flavour {
	e, mine := chosen(mysqlKind)
	switch {
	case !mine:
		return installedMariaDB()
	case e.programs["mysqld"] != "":
		return mysqlOf(&e)
	}
	return mariadbOf(&e)
}

// mariadb returns a MariaDB, with options that say where its files are.
func mariadb(server string, prepare func(ctx context.Context, f *folder, data string), places ...string) *flavour {
	return &flavour{
		server: server, prepare: prepare, plain: "--skip-ssl",
		options: append(places, "--innodb-log-file-size=64M", "--log-warnings=1"),
		zones:   func() string { return program("mariadb-tzinfo-to-sql", MySQLDSN, "mariadb-server") },
	}
}

func installedMariaDB() *flavour {
	install := program("mariadb-install-db", MySQLDSN, "mariadb-server")
	prepare := func(ctx context.Context, f *folder, data string) {
		f.run(ctx, "", install, "--no-defaults", "--datadir="+data, "--auth-root-authentication-method=normal",
			"--skip-test-db", "--innodb-log-file-size=64M")
	}
	return mariadb(program("mariadbd", MySQLDSN, "mariadb-server"), prepare)
}

// mariadbOf returns the MariaDB of a tree. Its mariadb-install-db would start the
// server by this machine's loader, so the server gets that script's statements.
func mariadbOf(e *engine) *flavour {
	server, t := e.program("mariadbd"), e.tree()
	share := filepath.Join(t.root, "usr/share/mariadb")
	places := t.places(share)
	prepare := func(ctx context.Context, f *folder, data string) {
		text := strings.Builder{}
		text.WriteString("create database mysql;\nuse mysql;\nset @auth_root_socket=NULL;\n")
		for _, name := range []string{"system_tables", "performance_tables", "system_tables_data"} {
			sql := get(os.ReadFile(filepath.Join(share, "mariadb_"+name+".sql")))
			for line := range strings.Lines(string(sql)) {
				if !strings.Contains(line, "@current_hostname") { // accounts of this machine's name
					text.WriteString(line)
				}
			}
		}
		f.run(ctx, "", "mkdir", data)
		f.run(ctx, text.String(), server, append([]string{
			"--no-defaults", "--bootstrap", "--datadir=" + data,
			"--tmpdir=" + f.path, "--innodb-log-file-size=64M",
		}, places...)...)
	}
	return mariadb(server, prepare, places...)
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
func mysqlOf(e *engine) *flavour {
	server, t := e.program("mysqld"), e.tree()
	share := filepath.Join(t.root, "usr/share/mysql")
	options := append(t.places(share), "--secure-file-priv=", "--mysqlx=OFF", "--innodb-redo-log-capacity=128M")
	prepare := func(ctx context.Context, f *folder, data string) {
		// It makes root@localhost alone, who cannot come by TCP where names are not resolved.
		accounts := filepath.Join(f.path, "accounts.sql")
		const text = "create user root@'%';\ngrant all on *.* to root@'%' with grant option;\n"
		do(os.WriteFile(accounts, []byte(text), 0o644))
		f.run(ctx, "", server, append([]string{
			"--no-defaults", "--initialize-insecure", "--skip-log-bin",
			"--init-file=" + accounts, "--datadir=" + data,
		}, options...)...)
	}
	zones := func() string { return e.program("mysql_tzinfo_to_sql") }
	return &flavour{server: server, options: options, plain: "--tls-version=", zones: zones, prepare: prepare}
}

// fill puts the files of an empty server into data in a folder.
func (v *flavour) fill(ctx context.Context, f *folder) {
	f.fill(ctx, v.server, filepath.Join(f.data, "data"), func(f *folder, data string) { v.prepare(ctx, f, data) })
}

// launch starts a server over files in a folder.
func (v *flavour) launch(ctx context.Context, f *folder, data, host string, port int, ping func() error,
	args ...string,
) *process {
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
