package main

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/front"
)

// importLife is how long a store remembers what was imported: a second import of the same rows charges nothing.
const importLife = "1d"

// importAtOnce is how many rows are imported at once, so that they share round trips to the store.
const importAtOnce = 64

func newImportCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Charge to a store what keys have used of another one, as export wrote it",
		Long: "Charge to a store what keys have used of another one, as export wrote it in CSV or lines of JSON,\n" +
			"and block what was blocked there. FILE may be -, the standard input. Let nobody take from either\n" +
			"store from the export until the end of the import. A server asks for the role admin.\n\n" +
			"The limits, plans and overrides have to be there already. What is charged begins to drain or to\n" +
			"expire at the import, so a key waits longer than before, never shorter. If an import has failed,\n" +
			"repeat it with the same file: what was charged is remembered for a day. Leases, attempts and ids\n" +
			"stay behind.",
		SuggestFor: []string{"restore", "load"},
		Example: "  headgate export -o jsonl --store sqlite:old.db >keys.jsonl &&\n" +
			"    headgate import keys.jsonl --store postgres://db/app",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			in := cmd.InOrStdin()
			if args[0] != "-" {
				f, err := os.Open(args[0])
				if err != nil {
					return err
				}
				defer f.Close()
				in = f
			}
			uses, err := readExport(in)
			if err != nil {
				return err
			}
			coalesce := func(s store.Store) store.Store { return front.New(s, &front.Config{SweepEvery: -1}) }
			return withWrappedBackend(cmd, coalesce, func(s backend) error { return importUses(cmd, s, uses) })
		},
	}
	addPlaceSettings(cmd)
	return cmd
}

// readExport reads all that export has written, in either format. Errors name the object of JSON, or the number of CSV
// rows before.
func readExport(r io.Reader) (uses []api.Status, err error) {
	in := bufio.NewReader(r)
	if mark, _ := in.Peek(3); string(mark) == "\xef\xbb\xbf" { // a byte order mark
		_, _ = in.Discard(3)
	}
	first, err := in.Peek(1)
	if errors.Is(err, io.EOF) { // what export -o jsonl writes of an empty store
		return nil, nil
	}
	if string(first) == "{" {
		d := json.NewDecoder(in)
		for n := 1; ; n++ {
			var u keyUse
			if err := d.Decode(&u); errors.Is(err, io.EOF) {
				return uses, nil
			} else if err != nil {
				return nil, headgate.Invalid("file", "line %d is no line of export -o jsonl: %v", n, err)
			}
			uses = append(uses, u.Status)
		}
	}
	c := csv.NewReader(in)
	header, err := c.Read()
	if err != nil || !slices.Equal(header, keyColumns) {
		return nil, headgate.Invalid("file", "does not begin as export does, with %q or a line of JSON", keyColumns)
	}
	for {
		row, err := c.Read()
		if errors.Is(err, io.EOF) {
			return uses, nil
		}
		u := api.Status{}
		if err == nil { // in the order of keyColumns
			u.Limit, u.Key, u.Used, u.Reason = row[0], row[1], json.Number(row[2]), row[11]
			u.At, err = strconv.ParseInt(row[7], 10, 64)
		}
		if err == nil && row[9] != "" {
			u.BlockedUntil = new(int64)
			*u.BlockedUntil, err = strconv.ParseInt(row[9], 10, 64)
		}
		if err == nil && strings.Contains(u.Key, "\n") {
			err = errors.New("a key has a line break, which CSV does not keep exactly: export with -o jsonl")
		}
		if err != nil {
			return nil, headgate.Invalid("file", "after %d rows: %v", len(uses), err)
		}
		uses = append(uses, u)
	}
}

// importUses checks all rows, and then charges and blocks them.
func importUses(cmd *cobra.Command, s backend, uses []api.Status) error {
	uses, skipped, err := checkUses(cmd.Context(), s, uses)
	if err != nil {
		return err
	}
	var done atomic.Int64
	line := newTerminalLine(cmd.ErrOrStderr())
	g, ctx := errgroup.WithContext(cmd.Context())
	g.SetLimit(importAtOnce)
	for i := range uses {
		g.Go(func() error {
			err := ctx.Err()
			if err == nil {
				err = importUse(ctx, s, &uses[i])
			}
			if err != nil {
				return fmt.Errorf("%s of %s: %w", quoteKey(uses[i].Key), uses[i].Limit, err)
			}
			if n := done.Add(1); n%1000 == 0 {
				line.show(fmt.Sprintf("imported  %d of %d", n, len(uses)))
			}
			return nil
		})
	}
	err = g.Wait()
	line.clear()
	if err != nil {
		return fmt.Errorf("%w; others may be charged: import the same file again", err)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "imported %d of %d keys%s\n", len(uses)-skipped, len(uses), placeSuffix(cmd))
	if skipped > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "%d keys hold leases, which stay with the old store\n", skipped)
	}
	return nil
}

// maxBlock is the longest block that block accepts.
const maxBlock = 3660 * 24 * time.Hour

// checkUses returns the rows that can be imported, and the number of those that it leaves out: what concurrency limits
// have in use is leases. It returns an error if a limit is unknown to the store, or if a row makes no sense.
func checkUses(ctx context.Context, s backend, uses []api.Status) (kept []api.Status, skipped int, err error) {
	named, err := callCatalog(ctx, s, nil)
	if err != nil {
		return nil, 0, err
	}
	notations := make(map[string]string, len(named.Limits))
	for _, l := range named.Limits {
		notations[l.Name], notations[cmp.Or(l.RenamedTo, l.Name)] = l.Limit, l.Limit
	}
	for _, u := range uses {
		limit, err := headgate.Parse(cmp.Or(notations[u.Limit], u.Limit))
		if err != nil {
			return nil, 0, fmt.Errorf("%w: %q; make it, or leave it out of the file", headgate.ErrUnknownLimit, u.Limit)
		}
		if _, err = headgate.ParseCost(u.Used.String()); err != nil {
			if err = service.InField("used", err); u.Used == "0" {
				err = nil
			}
		}
		err = cmp.Or(err, law.ValidKey(u.Key), law.ValidText("reason", u.Reason, law.MaxKey))
		switch {
		case err != nil:
		case u.At < 1:
			err = headgate.Invalid("at", "is missing: only what export has written can be imported")
		case u.BlockedUntil != nil && (*u.BlockedUntil < 1 || blockLeft(&u) > maxBlock):
			err = headgate.Invalid("blocked_until", "is too far from at")
		}
		if err != nil {
			return nil, 0, fmt.Errorf("%s of %s: %w", quoteKey(u.Key), u.Limit, err)
		}
		if limit.Concurrency() && u.Used != "0" {
			skipped++
			u.Used = "0"
		}
		kept = append(kept, u)
	}
	return kept, skipped, nil
}

// blockLeft returns how much of a block was left when the row was written.
func blockLeft(u *api.Status) time.Duration {
	if u.BlockedUntil == nil || *u.BlockedUntil <= u.At {
		return 0
	}
	return time.Duration(min(*u.BlockedUntil-u.At, 1<<53)) * time.Microsecond
}

// importUse charges what a key has used, and blocks the key for as long as it was blocked when it was exported, unless
// it is blocked for longer already.
func importUse(ctx context.Context, s backend, u *api.Status) error {
	if u.Used != "0" {
		sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %d %s", u.Limit, u.Key, u.At, u.Used))
		r := &api.Request{ID: fmt.Sprintf("import %x", sum[:16]), Life: importLife}
		r.Limit, r.Key, r.Cost = u.Limit, u.Key, u.Used
		d, err := callDebit(ctx, s, r)
		if err != nil {
			return err
		}
		used, _ := new(big.Rat).SetString(u.Used.String())
		if level, ok := new(big.Rat).SetString(d.Level.String()); !d.Allowed || !ok || level.Cmp(used) < 0 {
			return fmt.Errorf("%s could not be charged: a block, an override or a plan of the target is in the way",
				u.Used)
		}
	}
	left := blockLeft(u)
	if left == 0 {
		return nil
	}
	st, err := callInspect(ctx, s, newInspectRequest(u.Limit, u.Key, 0))
	if err != nil || st.BlockedUntil != nil && *st.BlockedUntil-st.At >= left.Microseconds() {
		return err
	}
	block := &api.Block{For: fmt.Sprintf("%ds", int64((left+time.Second-1)/time.Second)), Reason: u.Reason}
	block.Limit, block.Key = u.Limit, u.Key
	_, err = callBlock(ctx, s, block)
	return err
}
