package mysql

import "context"

// Cipher returns the cipher of a connection to the first node; empty: the connection has no TLS.
func (s *Store) Cipher() (cipher string, err error) {
	var name string
	err = s.nodes[0].db.QueryRowContext(context.Background(), "SHOW SESSION STATUS LIKE 'Ssl_cipher'").Scan(
		&name, &cipher)
	return cipher, err
}
