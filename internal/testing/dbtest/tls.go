package dbtest

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TLS configures TLS of a server. With the zero TLS, the server does not speak TLS.
type TLS struct {
	Pair           // the certificate and the key of the server
	Clients string // certificate of the authority that signs clients' certificates; empty: clients need none
	Only    bool   // connections without TLS are refused
}

// TLSUser and TLSPassword are the user and the password of servers with TLS. No printed text may contain the password.
const (
	TLSUser     = "headgate"
	TLSPassword = "s3cret-word"
)

// PostgresTLS returns the URL of a database on a server that ends with the test, for TLSUser at 127.0.0.1.
func PostgresTLS(tb testing.TB, t TLS) string {
	tb.Helper()
	defer failTest(tb)
	s := new(Config).startPostgres(context.Background(), postgresPrograms(), &t)
	tb.Cleanup(s.Stop)
	return s.DSN
}

// options returns the options of a PostgreSQL whose files are in a folder, and writes its pg_hba.conf into data.
func (t *TLS) options(f *folder, data string) []string {
	kind, suffix := "host", ""
	if t.Only {
		kind = "hostssl"
	}
	if t.Clients != "" {
		kind, suffix = "hostssl", " clientcert=verify-full"
	}
	hba := "local all all trust\n" + kind + " all all 127.0.0.1/32 scram-sha-256" + suffix + "\n"
	check(os.WriteFile(filepath.Join(data, "pg_hba.conf"), []byte(hba), 0o600))
	list := []string{"-c", "password_encryption=scram-sha-256"} // PostgreSQL 13 has md5 by default
	for name, file := range map[string]string{
		"ssl_cert_file": t.Cert, "ssl_key_file": t.Key, "ssl_ca_file": t.Clients,
	} {
		if file != "" { // PostgreSQL takes no key that others can read
			copyPath := filepath.Join(f.path, name)
			check(os.WriteFile(copyPath, must(os.ReadFile(file)), 0o600))
			f.chown(copyPath)
			list = append(list, "-c", name+"="+copyPath)
		}
	}
	if t.Cert != "" {
		list = append(list, "-c", "ssl=on")
	}
	return list
}

// MariaDBTLS returns the URL of a database on a server that ends with the test, for TLSUser at 127.0.0.1.
func MariaDBTLS(tb testing.TB, t TLS) string {
	tb.Helper()
	defer failTest(tb)
	fl := newFlavour()
	options := []string{"--ssl-cert=" + t.Cert, "--ssl-key=" + t.Key}
	if t.Cert == "" {
		options = []string{fl.noTLS}
	}
	if t.Clients != "" {
		options = append(options, "--ssl-ca="+t.Clients)
	}
	s := fl.start(context.Background(), &Config{Args: options})
	tb.Cleanup(s.Stop)
	account, requirement := fmt.Sprintf("'%s'@'%%'", TLSUser), ""
	if t.Clients != "" {
		requirement = " require x509"
	}
	statements := fmt.Sprintf("create database headgate; create user %s identified by '%s'%s; grant all on "+
		"headgate.* to %s", account, TLSPassword, requirement, account)
	if t.Only {
		statements += "; set global require_secure_transport = on"
	}
	check(execMariaDB(s.DSN, statements))
	return strings.Replace(s.DSN, "root@", TLSUser+":"+TLSPassword+"@", 1) + "headgate"
}

// RedisTLS returns the rediss:// URL of a server at 127.0.0.1 that ends with the test. The server speaks only TLS, or
// no TLS if t has no certificate.
func RedisTLS(tb testing.TB, t TLS) string {
	tb.Helper()
	defer failTest(tb)
	options := []string{"--requirepass", TLSPassword}
	if t.Cert != "" {
		clients := map[bool]string{true: "yes", false: "no"}[t.Clients != ""]
		options = append(options, "--tls-cert-file", t.Cert, "--tls-key-file", t.Key, "--tls-auth-clients", clients,
			"--tls-ca-cert-file", cmp.Or(t.Clients, t.Cert))
	}
	s := (&Config{Args: options}).startRedis(context.Background(), t.Cert != "")
	tb.Cleanup(s.Stop)
	return strings.Replace(s.DSN, "redis://", "rediss://default:"+TLSPassword+"@", 1)
}
