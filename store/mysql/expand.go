package mysql

import "strings"

// expand puts into the text of a migration what the procedures share with the
// Go driver: the laws over one cell, the variables, the clock.
func expand(text string) string {
	laws := func(s shape, column func(string) string) string {
		var b strings.Builder
		wrap := s.Only()
		if wrap {
			b.WriteString("GREATEST(0, ")
		}
		sequenceOf(s).render(&b, column, func(p int) string { return "p_" + paramNames[p] })
		if wrap {
			b.WriteByte(')')
		}
		return strings.ReplaceAll(b.String(), ", @hg_", ",\n                @hg_")
	}
	take := shape{Bucket: true, Window: true, Log: true, Single: true}
	ask := take
	ask.Block, ask.Reset = true, true
	return strings.NewReplacer(
		"{{variables}}", variables(),
		"{{clock}}", readClock,
		"{{save}}", strings.TrimSpace(save),
		"{{laws}}", laws(ask, func(name string) string { return "headgate_cells." + name }),
		"{{look}}", laws(take, func(name string) string {
			switch name {
			case "limit_name":
				return "p_limit"
			case "cell_key":
				return "p_key"
			}
			return "COALESCE(c." + name + ", 0)"
		}),
	).Replace(text)
}
