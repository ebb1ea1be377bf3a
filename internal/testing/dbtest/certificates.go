package dbtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates for a test. With a usual umask every user of this machine can read its files, keys
// included, since servers run as other users. They are removed when the test ends.
type Authority struct {
	File string // the certificate of the authority
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Certificate describes a certificate that an Authority issues.
type Certificate struct {
	Name    string   // the common name; for a client, the user
	Hosts   []string // names and IP addresses of a server
	Expired bool     // the certificate has expired an hour ago
}

// Pair has the paths of a certificate and its key.
type Pair struct{ Cert, Key string }

// NewAuthority makes an authority with a certificate that it has signed itself.
func NewAuthority(tb testing.TB) *Authority {
	tb.Helper()
	defer failTest(tb)
	dir := must(os.MkdirTemp("", "headgate-tls-")) // not tb.TempDir, whose parent only this user can enter
	tb.Cleanup(func() { os.RemoveAll(dir) })
	check(os.Chmod(dir, 0o755))
	a := &Authority{dir: dir}
	var pair Pair
	pair, a.cert, a.key = a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "headgate test authority " + filepath.Base(dir)}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, NotAfter: time.Now().Add(48 * time.Hour),
	})
	a.File = pair.Cert
	return a
}

// Issue makes a certificate, for servers and clients alike, and writes its files.
func (a *Authority) Issue(tb testing.TB, c Certificate) Pair {
	tb.Helper()
	defer failTest(tb)
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: c.Name}, NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if c.Expired {
		template.NotAfter = time.Now().Add(-time.Hour)
	}
	for _, host := range c.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	pair, _, _ := a.sign(template)
	return pair
}

// sign makes a key and its certificate, which is valid since yesterday. The first certificate signs itself.
func (a *Authority) sign(template *x509.Certificate) (Pair, *x509.Certificate, *ecdsa.PrivateKey) {
	template.NotBefore = time.Now().Add(-24 * time.Hour)
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der := must(x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer))
	secret := must(x509.MarshalPKCS8PrivateKey(key))
	file := filepath.Join(a.dir, rand.Text())
	pair := Pair{Cert: file + ".pem", Key: file + ".key"}
	check(os.WriteFile(pair.Cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644))
	check(os.WriteFile(pair.Key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o644))
	return pair, must(x509.ParseCertificate(der)), key
}
