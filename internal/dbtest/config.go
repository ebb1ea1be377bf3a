package dbtest

import (
	"context"
	"os"
)

// Config says how to start a server that belongs to a test alone: it is never one of the environment. The zero
// Config is fine.
type Config struct {
	// Data is the folder for the server's data, for example the Path of a [Disk]. Logs, sockets and
	// temporary files are elsewhere. Empty: a folder that is removed with the server.
	Data string
	// Log is the folder for the write-ahead log of a PostgreSQL, in files of 1 MB. Empty: it is with the data.
	Log string
	// Faults lets SlowDisk and ShiftClock of the server work. They need a glibc, and gcc, which is installed
	// if need be. The server flushes its files then, also in tests.
	Faults bool
	// Args are further options of the server's program.
	Args []string
}

// Postgres starts a PostgreSQL.
func (c *Config) Postgres(ctx context.Context) (*Server, error) {
	bin, err := postgresPrograms()
	if err != nil {
		return nil, err
	}
	return c.startPostgres(ctx, bin, nil)
}

// MariaDB starts a MariaDB, or a MySQL where that is the engine to test with.
func (c *Config) MariaDB(ctx context.Context) (*Server, error) {
	v, err := newFlavour()
	if err != nil {
		return nil, err
	}
	return v.start(ctx, c)
}

// Redis starts a Redis.
func (c *Config) Redis(ctx context.Context) (*Server, error) { return c.startRedis(ctx, false) }

// prepare makes what the configuration wants in a folder that is there.
func (c *Config) prepare(f *folder, kind string) error {
	for in, path := range map[string]*string{c.Data: &f.data, c.Log: &f.log} {
		if in == "" {
			continue
		}
		var err error
		if *path, err = os.MkdirTemp(in, kind+"-"); err == nil && f.owner != nil {
			err = os.Chown(*path, int(f.owner.Uid), int(f.owner.Gid))
		}
		if err != nil {
			return err
		}
	}
	if c.Faults {
		return f.prepareFaults()
	}
	return nil
}
