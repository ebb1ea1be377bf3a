package mysql

import (
	"strconv"
	"strings"

	"github.com/headgate/headgate/law"
)

// The texts of migrations share a few pieces with each other and with the Go driver: {{clock}} is one.

// The columns of headgate_take, from what a decision leaves, and when the next attempt could pass. $ is what stands before
// the names of that: @hg_ of variables, or a table.
const (
	retry = `cast(case when $g then 0 when $retry < 9007199254740991
        then cast(greatest(0, $retry - $clk) as decimal(26, 6)) / 1000000 end as decimal(20, 6))`

	columns = `if($block > greatest($clk, $at), 0, greatest(0, $capacity - $x) div $c) as remaining,
        ` + retry + ` as retry_after,
        cast(cast(greatest(0, greatest($empty, $block) - $clk) as decimal(26, 6)) / 1000000
            as decimal(20, 6)) as reset_after,
        $name as limit_name,
        cast('1970-01-01' + interval $now microsecond as datetime(6)) as at`
)

var (
	retryAfter = strings.ReplaceAll(retry, "$", "@hg_")
	figures    = "select @hg_g as allowed, " + strings.ReplaceAll(columns, "$", "@hg_")
)

// token is the row of request_token.
var token = `granted as granted, greatest(0, p_capacity - used) div 1000 as remaining,
                    ` + retryAfter + ` as retry_after,
                    cast('1970-01-01' + interval moment microsecond as datetime(6)) as at`

// Procedures that decide have the cell in variables.
const (
	declareCell = `declare s_kind int default 0;
    declare s_level, s_prev, s_at, s_unit, s_step, s_empty_at, s_blocked_until bigint default 0;`

	stateOfCell = "s_kind, s_level, s_prev, s_at, s_unit, s_step, s_empty_at, s_blocked_until"

	readCell = `select c.law, c.level, c.prev, c.at, c.unit, c.step, c.empty_at, c.blocked_until
            into ` + stateOfCell + `
            from headgate_cells c where c.limit_name = p_limit and c.cell_key = p_key`

	// lockCell locks a cell, and then reads the clock. In a transaction of the caller's a row that is missing is
	// inserted at once, since to look for it might lock the gap where it is not.
	lockCell = `set s_kind = null;
            if not inside then
                ` + readCell + ` for update;
            end if;
            if s_kind is null then
                insert into headgate_cells (limit_name, cell_key) values (p_limit, p_key)
                on duplicate key update law = headgate_cells.law;
                ` + readCell + ` for update;
            end if;
            set clock = ` + readClock + `;`

	// saveCell writes the cell. The reason of a block goes with it.
	saveCell = `update headgate_cells c set c.law = s_kind, c.level = s_level, c.prev = s_prev, c.at = s_at,
                c.unit = s_unit, c.step = s_step, c.empty_at = s_empty_at,
                c.reason = if(c.blocked_until <> s_blocked_until, '', c.reason), c.blocked_until = s_blocked_until
            where c.limit_name = p_limit and c.cell_key = p_key;`
)

// openOwn begins a transaction, unless there is one of the caller's, which is
// repeated until it does not conflict; commitOwn ends it. The errors are known's that mean a conflict, but for a wait
// that was too long: the caller has waited for most of a minute then.
const (
	openOwn = `call headgate_inside_N(inside);
    while again do
        set again = 0, tries = tries + 1;
        begin
            declare exit handler for 1213, 1020, 3101, 1180 begin
                declare problem text character set utf8mb4;
                get diagnostics condition 1 problem = message_text;
                if inside or tries > 50
                    or problem like 'Got error % during COMMIT' and problem not like 'Got error 149 %' then
                    if not inside then rollback; end if;
                    resignal;
                end if;
                rollback;
                do sleep(rand() * tries / 500); -- several callers that conflict at once would meet again
                set again = 1;
            end;
            declare exit handler for sqlexception begin
                if not inside then rollback; end if;
                resignal;
            end;
            if not inside then
                if tries > 1 then
                    set transaction isolation level read committed; -- as headgate_inside_N has for the first attempt
                end if;
                start transaction;
            end if;`

	commitOwn = `if not inside then
                commit;
            end if;
        end;
    end while;`
)

// ours begins the comment of the procedures that are named after the articles and were made here.
const ours = "made by headgate"

// What headgate_group_N reads of each charge after its limit and key, and what it leaves of each in @hg_all.
var (
	opColumns = strings.Fields("kind anchor unit capacity step drain block history cost ceiling b0 b1 b2 b3 since " +
		"lapse")

	outcomeColumns = strings.Fields("n g x clk retry at empty block now how when charged")
)

// sortOps writes the places of the charges into sorted, four digits each, in the order of their cells. MySQL cuts
// what group_concat returns after 1,024 bytes. nextOp reads the charge that is there after i others. A cursor would
// stay open while statements lose against another node of a Galera cluster, and the node died of that (MariaDB 10.11);
// to sort all of 1,000 charges for each of them took 25 s.
var (
	sortOps = "while i < p_size do select concat(sorted, group_concat(lpad(x.n, 4, '0') order by x.l, x.k, x.n " +
		"separator '')) into sorted from (select o.n, o.l, o.k from " + chargesOf("asked") +
		" order by o.l, o.k, o.n limit i, 200) x; set i = i + 200; end while;"

	nextOp = "if i < p_size then set n = substring(sorted, 4 * i + 1, 4); select unhex(o.l), unhex(o.k), " +
		prefixed("o.`", opColumns, "`") + " into p_limit, p_key, " + prefixed("p_", opColumns, "") + " from " +
		chargesOf("concat('[', json_extract(asked, concat('$[', n - 1, ']')), ']')") + "; else set ended = 1; end if;"
)

// A request with an id is remembered by the numbers of what was answered, and those of its last extension.
var receiptColumns = append(append([]string{}, law.NumberNames[:]...), "more", "more_level", "more_at", "more_prev")

// jsonRows returns a table of the numbers of an array of arrays, from an index on.
func jsonRows(array, before string, names []string, from int) string {
	var b strings.Builder
	b.WriteString("json_table(" + array + ", '$[*]' columns (" + before)
	for i, name := range names {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString("`" + name + "` bigint path '$[" + strconv.Itoa(from+i) + "]'")
	}
	b.WriteString("))")
	return b.String()
}

// chargesOf returns a table of the charges in an array for headgate_group_N.
func chargesOf(array string) string {
	const cell = "n for ordinality, l varchar(510) character set utf8mb4 path '$[0]', " +
		"k varchar(1024) character set utf8mb4 path '$[1]', "
	return jsonRows(array, cell, opColumns, 2) + " o"
}

// eachCharge selects a row for each charge of a request, with the figures that headgate_take has of one, and more
// columns. Of a request that was refused, used is what is in use without the charges that would have passed.
func eachCharge(used, more string) string {
	return `select r.n as ordinality, r.whole as allowed, r.g = 0 as refused, convert(unhex(r.k) using utf8mb4) as ` +
		"`key`" + `, r.capacity div r.c as capacity, ` +
		strings.ReplaceAll(columns, "$", "r.") + more + `
    from (select o.n, o.k, convert(unhex(o.l) using utf8mb4) as name, o.capacity, o.unit as c, u.g, u.clk, u.retry, u.at, u.empty,
            u.block, u.now, u.how, u.` + "`when`" + `, u.charged, min(u.g) over () as whole,
            min(u.how = 2) over () as replayed, ` + used + ` as x
        from {{asked}} join {{outcomes}} on u.n = o.n) r order by r.n`
}

const (
	// usedByAll is the use after all charges of a request, if it is admitted.
	usedByAll = "u.x - if(min(u.g) over (), 0, sum(u.g * o.cost) over (partition by o.l, o.k order by o.n))"

	replayed = `,
        r.replayed as replayed`

	// reserved are the columns of a reservation. A cell that is ahead of a clock that was set back decides by its own
	// time, and means its start by that.
	reserved = replayed + `,
        if(r.whole, cast('1970-01-01' + interval max(if(r.{when} > 0, r.{when}, r.now)) over () microsecond
            as datetime(6)), null) as start_at,
        if(r.whole, cast(cast(greatest(0, max(r.{when} - r.now) over ()) as decimal(26, 6)) / 1000000
            as decimal(20, 6)), null) as delay`

	charged = `,
        cast(cast(r.charged as decimal(26, 9)) / r.c as decimal(26, 9)) as charged`
)

// prefixed returns a list of names with something before and after each.
func prefixed(before string, names []string, after string) string {
	return before + strings.Join(names, after+", "+before) + after
}

// expand puts its pieces into the text of a migration.
func expand(text string) string {
	pieces := strings.NewReplacer(
		"{{cell}}", declareCell,
		"{{state}}", stateOfCell,
		"{{read}}", readCell,
		"{{lock}}", lockCell,
		"{{save}}", saveCell,
		"{{open}}", openOwn,
		"{{commit}}", commitOwn,
		"{{clock}}", readClock,
		"{{figures}}", figures,
		"{{retry after}}", retryAfter,
		"{{token}}", token,
		"{{strict}}", strictTransaction,
		"{{unused}}", unused,
		"{{dead c}}", isDead("c", "now"),
		"{{emptied c}}", emptied("c", "now", clusterSlack), // the text is the same on all servers
		"{{dead headgate_cells}}", isDead("headgate_cells", "now"),
		"{{no terms}}", law.Terms{}.String(),
		"{{ops}}", chargesOf("asked"),
		"{{sort ops}}", sortOps,
		"{{next op}}", nextOp,
		"{{receipt}}", prefixed("r_", receiptColumns, ""),
		"{{answer of receipt}}", prefixed("r_", receiptColumns[:law.Width], ""),
		"{{numbers of a_outcome}}", jsonRows("concat('[[', replace(convert(a_outcome using utf8mb4), ' ', ','), "+
			"',0,0,0,0]]')", "", receiptColumns, 0),
		"{{asked}}", chargesOf("@hg_asked"),
		"{{outcomes}}", jsonRows("@hg_all", "", outcomeColumns, 0)+" u",
	)
	return pieces.Replace(strings.NewReplacer(
		"{{each}}", eachCharge(usedByAll, ""),
		"{{each once}}", eachCharge(usedByAll, replayed),
		"{{each reserved}}", eachCharge(usedByAll, strings.ReplaceAll(reserved, "{when}", "`when`")),
		"{{each extended}}", eachCharge("u.x", charged),
	).Replace(text))
}
