package mysql

import (
	"fmt"
	"strings"
)

// groupColumns are the numbers of a row of the statements for several charges that may differ from row to row, in
// the order in which headgate_rows_N and headgate_all_N write them.
var groupColumns = []int{
	pPass, pPos, pFirst, pGeneration, pKind, pAnchor, pUnit, pCapacity, pStep, pDrain, pGiven, pBlock, pHeal, pHistory,
	pCost, pCeiling, pB0, pB1, pB2, pB3, pFrom, pUntil,
}

// chargeColumns are those that headgate_all_N writes of each charge by themselves.
var chargeColumns = []string{"kind", "anchor", "unit", "capacity", "step", "given", "history", "cost"}

// outcomeColumns are what headgate_group_N leaves of each charge, with the names of the variables that
// headgate_once_N leaves.
var outcomeColumns = []string{"g", "x", "clk", "retry", "at", "empty", "block", "now", "how", "when", "charged"}

// paths are columns of JSON_TABLE over arrays, from an index on.
func paths(names []string, from int) string {
	list := make([]string, len(names))
	for i, name := range names {
		list[i] = fmt.Sprintf("`%s` bigint path '$[%d]'", name, from+i)
	}
	return strings.Join(list, ", ")
}

const (
	cellPaths    = "l varchar(510) path '$[0]', k varchar(1024) path '$[1]', "
	numberedRows = "'$[*]' columns (n for ordinality, "
)

// groupRows are the rows of such a statement, askedRows the charges, and outcomeRows what became of them.
var (
	groupRows = func() string {
		names := make([]string, len(groupColumns))
		for i, p := range groupColumns {
			names[i] = paramNames[p]
		}
		return "json_table(chosen, '$[*]' columns (" + cellPaths + paths(names, 2) + ")) o"
	}()
	askedRows   = "json_table(@hg_asked, " + numberedRows + cellPaths + paths(chargeColumns, 3) + ")) o"
	outcomeRows = "json_table(@hg_all, " + numberedRows + paths(outcomeColumns, 0) + ")) u"
)

// groupParam is what stands for a number in the statements for several charges.
func groupParam(p int) string {
	switch p {
	case pID:
		return "p_id"
	case pTTL:
		return "p_ttl"
	case pSize:
		return "p_size"
	case pLate:
		return "p_late"
	case pPrint:
		return "p_print"
	case pVerb, pCount:
		return "1"
	case pNow, pPartial:
		return "0"
	case pCeiling: // above the capacity it is of a charge that starts late, below of one that leaves headroom
		return "if(p_late or o.`ceiling` < o.capacity, o.`ceiling`, 0)"
	}
	return "o.`" + paramNames[p] + "`"
}

// fromRecord sets variables to the numbers of a record; of those without a name to none.
func fromRecord(record string, names ...string) string {
	var set []string
	for i, name := range names {
		if name != "" {
			set = append(set, "@hg_"+name+" = "+fieldOf(record, i+1))
		}
	}
	return strings.Join(set, ", ")
}

// The outcomes of a group, as decide.tmpl and admission.tmpl answer them. In the place of whether the answer is
// stale, how is 2 where the limit is full.
var (
	groupAnswer = "set " + fromRecord("record", "g", "x", "clk", "retry", "how", "now", "clear", "carry", "ends") +
		", " + fromRecord("state", "done", "", "", "", "at", "", "empty", "block", "step")
	groupOutcome = "set " + fromRecord("record", "g", "", "", "", "at", "", "empty", "block", "x", "told", "retry",
		"full", "how", "when", "step", "now", "done", "clear", "carry", "ends") +
		", @hg_clk = " + fieldOf("record", fTold)
)

// eachCharge selects a row for each charge, with more columns at its end: the figures are those of a single charge.
// Of a request that was refused, a charge has not what was granted for as long as all was.
func eachCharge(more string) string {
	_, rest, _ := strings.Cut(figures, "as allowed,")
	rest = strings.ReplaceAll(rest, "@hg_", "r.")
	return `select r.n as ordinality, r.whole as allowed, r.g = 0 as refused, convert(unhex(r.k) using utf8mb4) as ` +
		"`key`, r.capacity div r.c as capacity," + rest + more + `
    from (select o.n, o.k, convert(unhex(o.l) using utf8mb4) as name, o.capacity, o.unit as c, u.g, u.clk, u.retry, u.at, u.empty,
            u.block, u.now, u.how, u.` + "`when`" + `, min(u.g) over () as whole, min(u.how = 2) over () as replayed,
            ` + usedByAll + ` as x
        from ` + askedRows + ` join ` + outcomeRows + ` on u.n = o.n) r order by r.n`
}

// reserved are the columns of a reservation. A cell that is ahead of a clock that was set back decides by its own
// time, and means its start by that.
const reserved = `,
        r.replayed as replayed,
        if(r.whole, cast('1970-01-01' + interval max(if(r.when_ > 0, r.when_, r.now)) over () microsecond
            as datetime(6)), null) as start_at,
        if(r.whole, cast(cast(greatest(0, max(r.when_ - r.now) over ()) as decimal(26, 6)) / 1000000
            as decimal(20, 6)), null) as delay`

// eachExtended is eachCharge for charges that were extended. What is in use says already what became of a request that
// was refused.
func eachExtended() string {
	const charged = ",\n        cast(cast(r.charged as decimal(26, 9)) / r.c as decimal(26, 9)) as charged"
	return strings.Replace(eachCharge(charged), usedByAll, "u.charged, u.x", 1)
}

// usedByAll is what is in use after all charges of a request, if it is admitted.
const usedByAll = "u.x - if(min(u.g) over (), 0, sum(u.g * o.cost) over (partition by o.l, o.k order by o.n))"

// severals are what the procedures for several charges share.
func severals(laws func(shape, func(string) string, func(int) string) string, cell func(string) string) []string {
	names := strings.Join(chargeColumns, "`, o.`")
	return []string{
		"{{group columns}}", "o.`" + names + "`",
		"{{group paths}}", paths(chargeColumns, 3),
		"{{group rows}}", groupRows,
		"{{group answer}}", groupAnswer,
		"{{group outcome}}", groupOutcome,
		"{{group}}", laws(shape{Bucket: true, Window: true, Log: true, Groups: true, Rooms: true, Timed: true}, cell,
			groupParam),
		"{{group once}}", laws(shape{
			Bucket: true, Window: true, Log: true, Once: true, IDs: true, Late: true, Rooms: true, Timed: true,
		}, cell, groupParam),
		"{{group settle}}", laws(shape{
			Bucket: true, Window: true, Log: true, Settle: true, IDs: true, More: true, Parts: true,
		}, cell, groupParam),
		"{{group extend}}", laws(shape{Bucket: true, Window: true, Log: true, Extend: true, IDs: true, Timed: true},
			cell, groupParam),
		"{{asked}}", askedRows,
		"{{outcomes}}", outcomeRows,
		"{{each}}", eachCharge(""),
		"{{each extended}}", eachExtended(),
		"{{each once}}", eachCharge(",\n        r.replayed as replayed"),
		"{{each reserved}}", eachCharge(strings.ReplaceAll(reserved, "when_", "`when`")),
	}
}
