package redis

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// The catalog is five keys in one slot of a cluster. None of them ever expires.
//
//	{catalog}:versions  a hash: the number of a version -> its time, and what else is
//	                      known of it as JSON; and "newest" -> the greatest number
//	{catalog}:items     a hash: the ID of an item -> the item in JSON
//	{catalog}:keys      the same for the kinds that have an item for each key
//	{catalog}:changed   a sorted set: the ID of an item, by the version that wrote it last
//	{catalog}:actions   a list of what was done to keys by hand, the newest first, in JSON
//
// An item that was removed stays as one that is Removed, for processes that have read it.
const (
	perCatalogCall = 1000      // items that a script reads: it takes less than 1 ms
	maxVersion     = 256 << 20 // bytes of the text of a version; a server takes 512 MiB
)

// itemID returns what items are found by. Names and keys may have any character, so the length says where a name ends.
func itemID(i *store.Item) string {
	return string(i.Kind) + ":" + strconv.Itoa(len(i.Name)) + ":" + i.Name + ":" + i.Key
}

// ReadCatalog implements store.Catalog. It is one round trip.
func (s *Store) ReadCatalog(ctx context.Context, since int64) (c store.CatalogChanges, err error) {
	answers, err := s.readCatalog(ctx, "read the catalog", &call{
		script: readCatalogScript, keys: s.catalogKeys("versions", "items", "keys", "changed"),
		args: []string{strconv.FormatInt(since, 10)},
	})
	if err != nil {
		return c, err
	}
	answer, numbers := answers[0], []*int64{&c.Version, &c.At, &c.SinceAt, &c.Clock}
	if len(answer) < len(numbers) {
		return c, classifyRead("read the catalog", errAnswer)
	}
	for i, n := range numbers {
		if *n, err = strconv.ParseInt(answer[i], 10, 64); err != nil {
			return c, classifyRead("read the catalog", errAnswer)
		}
	}
	if c.Items, err = parseItems(answer[len(numbers):]); err != nil {
		return c, err
	}
	if since <= 0 {
		c.Items = slices.DeleteFunc(c.Items, isRemoved)
	}
	return c, nil
}

func isRemoved(i store.Item) bool { return i.Removed }

// ItemsAfter implements store.Catalog. It reads all items that belong to single keys, or all
// others, since they have no order here: 1000 a round trip. What is written meanwhile may be
// among them or not.
func (s *Store) ItemsAfter(ctx context.Context, kind store.Kind, after store.Item, n int) (
	list []store.Item, err error,
) {
	if n <= 0 {
		return nil, nil
	}
	for cursor := "0"; ; {
		var some []store.Item
		if some, cursor, err = s.scanItems(ctx, kind.PerKey(), cursor); err != nil {
			return nil, err
		}
		for _, item := range some {
			if item.Kind == kind && !item.Removed && after.Less(item) {
				list = append(list, item)
			}
		}
		if end := cursor == "0"; end || len(list) > 2*n+perCatalogCall {
			list = slices.Compact(store.FirstItems(list, len(list))) // a scan may return an item twice
			if list = store.FirstItems(list, n); end {
				return list, nil
			}
		}
	}
}

// maxScans is how many round trips MayHave makes.
const maxScans = 10

// MayHave implements store.KindFinder: it reads until it has found an item of each kind, and at
// most about 10,000 items.
func (s *Store) MayHave(ctx context.Context, kinds ...store.Kind) ([]bool, error) {
	have := make([]bool, len(kinds))
	cursor := "0"
	for range maxScans {
		some, next, err := s.scanItems(ctx, true, cursor)
		if err != nil {
			return nil, err
		}
		for _, item := range some {
			for i, kind := range kinds {
				have[i] = have[i] || item.Kind == kind && !item.Removed
			}
		}
		if cursor = next; cursor == "0" || !slices.Contains(have, false) {
			return have, nil
		}
	}
	for i := range have { // it is not known
		have[i] = true
	}
	return have, nil
}

// scanItems reads the next items of one of the hashes from where a scan stands, and returns where
// it stands then: "0" before and after all. It may return an item twice.
func (s *Store) scanItems(ctx context.Context, perKey bool, cursor string) (
	some []store.Item, next string, err error,
) {
	answers, err := s.readCatalog(ctx, "read the catalog", &call{
		script: scanItemsScript, keys: s.catalogKeys(hashOf(perKey)),
		args: []string{cursor, strconv.Itoa(perCatalogCall)},
	})
	if err != nil {
		return nil, "", err
	}
	some, err = parseItems(answers[0][1:])
	return some, answers[0][0], err
}

// Items implements store.Catalog. It is one round trip.
func (s *Store) Items(ctx context.Context, list []store.Item) (version int64, found []store.Item, err error) {
	ids := map[string][]string{}
	for i := range list {
		hash := hashOf(list[i].Kind.PerKey())
		ids[hash] = append(ids[hash], itemID(&list[i]))
	}
	var calls []*call
	for hash, of := range ids {
		for part := range slices.Chunk(of, perCatalogCall) {
			calls = append(calls, &call{script: itemsScript, keys: s.catalogKeys("versions", hash), args: part})
		}
	}
	if len(calls) == 0 { // it is about the version alone
		calls = []*call{{script: itemsScript, keys: s.catalogKeys("versions", "items")}}
	}
	answers, err := s.readCatalog(ctx, "read the catalog", calls...)
	if err != nil {
		return 0, nil, err
	}
	for n, answer := range answers {
		v, err := strconv.ParseInt(answer[0], 10, 64)
		if err != nil {
			return 0, nil, classifyRead("read the catalog", errAnswer)
		}
		if n == 0 || v < version {
			version = v
		}
		some, err := parseItems(answer[1:])
		if err != nil {
			return 0, nil, err
		}
		found = append(found, some...)
	}
	return version, slices.DeleteFunc(found, isRemoved), nil
}

// WriteCatalog implements store.Catalog. It is two round trips, and the second one makes the
// edit in one script: the server decides nothing else meanwhile, for 0.4 s where an edit has
// 100,000 items. The author is what the caller says: Redis adds no name.
//
// An edit that was made may be forgotten, as charges may. A primary answers before its
// replica has the edit, so a replica that takes over may not have it. A server that keeps
// nothing on disk has an empty catalog when it is started again, and one with a
// maxmemory-policy of allkeys may evict the catalog. The number of a forgotten version is
// given to the next edit. A process that has read the forgotten version, and asks again only
// when its number was given to another edit, does not notice: it has the forgotten items
// until they are changed or the process is started again.
func (s *Store) WriteCatalog(ctx context.Context, e store.Edit) (version int64, err error) {
	if err := s.ready(ctx); err != nil {
		return 0, err
	}
	if err := e.Valid(); err != nil {
		return 0, fmt.Errorf("redis: %w", err)
	}
	version, now, err := s.Items(ctx, e.Items)
	switch {
	case err != nil:
		return 0, err
	case version != e.Base:
		return version, errVersion
	}
	changes := e.Changes(now)
	if len(changes) == 0 {
		return version, nil
	}
	return s.writeChanges(ctx, &e, changes)
}

var errVersion = fmt.Errorf("redis: write the catalog: %w", store.ErrVersion)

// writeChanges makes the changes of an edit, if its base is the newest version still.
func (s *Store) writeChanges(ctx context.Context, e *store.Edit, changes []store.Change) (version int64, err error) {
	text := store.Version{Author: e.Author, Reason: e.Reason, Changes: changes} // the server adds the rest
	pairs := map[string][]string{}                                              // of an ID and an item
	for _, c := range changes {
		hash := hashOf(c.After.Kind.PerKey())
		after, err := json.Marshal(c.After)
		if err != nil {
			return 0, fmt.Errorf("redis: write the catalog: %w: %w", store.ErrInvalid, err)
		}
		pairs[hash] = append(pairs[hash], itemID(&c.After), string(after))
	}
	whole, err := json.Marshal(text)
	if err != nil {
		return 0, fmt.Errorf("redis: write the catalog: %w: %w", store.ErrInvalid, err)
	}
	if len(whole) > maxVersion {
		return 0, fmt.Errorf("redis: %w", law.Invalid("items",
			"are %d bytes with what they replace; one edit may have %d", len(whole), maxVersion))
	}
	head := []string{strconv.FormatInt(e.Base, 10), string(whole), strconv.Itoa(len(pairs["items"]))}
	answers, err := s.askCatalog(ctx, &call{
		script: writeCatalogScript, keys: s.catalogKeys("versions", "items", "keys", "changed"),
		args: slices.Concat(head, pairs["items"], pairs["keys"]),
	})
	if err != nil {
		return 0, classify("write the catalog", err)
	}
	answer := answers[0]
	if version, err = strconv.ParseInt(answer[0], 10, 64); err != nil || len(answer) != 2 {
		return 0, classify("write the catalog", errAnswer)
	}
	if answer[1] != "written" {
		return version, errVersion
	}
	return version, nil
}

// CatalogVersions implements store.Catalog. All versions are kept.
func (s *Store) CatalogVersions(ctx context.Context, before int64, n int) (list []store.Version, err error) {
	const doing = "read the catalog's versions"
	if n <= 0 {
		return nil, nil
	}
	answers, err := s.readCatalog(ctx, doing, &call{
		script: versionsScript, keys: s.catalogKeys("versions"),
		args: []string{strconv.FormatInt(before, 10), strconv.Itoa(n)},
	})
	if err != nil {
		return nil, err
	}
	first, err := strconv.ParseInt(answers[0][0], 10, 64)
	if err != nil {
		return nil, classifyRead(doing, errAnswer)
	}
	for i, text := range answers[0][1:] {
		if text == "" {
			continue // somebody has removed it
		}
		v, err := parseVersion(first-int64(i), text)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}

// readCatalog makes calls that change nothing; see askCatalog.
func (s *Store) readCatalog(ctx context.Context, doing string, calls ...*call) ([][]string, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	answers, err := s.askCatalog(ctx, calls...)
	if err != nil {
		return nil, classifyRead(doing, err)
	}
	return answers, nil
}

// askCatalog makes calls of the catalog's scripts, whose answers are texts: one at least,
// and an empty one for what is not there.
func (s *Store) askCatalog(ctx context.Context, calls ...*call) ([][]string, error) {
	answers := make([][]string, len(calls))
	return answers, worst(s.repeat(ctx, calls, func(i int, res rueidis.RedisResult) (err error) {
		if answers[i], err = res.AsStrSlice(); err == nil && len(answers[i]) == 0 {
			err = errAnswer
		}
		return err
	}))
}

func parseItems(texts []string) (list []store.Item, err error) {
	for _, text := range texts {
		if text == "" {
			continue
		}
		var item store.Item
		if err := json.Unmarshal([]byte(text), &item); err != nil {
			return nil, errNoItem(text, err)
		}
		list = append(list, item)
	}
	return list, nil
}

func parseVersion(number int64, text string) (v store.Version, err error) {
	at, rest, _ := strings.Cut(text, " ")
	if err = json.Unmarshal([]byte(rest), &v); err == nil {
		v.Number = number
		v.At, err = strconv.ParseInt(at, 10, 64)
	}
	if err != nil {
		return v, errNoItem(text, err)
	}
	return v, nil
}

// errNoItem refuses a text that this driver has not written.
func errNoItem(text string, err error) error {
	return fmt.Errorf("redis: %w: the catalog has %.100q: %w", store.ErrSetup, text, err)
}

// RecordAction implements store.Catalog.
func (s *Store) RecordAction(ctx context.Context, a store.Action) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	if err := a.Valid(); err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	text, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("redis: record an action: %w: %w", store.ErrInvalid, err)
	}
	_, err = s.askCatalog(ctx, &call{
		script: recordActionScript, keys: s.catalogKeys("actions"),
		args: []string{string(text), strconv.Itoa(store.KeptActions)},
	})
	if err != nil {
		return classify("record an action", err)
	}
	return nil
}

// Actions implements store.Catalog.
func (s *Store) Actions(ctx context.Context, before int64, n int) (list []store.Action, err error) {
	if n <= 0 {
		return nil, nil
	}
	answers, err := s.readCatalog(ctx, "read actions", &call{
		script: actionsScript, keys: s.catalogKeys("actions"),
		args: []string{strconv.FormatInt(before, 10), strconv.Itoa(n)},
	})
	if err != nil {
		return nil, err
	}
	for _, text := range answers[0][1:] {
		var a store.Action
		var number, at int64
		if err := json.Unmarshal([]byte(text), &[]any{&number, &at, &a}); err != nil {
			return nil, classifyRead("read actions", errAnswer)
		}
		a.Number, a.At = number, at
		list = append(list, a)
	}
	return list, nil
}
