package auth

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync/atomic"

	"go.yaml.in/yaml/v3"
)

// Entry is one caller in the file. It may have several tokens, so that one can be replaced while both are accepted.
type Entry struct {
	Name         string   `yaml:"name"`
	Role         string   `yaml:"role"`
	Limits       []string `yaml:"limits,omitempty,flow"` // patterns; none: all limits
	Hashes       []string `yaml:"hashes,omitempty"`      // hashes of tokens, as Hash returns them
	Certificates []string `yaml:"certificates,omitempty"`
}

type document struct {
	Callers []Entry `yaml:"callers"`
}

const (
	tokenPrefix = "hgt_" // so that people and secret scanners recognise a token
	hashPrefix  = "sha256:"
	maxEntries  = 10_000
)

// NewToken returns a token: 256 random bits that nobody has to remember.
func NewToken() string {
	var secret [32]byte
	_, _ = rand.Read(secret[:]) // it never fails
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(secret[:])
}

// Hash returns the hash of a token for the file. SHA-256 without a salt is enough for 256 random bits: they cannot be
// guessed, so a slow hash would gain nothing. Tokens that people make up must not be used.
func Hash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hashPrefix + hex.EncodeToString(sum[:])
}

// Tokens are the callers of a file. They are immutable and safe for concurrent use.
type Tokens struct {
	entries      []Entry
	tokens       map[[sha256.Size]byte]*Caller
	certificates map[string]*Caller
}

// namePattern matches the names of callers. Names have no slash, since Caller.ID puts one after the name.
var namePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9_.-]{0,63}$`)

// Parse parses the text of a file. Errors name the file, and the entry if one is wrong.
func Parse(path string, text []byte) (*Tokens, error) {
	var doc document
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&doc); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %s", path, problemOf(err))
	}
	if err := dec.Decode(new(document)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: there is more than one document", path)
	}
	if len(doc.Callers) > maxEntries {
		return nil, fmt.Errorf("%s: callers: are more than %d", path, maxEntries)
	}
	t := &Tokens{entries: doc.Callers, tokens: map[[sha256.Size]byte]*Caller{}, certificates: map[string]*Caller{}}
	seen := map[string]bool{}
	for i := range doc.Callers {
		e := &doc.Callers[i]
		where := fmt.Sprintf("%s: callers[%d]", path, i)
		if e.Name != "" {
			where += fmt.Sprintf(" (%.64q)", e.Name)
		}
		if seen[e.Name] {
			return nil, fmt.Errorf("%s: name: is said twice; a caller may have several hashes", where)
		}
		seen[e.Name] = true
		if err := t.addEntry(e); err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
	}
	return t, nil
}

func (t *Tokens) addEntry(e *Entry) error {
	if !namePattern.MatchString(e.Name) {
		return errors.New("name: must be 1 to 64 of a-z, 0-9, _, . and -, and begin with a letter or digit")
	}
	role, ok := rolesByName[e.Role]
	if !ok {
		return fmt.Errorf("role %.50q is not known; there are take, read and admin", e.Role)
	}
	c := &Caller{Name: e.Name, Role: role, Limits: e.Limits}
	for _, pattern := range e.Limits {
		if pattern == "" {
			return errors.New("limits: one of them is empty")
		}
	}
	if len(e.Hashes)+len(e.Certificates) == 0 {
		return errors.New("hashes: are missing, and so are certificates")
	}
	for _, text := range e.Hashes {
		digest, ok := strings.CutPrefix(text, hashPrefix)
		sum, err := hex.DecodeString(digest)
		if !ok || err != nil || len(sum) != sha256.Size {
			return errors.New("hashes: one is not of the form sha256:HEX, which headgate token new prints; a token " +
				"itself does not belong into the file")
		}
		if _, twice := t.tokens[[sha256.Size]byte(sum)]; twice {
			return errors.New("hashes: one is said twice in the file")
		}
		t.tokens[[sha256.Size]byte(sum)] = c
		h := hmac.New(sha256.New, sum) // derives the key for the leases of the token
		h.Write([]byte("headgate lease"))
		c.leaseKeys = append(c.leaseKeys, h.Sum(nil))
	}
	for _, subject := range e.Certificates {
		if _, twice := t.certificates[subject]; twice || subject == "" {
			return fmt.Errorf("certificates: %.100q is empty or said twice in the file", subject)
		}
		t.certificates[subject] = c
	}
	return nil
}

// problemOf returns the text of a YAML error, without the names of Go types.
func problemOf(err error) string {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	text = strings.TrimPrefix(text, "unmarshal errors:\n  ")
	text, _, _ = strings.Cut(text, "\n")
	if before, _, found := strings.Cut(text, " in type "); found {
		return before
	}
	if before, _, found := strings.Cut(text, " into "); found && strings.Contains(before, "cannot unmarshal") {
		return strings.Replace(before, "cannot unmarshal", "did not expect", 1)
	}
	return text
}

// Entries returns the callers in the order of the file. The caller must not change them.
func (t *Tokens) Entries() []Entry { return t.entries }

// CallerByToken returns the caller that has a token, or nil. Since hashes are compared, the time does not depend on how
// much of a token is right.
func (t *Tokens) CallerByToken(token string) *Caller {
	return t.tokens[sha256.Sum256([]byte(token))]
}

// CallerByCertificate returns the caller with a verified certificate, or nil. The file lists one of the certificate's
// URIs, one of its DNS names, or its common name; they are tried in this order.
func (t *Tokens) CallerByCertificate(cert *x509.Certificate) *Caller {
	for _, uri := range cert.URIs {
		if c := t.certificates[uri.String()]; c != nil {
			return c
		}
	}
	for _, name := range cert.DNSNames {
		if c := t.certificates[name]; c != nil {
			return c
		}
	}
	return t.certificates[cert.Subject.CommonName]
}

// FileText returns the text of a file with these entries.
func FileText(entries []Entry) ([]byte, error) {
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(document{entries}); err != nil {
		return nil, fmt.Errorf("tokens: %w", err)
	}
	return b.Bytes(), enc.Close()
}

// File is a file of tokens that can be read again while it is in use. It is safe for concurrent use.
type File struct {
	path   string
	tokens atomic.Pointer[Tokens]
}

// Open reads a file.
func Open(path string) (*File, error) {
	f := &File{path: path}
	return f, f.Reload()
}

// Tokens returns the callers that were read last.
func (f *File) Tokens() *Tokens { return f.tokens.Load() }

// Reload reads the file again. If that fails, the former callers remain.
func (f *File) Reload() error {
	text, err := os.ReadFile(f.path)
	if err != nil {
		return fmt.Errorf("tokens: %w", err)
	}
	t, err := Parse(f.path, text)
	if err != nil {
		return err
	}
	f.tokens.Store(t)
	return nil
}
