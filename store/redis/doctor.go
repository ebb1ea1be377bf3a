package redis

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/store"
)

// Examine implements store.Doctor. It examines all nodes of a Cluster. A node that cannot be reached is a finding. If
// none can be reached, or a node fails otherwise, Examine returns the error with the findings up to then.
func (s *Store) Examine(ctx context.Context) ([]store.Finding, error) {
	if s.configErr != nil {
		return nil, s.configErr
	}
	var f store.Findings
	nodes := s.client.Nodes()
	addresses := slices.Sorted(maps.Keys(nodes))
	unreachable := 0
	for _, address := range addresses {
		err := examineNode(ctx, nodes[address], address, &f)
		if err != nil {
			unreachable++
		}
		if err = f.Away(ctx, address, len(addresses), err); err != nil {
			return f, err
		}
	}
	if unreachable > 0 && unreachable == len(addresses) {
		return f, fmt.Errorf("redis: %w: no node can be asked", store.ErrUnavailable)
	}
	return f, nil
}

// examineNode adds the findings about one server.
func examineNode(ctx context.Context, node rueidis.Client, address string, f *store.Findings) error {
	fields, err := readInfo(ctx, node, "server", "replication", "memory", "stats", "persistence", "clients", "cluster")
	switch {
	case err != nil && noPermission(err): // a program can use the store without this right
		f.Add(store.Note, "rights", "this user may not ask "+address+" about itself", "ACL SETUSER ... +info")
		return nil
	case err != nil:
		return classifyRead("examine "+address, err)
	}
	if err := checkVersion(fields["redis_version"]); err != nil {
		f.Add(store.Wrong, "version", address+": "+err.Error(), "use Redis 6.2 or later, or Valkey")
	} else {
		f.OK("version", "%s has version %s", address, fields["redis_version"])
	}
	clock := func() (int64, error) { return readClock(node.Do(ctx, node.B().Time().Build())) }
	if err := f.Clock("the clock of "+address, clock); err != nil {
		return classifyRead("read the clock of "+address, err)
	}
	if fields["role"] != "master" {
		if fields["cluster_enabled"] != "1" { // in a Cluster the client finds the primary
			f.Add(store.Wrong, "primary", address+" is a replica, which takes no writes",
				"name the primary in the URL, or the sentinels")
		}
		return nil
	}
	examineMemory(fields, address, f)
	examinePersistence(fields, address, f)
	if replicas, _ := strconv.Atoi(fields["connected_slaves"]); replicas > 0 {
		f.Add(store.Note, "replication",
			fmt.Sprintf("%s has %d replicas: one that takes over has not what was admitted just before",
				address, replicas), "see the bound in docs/stores.md; min-replicas-to-write 1 makes it smaller")
	}
	maxClients, _ := strconv.ParseInt(fields["maxclients"], 10, 64)
	if used, _ := strconv.ParseInt(fields["connected_clients"], 10, 64); almostFull(used, maxClients) {
		f.Add(store.Wrong, "connections", fmt.Sprintf("%d of %d of %s are in use", used, maxClients, address),
			"CONFIG SET maxclients to more")
	}
	return nil
}

// almostFull reports whether more than nine tenths of a bound are used; 0: there is no bound.
func almostFull(used, bound int64) bool { return bound > 0 && used*10 > bound*9 }

// examineMemory adds the findings about evictions and the use of memory.
func examineMemory(fields map[string]string, address string, f *store.Findings) {
	maxMemory, _ := strconv.ParseInt(fields["maxmemory"], 10, 64)
	usedBytes, _ := strconv.ParseInt(fields["used_memory"], 10, 64)
	policy := fields["maxmemory_policy"]
	switch {
	case policy != "" && policy != "noeviction" && maxMemory > 0:
		f.Add(store.Wrong, "eviction",
			fmt.Sprintf("%s evicts keys by %s when its memory is full, and admits as if they had never been "+
				"used", address, policy), "CONFIG SET maxmemory-policy noeviction")
	case policy != "" && policy != "noeviction":
		f.Add(store.Note, "eviction", fmt.Sprintf("%s would evict keys by %s if it had a maxmemory", address, policy),
			"CONFIG SET maxmemory-policy noeviction")
	default:
		f.OK("eviction", "%s evicts nothing", address)
	}
	if evicted := fields["evicted_keys"]; evicted != "0" && evicted != "" {
		f.Add(store.Wrong, "evicted",
			fmt.Sprintf("%s has evicted %s keys since it was started: cells may be among them", address, evicted),
			"CONFIG SET maxmemory-policy noeviction; their limits are exact again when what is left of them has "+
				"expired")
	}
	memoryUse := fmt.Sprintf("%s uses %d bytes and has no maxmemory", address, usedBytes)
	if maxMemory > 0 {
		memoryUse = fmt.Sprintf("%s uses %d of %d bytes", address, usedBytes, maxMemory)
	}
	f.Expect(!almostFull(usedBytes, maxMemory), "memory", memoryUse, store.Wrong, memoryUse,
		"CONFIG SET maxmemory to more, or charge a limit by address before a limit by keys that callers invent")
}

// examinePersistence adds the findings about the append-only file and snapshots.
func examinePersistence(fields map[string]string, address string, f *store.Findings) {
	switch {
	case fields["aof_enabled"] != "1":
		f.Add(store.Note, "durability",
			address+" has no append-only file: a restart forgets every charge since the last snapshot",
			"CONFIG SET appendonly yes; with appendfsync everysec a crash forgets a second, with always nothing")
	case fields["aof_last_write_status"] != "ok" && fields["aof_last_write_status"] != "":
		f.Add(store.Wrong, "durability", address+" cannot write its append-only file, and refuses writes",
			"make room on its disk; see its log")
	default:
		f.OK("durability", "%s has an append-only file", address)
	}
	if fields["rdb_last_bgsave_status"] == "err" {
		f.Add(store.Wrong, "snapshots", address+" cannot save snapshots, and may refuse writes for that",
			"make room on its disk, or CONFIG SET stop-writes-on-bgsave-error no")
	}
	if fields["loading"] == "1" {
		f.Add(store.Wrong, "loading", address+" reads its data and answers nothing yet", "wait")
	}
}
