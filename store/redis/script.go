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
var texts embed.FS

// lua returns the text of a file.
func lua(name string) string {
	text, err := texts.ReadFile(name + ".lua")
	if err != nil {
		panic("redis: " + err.Error()) // which a test of the package would have found
	}
	return string(text)
}

// asks is the order of the doubles of what an op asks.
var asks = wire.Order("unit capacity step drain heal cost count ceiling now anchor block partial " +
	"verb kind history ttl window0 window1 window2 window3 since lapse at level returned entry deferred")

// loneAsks is the order of the doubles of what lone.lua is asked.
var loneAsks = wire.Order("capacity step drain heal cost count ceiling now anchor")

// takes has the parameters of take.lua but the cost, in the order of TakeArguments.
var takes = wire.Order("kind unit capacity step drain heal anchor block history")

// names are the lists of numbers that the texts name in placeholders.
var names = wire.Names{"ask": asks.Names(), "lone": loneAsks.Names(), "take": takes.Names(), "out": law.NumberNames[:]}

// inside puts files where other files name them.
var inside = strings.NewReplacer("{bucket}", lua("bucket"))

// script is a Lua script and the name that Redis knows it by.
type script struct{ text, sha string }

func newScript(text string) script {
	text = names.Expand(inside.Replace(text))
	sum := sha1.Sum([]byte(text)) //nolint:gosec // see the import
	return script{text, hex.EncodeToString(sum[:])}
}

var (
	headText       = lua("clock") + lua("head")
	decideText     = lua("cells") + lua("ops") + lua("laws")
	giveBackScript = newScript(headText + decideText + lua("returns") + lua("giveback"))
	loneScript     = newScript(lua("clock") + lua("lone"))
	clockScript    = newScript("return redis.call('TIME')")

	readCatalogScript  = newScript(lua("readcatalog"))
	itemsScript        = newScript(lua("items"))
	scanItemsScript    = newScript(lua("scanitems"))
	writeCatalogScript = newScript(lua("writecatalog"))
	versionsScript     = newScript(lua("versions"))
	recordActionScript = newScript(lua("recordaction"))
	actionsScript      = newScript(lua("actions"))
)

// needs are parts of a script beyond plain charges and their like.
type needs int

const (
	needsReturns needs = 1 << iota
	needsLate
	needsOnce
	needsExtend
	needsGroups // of plain charges
)

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

// scripts decide batches, by what those need.
var scripts = func() (list [32]func() script) {
	for i := range list {
		list[i] = sync.OnceValue(func() script {
			n, text := needs(i), headText
			if n&needsGroups != 0 {
				text += lua("groups")
			}
			text += decideText
			if n&needsReturns != 0 {
				text += lua("returns")
			}
			if n&needsLate != 0 {
				text += lua("late")
			}
			text += lua("apply")
			if n&needsOnce != 0 {
				text += lua("register") + lua("once")
			}
			if n&needsExtend != 0 {
				text += lua("extend")
			}
			return newScript(text + lua("batch"))
		})
	}
	return list
}()
