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
	server       string        // path of the program
	options      []string      // options for this flavour only
	noTLS        string        // the option that turns TLS off
	zonesProgram func() string // path of the program that prints time zones as SQL
	// prepare makes the files of an empty server. Its root needs no password.
	prepare func(ctx context.Context, f *folder, data string)
}

// newFlavour returns the engine to test with, or the installed MariaDB.
func newFlavour() *flavour {
	e, ok := engineFor(mysqlKind)
	switch {
	case !ok:
		return installedMariaDB()
	case e.programs["mysqld"] != "":
		return mysqlOf(&e)
	}
	return mariadbOf(&e)
}

// mariadb returns a MariaDB whose files are where the options in places say.
func mariadb(server string, prepare func(ctx context.Context, f *folder, data string), places ...string) *flavour {
	return &flavour{
		server: server, prepare: prepare, noTLS: "--skip-ssl",
		options:      append(places, "--innodb-log-file-size=64M", "--log-warnings=1"),
		zonesProgram: func() string { return program("mariadb-tzinfo-to-sql", MySQLDSNEnv, "mariadb-server") },
	}
}

func installedMariaDB() *flavour {
	install := program("mariadb-install-db", MySQLDSNEnv, "mariadb-server")
	prepare := func(ctx context.Context, f *folder, data string) {
		f.run(ctx, "", install, "--no-defaults", "--datadir="+data, "--auth-root-authentication-method=normal",
			"--skip-test-db", "--innodb-log-file-size=64M")
	}
	return mariadb(program("mariadbd", MySQLDSNEnv, "mariadb-server"), prepare)
}

// mariadbOf returns the MariaDB of an engine. Its mariadb-install-db would start the server by this machine's loader,
// so the server gets the statements of that script instead.
func mariadbOf(e *engine) *flavour {
	server, t := e.program("mariadbd"), e.tree()
	share := filepath.Join(t.root, "usr/share/mariadb")
	places := t.pathOptions(share)
	prepare := func(ctx context.Context, f *folder, data string) {
		text := strings.Builder{}
		text.WriteString("create database mysql;\nuse mysql;\nset @auth_root_socket=NULL;\n")
		for _, name := range []string{"system_tables", "performance_tables", "system_tables_data"} {
			sql := must(os.ReadFile(filepath.Join(share, "mariadb_"+name+".sql")))
			for line := range strings.Lines(string(sql)) {
				if !strings.Contains(line, "@current_hostname") { // accounts for this machine's name
					text.WriteString(line)
				}
			}
		}
		f.run(ctx, "", "mkdir", data)
		f.run(ctx, text.String(), server, append([]string{
			"--no-defaults", "--bootstrap", "--datadir=" + data, "--tmpdir=" + f.path, "--innodb-log-file-size=64M",
		}, places...)...)
	}
	return mariadb(server, prepare, places...)
}

func (t *tree) pathOptions(share string) []string {
	return []string{
		"--basedir=" + filepath.Join(t.root, "usr"), "--lc-messages-dir=" + share,
		"--character-sets-dir=" + filepath.Join(share, "charsets"),
		"--plugin-dir=" + filepath.Join(t.root, "usr/lib/mysql/plugin"),
	}
}

func mysqlOf(e *engine) *flavour {
	server, t := e.program("mysqld"), e.tree()
	share := filepath.Join(t.root, "usr/share/mysql")
	options := append(t.pathOptions(share), "--secure-file-priv=", "--mysqlx=OFF", "--innodb-redo-log-capacity=128M")
	prepare := func(ctx context.Context, f *folder, data string) {
		// The server makes root@localhost alone, who cannot connect by TCP if names are not resolved.
		accounts := filepath.Join(f.path, "accounts.sql")
		const text = "create user root@'%';\ngrant all on *.* to root@'%' with grant option;\n"
		check(os.WriteFile(accounts, []byte(text), 0o644))
		f.run(ctx, "", server, append([]string{
			"--no-defaults", "--initialize-insecure", "--skip-log-bin", "--init-file=" + accounts, "--datadir=" + data,
		}, options...)...)
	}
	zones := func() string { return e.program("mysql_tzinfo_to_sql") }
	return &flavour{server: server, options: options, noTLS: "--tls-version=", zonesProgram: zones, prepare: prepare}
}

// copyTemplate puts the files of an empty server into data in a folder.
func (fl *flavour) copyTemplate(ctx context.Context, f *folder) {
	create := func(f *folder, data string) { fl.prepare(ctx, f, data) }
	f.copyTemplate(ctx, fl.server, filepath.Join(f.data, "data"), create)
}

// launch starts a server over the files in data, a subfolder of the folder.
func (fl *flavour) launch(ctx context.Context, f *folder, data, host string, port int, ping func() error,
	args ...string,
) *process {
	files, data := filepath.Join(f.data, data), filepath.Join(f.path, data)
	options := []string{
		"--no-defaults", "--datadir=" + files, "--bind-address=" + host, "--port=" + strconv.Itoa(port),
		"--socket=" + data + ".sock", "--pid-file=" + data + ".pid", "--tmpdir=" + f.path,
		"--skip-name-resolve", "--max-connections=800", "--innodb-buffer-pool-size=256M",
		"--innodb-flush-log-at-trx-commit=1", "--character-set-server=utf8mb4",
	}
	options = append(append(options, fl.options...), args...)
	cmd := f.command(context.WithoutCancel(ctx), fl.server, options...)
	f.network.runAt(host, cmd)
	return f.launch(ctx, cmd, time.Minute, ping)
}
