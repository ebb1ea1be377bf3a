package mysql

import (
	"strconv"
	"strings"

	"github.com/headgate/headgate/law"
)

// The texts in folder sql share pieces, such as {{clock}}, with each other and with the Go driver.

// The columns of headgate_take, computed from the results of a decision. $ stands for the prefix of the results' names:
// @hg_ for variables, or a table. retryColumn is in how many seconds the next attempt could pass; null: never.
const (
	retryColumn = `cast(case when $g then 0 when $retry < 9007199254740991
        then cast(greatest(0, $retry - $clk) as decimal(26, 6)) / 1000000 end as decimal(20, 6))`

	takeColumns = `if($block > greatest($clk, $at), 0, greatest(0, $capacity - $x) div $c) as remaining,
        ` + retryColumn + ` as retry_after,
        cast(cast(greatest(0, greatest($empty, $block) - $clk) as decimal(26, 6)) / 1000000
            as decimal(20, 6)) as reset_after,
        $name as limit_name,
        cast('1970-01-01' + interval $now microsecond as datetime(6)) as at`
)

var (
	retryAfter = strings.ReplaceAll(retryColumn, "$", "@hg_")
	selectTake = "select @hg_g as allowed, " + strings.ReplaceAll(takeColumns, "$", "@hg_")
)

// tokenColumns are the columns of request_token.
var tokenColumns = `granted as granted, greatest(0, p_capacity - used) div 1000 as remaining,
                    ` + retryAfter + ` as retry_after,
                    cast('1970-01-01' + interval moment microsecond as datetime(6)) as at`

// Procedures that decide keep the cell in variables.
const (
	declareCell = `declare s_kind int default 0;
    declare s_level, s_prev, s_at, s_unit, s_step, s_empty_at, s_blocked_until bigint default 0;`

	stateOfCell = "s_kind, s_level, s_prev, s_at, s_unit, s_step, s_empty_at, s_blocked_until"

	readCell = `select c.law, c.level, c.prev, c.at, c.unit, c.step, c.empty_at, c.blocked_until
            into ` + stateOfCell + `
            from headgate_cells c where c.limit_name = p_limit and c.cell_key = p_key`

	// lockCell makes a missing cell, locks the cell, and then reads the clock. In a transaction of the caller it
	// inserts the row without a search, which might lock the gap instead.
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

	// saveCell writes the cell. It clears the reason of a block that has changed.
	saveCell = `update headgate_cells c set c.law = s_kind, c.level = s_level, c.prev = s_prev, c.at = s_at,
                c.unit = s_unit, c.step = s_step, c.empty_at = s_empty_at,
                c.reason = if(c.blocked_until <> s_blocked_until, '', c.reason), c.blocked_until = s_blocked_until
            where c.limit_name = p_limit and c.cell_key = p_key;`
)

// beginOwn begins a transaction, unless the caller has one, and repeats it while it conflicts with others, up to 50
// times; commitOwn ends it. Of the conflicts of classByNumber, beginOwn names those of MariaDB and MySQL, but no lock
// wait that was too long: the caller has waited for most of a minute then.
const (
	beginOwn = `call headgate_inside_N(inside);
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

// articleComment begins the comment of the articles' procedures that Headgate has made.
const articleComment = "made by headgate"

// What headgate_group_N reads for each charge after its limit and key, and the results for each charge in @hg_all.
var (
	opColumns = strings.Fields("kind anchor unit capacity step drain block history cost ceiling b0 b1 b2 b3 since " +
		"lapse alternative print")

	outcomeColumns = strings.Fields("n g x clk retry at empty block now how when charged")
)

// sortOps writes the places of the charges to the variable sorted, four digits each, in the order of their alternatives
// and cells. MySQL truncates the result of group_concat after 1,024 bytes. nextOp reads the i-th charge of that order,
// from 0. A cursor would stay open while statements lose against another node of a Galera cluster, and crashed the node
// (MariaDB 10.11); to sort 1,000 charges again for each of them took 25 s.
var (
	sortOps = "while i < p_size do select concat(sorted, group_concat(lpad(x.n, 4, '0') order by x.a, x.l, x.k, x.n " +
		"separator '')) into sorted from (select o.n, o.l, o.k, o.alternative as a from " + chargesOf("asked") +
		" order by o.alternative, o.l, o.k, o.n limit i, 200) x; set i = i + 200; end while;"

	nextOp = "if i < p_size then set n = substring(sorted, 4 * i + 1, 4); select unhex(o.l), unhex(o.k), " +
		joinNames("o.`", opColumns, "`") + " into p_limit, p_key, " + joinNames("p_", opColumns, "") + " from " +
		chargesOf("concat('[', json_extract(asked, concat('$[', n - 1, ']')), ']')") + "; else set ended = 1; end if;"
)

// receiptColumns are the numbers in the receipt of a request: of its outcome, and of its last extension.
var receiptColumns = append(append([]string{}, law.NumberNames[:]...), "more", "more_level", "more_at", "more_prev")

// jsonRows returns a table of an array of arrays. Its columns are those of before, then names: the numbers that stand
// in each inner array from the index from on.
func jsonRows(array, before string, names []string, from int) string {
	columns := make([]string, len(names))
	for i, name := range names {
		columns[i] = "`" + name + "` bigint path '$[" + strconv.Itoa(from+i) + "]'"
	}
	return "json_table(" + array + ", '$[*]' columns (" + before + strings.Join(columns, ", ") + "))"
}

// chargesOf returns a table of the charges in the array that headgate_group_N gets.
func chargesOf(array string) string {
	const cell = "n for ordinality, l varchar(510) character set utf8mb4 path '$[0]', " +
		"k varchar(1024) character set utf8mb4 path '$[1]', "
	return jsonRows(array, cell, opColumns, 2) + " o"
}

// selectCharges returns the statement that selects a row for each charge of a request, with the columns of
// headgate_take and more. used is the SQL for the credits in use.
func selectCharges(used, moreColumns string) string {
	return `select r.n as ordinality, r.whole as allowed, r.g = 0 as refused, convert(unhex(r.k) using utf8mb4) as ` +
		"`key`" + `, r.capacity div r.c as capacity, ` +
		strings.ReplaceAll(takeColumns, "$", "r.") + moreColumns + `
    from (select o.n, o.k, convert(unhex(o.l) using utf8mb4) as name, o.capacity, o.unit as c, u.g, u.clk, u.retry, u.at, u.empty,
            u.block, u.now, u.how, u.` + "`when`" + `, u.charged, min(u.g) over (partition by o.alternative) as whole,
            o.alternative, min(u.how = 2) over () as replayed, ` + used + ` as x
        from {{asked}} join {{outcomes}} on u.n = o.n) r order by r.n`
}

const (
	// usedByAll is the use after a charge of an admitted request; of a refused one, without what would have passed.
	usedByAll = "u.x - if(min(u.g) over (partition by o.alternative), 0, " +
		"sum(u.g * o.cost) over (partition by o.alternative, o.l, o.k order by o.n))"

	alternativeColumn = `,
        r.alternative as alternative`

	replayedColumn = `,
        r.replayed as replayed`

	// reservedColumns are the columns of a reservation. If the clock was set back, a cell decides by its own time,
	// which is ahead, and its start is in that time.
	reservedColumns = replayedColumn + `,
        if(r.whole, cast('1970-01-01' + interval max(if(r.{when} > 0, r.{when}, r.now)) over () microsecond
            as datetime(6)), null) as start_at,
        if(r.whole, cast(cast(greatest(0, max(r.{when} - r.now) over ()) as decimal(26, 6)) / 1000000
            as decimal(20, 6)), null) as delay`

	chargedColumn = `,
        cast(cast(r.charged as decimal(26, 9)) / r.c as decimal(26, 9)) as charged`
)

// joinNames joins names by commas, with a text before and after each name.
func joinNames(before string, names []string, after string) string {
	return before + strings.Join(names, after+", "+before) + after
}

// expand replaces the placeholders in the text of a migration, a procedure or a trigger.
func expand(text string) string {
	pieces := strings.NewReplacer(
		"{{cell}}", declareCell,
		"{{state}}", stateOfCell,
		"{{read}}", readCell,
		"{{lock}}", lockCell,
		"{{save}}", saveCell,
		"{{open}}", beginOwn,
		"{{commit}}", commitOwn,
		"{{clock}}", readClock,
		"{{figures}}", selectTake,
		"{{retry after}}", retryAfter,
		"{{token}}", tokenColumns,
		"{{strict}}", strictTransaction,
		"{{unused}}", unusedNumbers,
		"{{dead c}}", deadCondition("c", "now"),
		"{{emptied c}}", emptyCondition("c", "now", clusterSlack), // the text is the same on all servers
		"{{dead headgate_cells}}", deadCondition("headgate_cells", "now"),
		"{{no terms}}", law.Terms{}.String(),
		"{{ops}}", chargesOf("asked"),
		"{{sort ops}}", sortOps,
		"{{next op}}", nextOp,
		"{{receipt}}", joinNames("r_", receiptColumns, ""),
		"{{answer of receipt}}", joinNames("r_", receiptColumns[:law.Width], ""),
		"{{numbers of a_outcome}}", jsonRows("concat('[[', replace(convert(a_outcome using utf8mb4), ' ', ','), "+
			"',0,0,0,0]]')", "", receiptColumns, 0),
		"{{asked}}", chargesOf("@hg_asked"),
		"{{outcomes}}", jsonRows("@hg_all", "", outcomeColumns, 0)+" u",
	)
	return pieces.Replace(strings.NewReplacer(
		"{{each}}", selectCharges(usedByAll, ""),
		"{{each once}}", selectCharges(usedByAll, replayedColumn),
		"{{each first}}", selectCharges(usedByAll, alternativeColumn),
		"{{each first once}}", selectCharges(usedByAll, alternativeColumn+replayedColumn),
		"{{each reserved}}", selectCharges(usedByAll, strings.ReplaceAll(reservedColumns, "{when}", "`when`")),
		"{{each extended}}", selectCharges("u.x", chargedColumn),
	).Replace(text))
}
