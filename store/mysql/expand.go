package mysql

import (
	"strings"

	"github.com/headgate/headgate/law"
)

// What procedures have in common: after how long a cell heals, the columns of request_token, and the entries that
// a charge leaves.
const (
	healAfter = `greatest(2000000, case p_kind when 2 then 2 * p_step when 3 then p_step
        else least(9007199254740991, 
            (p_capacity div p_drain + (p_capacity mod p_drain > 0)) * cast(p_step as decimal(38))) end)`

	token = `@hg_g as granted, greatest(0, p_capacity - @hg_x) div 1000 as remaining,
                    ` + retryAfter + ` as retry_after,
                    cast('1970-01-01' + interval @hg_now microsecond as datetime(6)) as at`

	ownLog = `if p_verb = 1 and p_kind = 3 and @hg_done <> 2 then
                if @hg_carry > 0 then
                    insert into headgate_entries (limit_name, cell_key, id, at, expires_at, keep_until, cost, granted)
                    values (p_limit, p_key, 'carried over', @hg_now, @hg_ends,
                        @hg_now + greatest(p_step, p_history), @hg_carry, 1);
                end if;
                if @hg_done or p_history > 0 then
                    insert into headgate_entries (limit_name, cell_key, id, at, expires_at, keep_until, cost, granted)
                    values (p_limit, p_key, p_note, @hg_now, if(@hg_done, @hg_now + p_step, 0),
                        @hg_now + greatest(p_history, if(@hg_done, p_step, 0)),
                        if(@hg_done, @hg_g, p_count) * p_cost, @hg_done);
                    set @hg_entry = last_insert_id();
                end if;
            end if;`
)

// openOwn begins a transaction, unless there is one of the caller's, which is
// repeated until it does not conflict; commitOwn ends it. beginOwn also locks
// the cell. The errors are known's that mean a conflict, but for a wait that was too
// long: the caller has waited for most of a minute then.
var (
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
            ` + variables() + roomVariables + `
            if not inside then
                set transaction isolation level read committed; -- also at the second attempt
                start transaction;
            end if;`

	beginOwn = openOwn + `
            insert into headgate_cells (limit_name, cell_key) values (p_limit, p_key)
                on duplicate key update law = headgate_cells.law;
            set @hg_clock = ` + readClock + `;`
)

// redirect sends an op whose cell is missing, since its limit is full, to the cell that
// the limit's keys share, or one whose shared cell is gone back to its own; in a
// transaction of its own, so that nobody waits for this one.
const redirect = `delete from headgate_cells where limit_name = p_limit and cell_key = p_key and law = 0;
                set again = 1, p_generation = greatest(0, @hg_full),
                    p_key = if(@hg_full > 0, concat('headgate:shared:', @hg_full), own_key);`

const commitOwn = `if not inside then
                commit;
            end if;
        end;
    end while;`

// ours begins the comment of the procedures that are named after the articles and
// were made here. foreignArticles selects those of other people, and leftAlone is
// what is said of them, before and after their names.
const (
	ours            = "made by headgate"
	foreignArticles = "routine_schema = database() and routine_type = 'PROCEDURE' and lower(routine_name) in " +
		"('check_velocity', 'request_token') and routine_comment not like '" + ours + "%'"
)

var leftAlone = [...]string{
	"did not make the articles'' procedures: ",
	" exists and is not ours; rename or drop it and migrate again, or say --skip-articles",
}

// expand puts into the text of a migration what the procedures share with the
// Go driver, and with each other: the laws over one cell, the variables, the clock.
func expand(text string) string {
	param := func(p int) string { return "p_" + paramNames[p] }
	laws := func(s shape, column func(string) string, param func(p int) string) string {
		var b strings.Builder
		wrap := s.Only()
		if wrap {
			b.WriteString("GREATEST(0, ")
		}
		sequenceOf(s).render(&b, column, param)
		if wrap {
			b.WriteByte(')')
		}
		return strings.ReplaceAll(b.String(), ", @hg_", ",\n                @hg_")
	}
	cell := func(name string) string { return "headgate_cells." + name }
	// The rows of a request that is asked twice differ in their pass.
	twice := func(p int) string {
		if p == pPass {
			return "o.pass"
		}
		return param(p)
	}
	take := shape{Bucket: true, Window: true, Log: true, Single: true, Rooms: true, Timed: true}
	ask := take
	ask.Block, ask.Reset = true, true
	return strings.NewReplacer(append(severals(laws, cell),
		"{{open}}", openOwn,
		"{{begin}}", beginOwn,
		"{{commit}}", commitOwn,
		"{{heal}}", healAfter,
		"{{log}}", ownLog,
		"{{figures}}", figures,
		"{{retry after}}", retryAfter,
		"{{variables}}", variables()+roomVariables,
		"{{redirect}}", redirect,
		"{{reserved}}", "left(`key`, 16) = 'headgate:shared:'",
		"{{is reserved}}", `begins with "headgate:shared:", which is kept for cells that keys share`,
		"{{more variables}}", moreVariables()+"\n            "+nameVariables(),
		"{{clock}}", readClock,
		"{{save}}", strings.TrimSpace(save),
		"{{saved columns}}", savedColumns,
		"{{saved values}}", savedValues,
		"{{strict}}", strictTransaction,
		"{{foreign articles}}", foreignArticles,
		"{{left alone}}", "'"+leftAlone[0]+"', foreigners, '"+leftAlone[1]+"'",
		"{{token}}", token,
		"{{dead c}}", dead("c", "now"),
		"{{emptied c}}", emptied("c", "now", clusterSlack), // the text is the same on all servers
		"{{dead headgate_cells}}", dead("headgate_cells", "now"),
		"{{laws}}", laws(ask, cell, param),
		"{{once}}", laws(shape{
			Bucket: true, Window: true, Log: true, Once: true, IDs: true, Late: true, Rooms: true,
			Timed: true,
		}, cell, twice),
		"{{settle}}", laws(shape{
			Bucket: true, Window: true, Log: true, Settle: true, IDs: true, More: true, Parts: true,
		}, cell, twice),
		"{{extend}}", laws(shape{Bucket: true, Window: true, Log: true, Extend: true, IDs: true, Timed: true}, cell,
			twice),
		"{{granted}}", fieldOf("@hg_r", fGranted),
		"{{answered more}}", answered(fMore),
		"{{answered admitted}}", answered(fAdmitted),
		"{{entry of outcome}}", spaced("a.outcome", entryField),
		"{{moved outcome}}", movedOutcome("@hg_entry"),
		"{{raised outcome}}", extendedOutcome(true),
		"{{extended outcome}}", extendedOutcome(false),
		"{{no terms}}", law.Terms{}.String(),
		"{{lease}}", laws(shape{Log: true, Return: true, Renew: true, Rooms: true}, cell, param),
		"{{outcome}}", outcome(),
		"{{look}}", laws(take, func(name string) string {
			switch name {
			case "limit_name":
				return "p_limit"
			case "cell_key":
				return "p_key"
			}
			return "COALESCE(c." + name + ", 0)"
		}, param),
	)...).Replace(text)
}

// savedColumns are the columns of save, savedValues their values.
var savedColumns, savedValues = func() (columns, values string) {
	var names, vars []string
	for _, assignment := range strings.Split(strings.TrimSuffix(strings.TrimSpace(save), ","), ",") {
		name, value, _ := strings.Cut(assignment, "=")
		names, vars = append(names, strings.TrimSpace(name)), append(vars, strings.TrimSpace(value))
	}
	return strings.Join(names, ", "), strings.Join(vars, ", ")
}()

// outcome takes the outcome out of @hg_r, which a charge that is remembered has
// there alone, and puts it where headgate_ask leaves one.
func outcome() string {
	var b strings.Builder
	for i, name := range []string{"g", "", "", "", "at", "", "empty", "block", "x", "clk", "retry", "", "how", "when"} {
		if name == "" {
			continue
		}
		if i > 0 {
			b.WriteString(",\n        ")
		}
		b.WriteString("@hg_" + name + " = " + fieldOf("@hg_r", i+1))
	}
	return "set " + b.String()
}
