package redis

import (
	"crypto/sha1" //nolint:gosec // the name that Redis knows a script by
	"embed"
	"encoding/hex"
	"strings"
	"sync"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store/internal/wire"
)

//go:embed *.lua
var luaFiles embed.FS

// readLua returns the text of an embedded Lua file.
func readLua(name string) string {
	text, err := luaFiles.ReadFile(name + ".lua")
	if err != nil {
		panic("redis: " + err.Error()) // the file is not embedded: any test of the package fails
	}
	return string(text)
}

// opParams is the order of the doubles that describe an op to batch.lua.
var opParams = wire.NewLayout("unit capacity step drain heal cost count ceiling now anchor block partial " +
	"verb alternative kind history ttl window0 window1 window2 window3 since lapse at level returned entry deferred")

// loneParams is the order of the doubles that describe an op to lone.lua.
var loneParams = wire.NewLayout("capacity step drain heal cost count ceiling now anchor")

// takeParams lists the parameters of take.lua except the cost, in the order of TakeArguments.
var takeParams = wire.NewLayout("kind unit capacity step drain heal anchor block history")

// placeholders are the lists of numbers whose names the Lua files contain in braces.
var placeholders = wire.Names{
	"ask": opParams.Names(), "lone": loneParams.Names(), "take": takeParams.Names(), "out": law.NumberNames[:],
}

// includes replaces the name of a Lua file inside another file by its text.
var includes = strings.NewReplacer("{bucket}", readLua("bucket"))

// script is a Lua script and the name that Redis knows it by.
type script struct{ text, sha string }

// newScript returns the script of a Lua text, in which it replaces placeholders and includes.
func newScript(text string) script {
	text = placeholders.Expand(includes.Replace(text))
	sum := sha1.Sum([]byte(text)) //nolint:gosec // see the import
	return script{text, hex.EncodeToString(sum[:])}
}

var (
	headText       = readLua("clock") + readLua("head")
	decideText     = readLua("cells") + readLua("ops") + readLua("laws")
	giveBackScript = newScript(headText + decideText + readLua("returns") + readLua("giveback"))
	loneScript     = newScript(readLua("clock") + readLua("lone"))
	clockScript    = newScript("return redis.call('TIME')")

	readCatalogScript  = newScript(readLua("readcatalog"))
	itemsScript        = newScript(readLua("items"))
	scanItemsScript    = newScript(readLua("scanitems"))
	writeCatalogScript = newScript(readLua("writecatalog"))
	versionsScript     = newScript(readLua("versions"))
	recordActionScript = newScript(readLua("recordaction"))
	actionsScript      = newScript(readLua("actions"))
)

// needs are the optional parts of a script, by the names of their Lua files.
type needs int

const (
	needsReturns needs = 1 << iota
	needsLate
	needsOnce
	needsExtend
	needsGroups // also decides plain charges: see groupsCall
)

// needsOf returns the parts of a script that an op needs.
func needsOf(op *law.Op) (n needs) {
	switch op.Verb {
	case law.Return, law.Renew:
		return needsReturns
	case law.Settle:
		return needsReturns | needsOnce
	case law.Extend:
		return needsReturns | needsOnce | needsExtend
	case law.Take:
		if op.Deferred {
			n |= needsLate
		}
		if op.ID != "" {
			n |= needsOnce
		}
	}
	return n
}

// batchScripts are the scripts that decide batches, indexed by needs: one for each combination of the five.
var batchScripts = func() (list [32]func() script) {
	for i := range list {
		list[i] = sync.OnceValue(func() script {
			n, text := needs(i), headText
			if n&needsGroups != 0 {
				text += readLua("groups")
			}
			text += decideText
			if n&needsReturns != 0 {
				text += readLua("returns")
			}
			if n&needsLate != 0 {
				text += readLua("late")
			}
			text += readLua("apply")
			if n&needsOnce != 0 {
				text += readLua("register") + readLua("once")
			}
			if n&needsExtend != 0 {
				text += readLua("extend")
			}
			return newScript(text + readLua("batch"))
		})
	}
	return list
}()
