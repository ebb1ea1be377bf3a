package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/stores"
	"github.com/headgate/headgate/store"
)

// catalogNames finds limits in the catalog of a store.
type catalogNames struct {
	config *config.Config
	read   func() (*catalog.Catalog, error)
}

// newCatalogNames returns names that read the catalog once, when the first is looked up: most commands need none.
func newCatalogNames(ctx context.Context, s store.Store, c *config.Config) *catalogNames {
	return &catalogNames{c, sync.OnceValues(func() (*catalog.Catalog, error) { return readCatalog(ctx, s) })}
}

// readCatalog reads the catalog of a store. Nothing is logged: the command reports what is wrong.
func readCatalog(ctx context.Context, s store.Store) (*catalog.Catalog, error) {
	return catalog.Read(ctx, s, &catalog.Config{Logger: slog.New(slog.DiscardHandler)})
}

// StoreCatalog implements service.CatalogHolder.
func (n *catalogNames) StoreCatalog() (*catalog.Catalog, error) { return n.read() }

// Find implements headgate.Names. A limit that only the config file knows is not in force:
// the error says how to put it into the catalog.
func (n *catalogNames) Find(ctx context.Context, name, key string) (headgate.Limit, error) {
	c, err := n.StoreCatalog()
	if err != nil {
		return headgate.Limit{}, err
	}
	l, err := c.Find(ctx, name, key)
	return l, n.addHint(ctx, err, name)
}

// FindAll implements headgate.Names.
func (n *catalogNames) FindAll(ctx context.Context, charges []headgate.Charge) error {
	c, err := n.StoreCatalog()
	if err != nil {
		return err
	}
	err = c.FindAll(ctx, charges)
	for _, charge := range charges {
		if charge.Limit.OnlyName() {
			err = n.addHint(ctx, err, charge.Limit.Name())
		}
	}
	return err
}

// addHint adds similar names, or how to apply the config file, to headgate.ErrUnknownLimit, and to no other error.
func (n *catalogNames) addHint(ctx context.Context, err error, name string) error {
	if !errors.Is(err, headgate.ErrUnknownLimit) {
		return err
	}
	if _, missing := n.config.Find(ctx, name, ""); missing != nil {
		var names []string
		for _, l := range n.List() {
			names = append(names, l.Name())
		}
		return addSimilar(err, name, names)
	}
	return fmt.Errorf("%w: %q; %s has it, and it was never applied: headgate limits apply -f %s",
		headgate.ErrUnknownLimit, name, n.config.File, strings.Join(n.config.Files, " -f "))
}

// List implements catalog.Names.
func (n *catalogNames) List() []catalog.Definition {
	c, err := n.StoreCatalog()
	if err != nil {
		return nil // Err returns the error
	}
	return c.List()
}

// Err implements catalog.Names.
func (n *catalogNames) Err() error {
	_, err := n.StoreCatalog()
	return err
}

// changeAuthor returns the user of this process at this host, as the author of a change with a reason.
func changeAuthor(reason string) catalog.By {
	name := "user " + strconv.Itoa(os.Getuid())
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return catalog.By{Author: name, Reason: reason}
}

// withCatalog opens the store of a command and calls do with its catalog.
func withCatalog(cmd *cobra.Command, do func(c *catalog.Catalog) error) error {
	cfg, err := loadConfig(cmd)
	if err != nil {
		return err
	}
	return withCatalogOf(cmd, cfg, do)
}

// withCatalogOf opens the store that the flags, or else cfg, name and calls do with its catalog.
func withCatalogOf(cmd *cobra.Command, cfg *config.Config, do func(c *catalog.Catalog) error) error {
	_, s, err := openStore(cmd, cfg, stores.Options{})
	if err != nil {
		return err
	}
	c, err := readCatalog(cmd.Context(), s)
	if err == nil {
		err = do(c)
	}
	return cmp.Or(err, s.Close())
}
