package redis

import (
	"crypto/sha1" //nolint:gosec // the name that Redis knows a script by
	_ "embed"
	"encoding/hex"
	"strings"
	"sync"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store/internal/wire"
)

var (
	//go:embed clock.lua
	clockText string
	//go:embed head.lua
	batchHeadText string
	//go:embed bucket.lua
	bucketText string
	//go:embed lone.lua
	loneText string
	//go:embed plain.lua
	plainText string
	//go:embed groups.lua
	groupsText string
	//go:embed cells.lua
	cellsText string
	//go:embed ops.lua
	opsText string
	//go:embed laws.lua
	lawsText string
	//go:embed returns.lua
	returnsText string
	//go:embed late.lua
	lateText string
	//go:embed apply.lua
	applyText string
	//go:embed register.lua
	registerText string
	//go:embed once.lua
	onceText string
	//go:embed extend.lua
	extendText string
	//go:embed batch.lua
	batchText string
	//go:embed giveback.lua
	giveBackText string
	//go:embed readcatalog.lua
	readCatalogText string
	//go:embed items.lua
	itemsText string
	//go:embed scanitems.lua
	scanItemsText string
	//go:embed writecatalog.lua
	writeCatalogText string
	//go:embed versions.lua
	versionsText string
	//go:embed recordaction.lua
	recordActionText string
	//go:embed actions.lua
	actionsText string
)

// asks is the order of the doubles of what an op asks. Those to partial are all that
// plain.lua reads.
var asks = wire.Order("unit capacity step drain heal cost count ceiling now anchor block partial " +
	"verb kind history ttl window0 window1 window2 window3 since lapse at level returned entry deferred")

// loneAsks is the order of the doubles of what lone.lua is asked.
var loneAsks = wire.Order("capacity step drain heal cost count ceiling now anchor")

// takes are what take.lua may be asked, but for the cost, in the order of TakeArguments.
var takes = wire.Order("kind unit capacity step drain heal anchor block history")

// names are the lists of numbers that the texts name in placeholders.
var names = wire.Names{"ask": asks.Names(), "lone": loneAsks.Names(), "take": takes.Names(), "out": law.NumberNames[:]}

// inside puts files where other files name them.
var inside = strings.NewReplacer("{bucket}", bucketText)

// script is a Lua script and the name that Redis knows it by.
type script struct{ text, sha string }

func newScript(text string) script {
	text = names.Expand(inside.Replace(text))
	sum := sha1.Sum([]byte(text)) //nolint:gosec // see the import
	return script{text, hex.EncodeToString(sum[:])}
}

var (
	headText       = clockText + batchHeadText
	decideText     = cellsText + opsText + lawsText
	giveBackScript = newScript(headText + decideText + returnsText + giveBackText)
	loneScript     = newScript(clockText + loneText)
	clockScript    = newScript("return redis.call('TIME')")

	readCatalogScript  = newScript(readCatalogText)
	itemsScript        = newScript(itemsText)
	scanItemsScript    = newScript(scanItemsText)
	writeCatalogScript = newScript(writeCatalogText)
	versionsScript     = newScript(versionsText)
	recordActionScript = newScript(recordActionText)
	actionsScript      = newScript(actionsText)
)

// needs are what the script of a call must know beyond plain charges and their like.
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
			n, plain := needs(i), plainText
			if n&needsGroups != 0 {
				plain = groupsText
			}
			text := headText + plain + decideText
			if n&needsReturns != 0 {
				text += returnsText
			}
			if n&needsLate != 0 {
				text += lateText
			}
			text += applyText
			if n&needsOnce != 0 {
				text += registerText + onceText
			}
			if n&needsExtend != 0 {
				text += extendText
			}
			return newScript(text + batchText)
		})
	}
	return list
}()
