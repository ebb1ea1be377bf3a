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
//	{catalog}:versions  a hash: the number of a version -> its time, and its other fields as JSON; and "newest" -> the
//	                      greatest number
//	{catalog}:items     a hash: the ID of an item -> the item in JSON
//	{catalog}:keys      the same for the kinds that have an item for each key
//	{catalog}:changed   a sorted set: the ID of an item, by the version that wrote it last
//	{catalog}:actions   a list of what was done to keys by hand, the newest first, in JSON
//
// An item that was removed stays with Removed set, for processes that have read it.
const (
	itemsPerCall    = 1000      // about how many items scanItems reads, and the most that a call of Items reads: < 1 ms
	maxVersionBytes = 256 << 20 // the most bytes of the text of a version; a server accepts 512 MiB
)

// itemID returns the ID of an item. Names and keys may have any character, so the length says where the name ends.
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

// ItemsAfter implements store.Catalog. Redis keeps no order of items, so it reads all items of single keys, or all
// other items, 1000 a round trip. Items that are written meanwhile may be among the result or not.
func (s *Store) ItemsAfter(ctx context.Context, kind store.Kind, after store.Item, n int) (
	list []store.Item, err error,
) {
	if n <= 0 {
		return nil, nil
	}
	for cursor := "0"; ; {
		var page []store.Item
		if page, cursor, err = s.scanItems(ctx, kind.PerKey(), cursor); err != nil {
			return nil, err
		}
		for _, item := range page {
			if item.Kind == kind && !item.Removed && after.Less(item) {
				list = append(list, item)
			}
		}
		if end := cursor == "0"; end || len(list) > 2*n+itemsPerCall {
			list = slices.Compact(store.FirstItems(list, len(list))) // a scan may return an item twice
			if list = store.FirstItems(list, n); end {
				return list, nil
			}
		}
	}
}

// maxScans is how many round trips MayHave makes at most.
const maxScans = 10

// MayHave implements store.KindFinder. It reads until it has found an item of each kind, and at most about 10,000
// items. After these it reports that there may be items of all kinds.
func (s *Store) MayHave(ctx context.Context, kinds ...store.Kind) ([]bool, error) {
	have := make([]bool, len(kinds))
	cursor := "0"
	for range maxScans {
		page, next, err := s.scanItems(ctx, true, cursor)
		if err != nil {
			return nil, err
		}
		for _, item := range page {
			for i, kind := range kinds {
				have[i] = have[i] || item.Kind == kind && !item.Removed
			}
		}
		if cursor = next; cursor == "0" || !slices.Contains(have, false) {
			return have, nil
		}
	}
	for i := range have { // more items remain unread
		have[i] = true
	}
	return have, nil
}

// scanItems reads the next page of one of the two hashes of items, and returns the next cursor. A scan begins and ends
// with the cursor "0". It may return an item twice, and removed items.
func (s *Store) scanItems(ctx context.Context, perKey bool, cursor string) (
	page []store.Item, next string, err error,
) {
	answers, err := s.readCatalog(ctx, "read the catalog", &call{
		script: scanItemsScript, keys: s.catalogKeys(itemsHash(perKey)),
		args: []string{cursor, strconv.Itoa(itemsPerCall)},
	})
	if err != nil {
		return nil, "", err
	}
	page, err = parseItems(answers[0][1:])
	return page, answers[0][0], err
}

// Items implements store.Catalog. It is one round trip.
func (s *Store) Items(ctx context.Context, list []store.Item) (version int64, found []store.Item, err error) {
	ids := map[string][]string{}
	for i := range list {
		hash := itemsHash(list[i].Kind.PerKey())
		ids[hash] = append(ids[hash], itemID(&list[i]))
	}
	var calls []*call
	for hash, hashIDs := range ids {
		for part := range slices.Chunk(hashIDs, itemsPerCall) {
			calls = append(calls, &call{script: itemsScript, keys: s.catalogKeys("versions", hash), args: part})
		}
	}
	if len(calls) == 0 { // the caller wants only the version
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
		items, err := parseItems(answer[1:])
		if err != nil {
			return 0, nil, err
		}
		found = append(found, items...)
	}
	return version, slices.DeleteFunc(found, isRemoved), nil
}

// WriteCatalog implements store.Catalog. It is two round trips. The second one makes the edit in one script, during
// which the server decides nothing else: 0.4 s for an edit of 100,000 items. The author is the one that the caller
// names: Redis adds no user.
//
// Redis may lose an edit, as it may lose charges. A primary answers before its replica has the edit, so a replica that
// takes over may lack it. A server that keeps nothing on disk has an empty catalog after a restart, and a server with a
// maxmemory-policy of allkeys may evict the catalog. The next edit gets the number of the lost version. A process that
// has read the lost version, and reads again only after another edit got its number, does not notice: it has the lost
// items until they are changed or the process restarts.
func (s *Store) WriteCatalog(ctx context.Context, e store.Edit) (version int64, err error) {
	if err := s.ready(ctx); err != nil {
		return 0, err
	}
	if err := e.Valid(); err != nil {
		return 0, fmt.Errorf("redis: %w", err)
	}
	version, current, err := s.Items(ctx, e.Items)
	switch {
	case err != nil:
		return 0, err
	case version != e.Base:
		return version, errVersion
	}
	changes := e.Changes(current)
	if len(changes) == 0 {
		return version, nil
	}
	return s.writeChanges(ctx, &e, changes)
}

var errVersion = fmt.Errorf("redis: write the catalog: %w", store.ErrVersion)

// writeChanges makes the changes of an edit, if its base is still the newest version.
func (s *Store) writeChanges(ctx context.Context, e *store.Edit, changes []store.Change) (version int64, err error) {
	record := store.Version{Author: e.Author, Reason: e.Reason, Changes: changes} // the server adds the rest
	pairs := map[string][]string{}                                                // by hash: IDs, each before its item
	for _, c := range changes {
		hash := itemsHash(c.After.Kind.PerKey())
		after, err := json.Marshal(c.After)
		if err != nil {
			return 0, fmt.Errorf("redis: write the catalog: %w: %w", store.ErrInvalid, err)
		}
		pairs[hash] = append(pairs[hash], itemID(&c.After), string(after))
	}
	text, err := json.Marshal(record)
	if err != nil {
		return 0, fmt.Errorf("redis: write the catalog: %w: %w", store.ErrInvalid, err)
	}
	if len(text) > maxVersionBytes {
		return 0, fmt.Errorf("redis: %w", law.Invalid("items",
			"are %d bytes with what they replace; one edit may have %d", len(text), maxVersionBytes))
	}
	head := []string{strconv.FormatInt(e.Base, 10), string(text), strconv.Itoa(len(pairs["items"]))}
	answers, err := s.callCatalog(ctx, &call{
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
	const action = "read the catalog's versions"
	if n <= 0 {
		return nil, nil
	}
	answers, err := s.readCatalog(ctx, action, &call{
		script: versionsScript, keys: s.catalogKeys("versions"),
		args: []string{strconv.FormatInt(before, 10), strconv.Itoa(n)},
	})
	if err != nil {
		return nil, err
	}
	first, err := strconv.ParseInt(answers[0][0], 10, 64)
	if err != nil {
		return nil, classifyRead(action, errAnswer)
	}
	for i, text := range answers[0][1:] {
		if text == "" {
			continue // somebody has removed the version from Redis
		}
		v, err := parseVersion(first-int64(i), text)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}

// readCatalog makes calls that change nothing, and returns the texts that each answers.
func (s *Store) readCatalog(ctx context.Context, action string, calls ...*call) ([][]string, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	answers, err := s.callCatalog(ctx, calls...)
	if err != nil {
		return nil, classifyRead(action, err)
	}
	return answers, nil
}

// callCatalog makes calls of the catalog's scripts. Each answers at least one text. An empty text stands for an item or
// version that does not exist.
func (s *Store) callCatalog(ctx context.Context, calls ...*call) ([][]string, error) {
	answers := make([][]string, len(calls))
	return answers, worst(s.runCalls(ctx, calls, func(i int, res rueidis.RedisResult) (err error) {
		if answers[i], err = res.AsStrSlice(); err == nil && len(answers[i]) == 0 {
			err = errAnswer
		}
		return err
	}))
}

// parseItems parses items, and skips empty texts.
func parseItems(texts []string) (list []store.Item, err error) {
	for _, text := range texts {
		if text == "" {
			continue
		}
		var item store.Item
		if err := json.Unmarshal([]byte(text), &item); err != nil {
			return nil, errForeignText(text, err)
		}
		list = append(list, item)
	}
	return list, nil
}

// parseVersion parses a version: its time, a space and JSON.
func parseVersion(number int64, text string) (v store.Version, err error) {
	at, rest, _ := strings.Cut(text, " ")
	if err = json.Unmarshal([]byte(rest), &v); err == nil {
		v.Number = number
		v.At, err = strconv.ParseInt(at, 10, 64)
	}
	if err != nil {
		return v, errForeignText(text, err)
	}
	return v, nil
}

// errForeignText refuses a text in the catalog that this driver has not written.
func errForeignText(text string, err error) error {
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
	_, err = s.callCatalog(ctx, &call{
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
