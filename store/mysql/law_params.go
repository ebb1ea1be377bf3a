package mysql

import (
	"slices"

	"github.com/headgate/headgate/law"
)

// The numbers that a row of a statement may carry, by the names that
// decide.tmpl knows them under.
const (
	pPass = iota
	pPos
	pFirst
	pSize
	pVerb
	pKind
	pAnchor
	pUnit
	pCapacity
	pStep
	pDrain
	pBlock
	pHeal
	pCost
	pCount
	pPartial
	pCeiling
	pTTL
	pNow
	pB0
	pB1
	pB2
	pB3
	pFrom
	pUntil
	pMade
	pWas
	pReturned
	pEntry
	pHistory
	pRow
	pLate
	pPrint
	pGiven // the drain as it is given, for a rule that is remembered
	pGeneration
	pID // the only text
	params
)

var paramNames = [params]string{
	pPass: "pass", pPos: "pos", pFirst: "first", pSize: "size", pVerb: "verb", pKind: "kind", pAnchor: "anchor",
	pUnit: "unit", pCapacity: "capacity", pStep: "step", pDrain: "drain", pBlock: "block", pHeal: "heal",
	pCost: "cost", pCount: "count", pPartial: "partial", pCeiling: "ceiling", pTTL: "ttl", pNow: "now",
	pB0: "b0", pB1: "b1", pB2: "b2", pB3: "b3", pFrom: "since", pUntil: "lapse",
	pMade: "made", pWas: "was", pReturned: "returned", pEntry: "entry",
	pHistory: "history", pRow: "row", pLate: "late", pPrint: "print", pGiven: "given",
	pGeneration: "generation", pID: "id",
}

func paramIndex(name string) int { return slices.Index(paramNames[:], name) }

// The passes of a row: see "sequence" in decide.tmpl.
const (
	single       = 0
	firstPass    = 1
	secondPass   = 2
	returnPass   = int(law.Return)
	settleFirst  = int(law.Settle)
	blockPass    = int(law.Block)
	resetPass    = int(law.Reset)
	renewPass    = int(law.Renew)
	onceFirst    = 8 // of a request with an ID, or one that may start late
	onceSecond   = 9
	settleSecond = 10
	extendFirst  = 11
	extendSecond = 12
)

// passNames are the names of passes in decide.tmpl.
var passNames = map[string]int{
	"single": single, "first": firstPass, "second": secondPass, "return": returnPass, "settle first": settleFirst,
	"settle second": settleSecond,
	"block":         blockPass, "reset": resetPass, "renew": renewPass, "once first": onceFirst,
	"once second": onceSecond, "extend first": extendFirst, "extend second": extendSecond,
}

// A row answers records of numbers. Their fields are counted from 1.
//
// What a row has decided is a record of "answer" in decide.tmpl, and the cell after it
// one of "state".
const (
	aGranted = 1
	aNow     = 6 // the time of the decision
	aClear   = 7
	aCarry   = 8
	aEnds    = 9 // when what is carried over expires

	sDone = 1
)

// What the second row of an op in admission.tmpl answers is an outcome, in the
// order of law.Numbers, and then what is needed to write the log.
const (
	fGranted = 1
	fLevel   = 3
	fPrev    = 4
	fAt      = 5
	fTold    = 10 // the time of the decision
	fEntry   = 12 // where the outcome is remembered
	fWhen    = 14 // it may start
	fStep    = 15
	fNow     = 16 // Settle: the number of the entry
	fDone    = 17
	fClear   = 18
	fCarry   = 19
	fEnds    = 20 // when what is carried over expires

	moreFields = fEnds - law.Width

	// Of an op that extends also:
	fMore     = 21 // credits charged in addition
	fAdmitted = 22 // the request was admitted, also if this op needs nothing more

	extendFields = fAdmitted - law.Width
)

// What @done is in decide.tmpl.
const (
	admitted = 1
	isStale  = 2
)
