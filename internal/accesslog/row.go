package accesslog

// column is a plain field of an access log.
type column int

// The plain fields.
const (
	ip column = iota
	user
	host
	method
	path
	status
	size
	referer
	agent
	frontend
	backend
	server
	columns
)

var columnNames = [columns]string{
	"ip", "user", "host", "method", "path", "status", "bytes", "referer", "agent", "frontend", "backend", "server",
}

func names(list ...column) []string {
	all := make([]string, len(list))
	for i, c := range list {
		all[i] = columnNames[c]
	}
	return all
}

// row is what a line says of each plain field.
type row [columns][]byte

// choice is the plain fields that are asked for.
type choice struct {
	chosen []column
	values []Value
}

// choose looks the fields up among those of a format.
func choose(f *format, fields []string) (choice, error) {
	c := choice{values: make([]Value, len(fields))}
next:
	for _, field := range fields {
		for i, name := range columnNames {
			if name == field && has(f.fields, field) {
				c.chosen = append(c.chosen, column(i))
				continue next
			}
		}
		return choice{}, noField(f.name, field, f.fields)
	}
	return c, nil
}

func has(list []string, name string) bool {
	for _, s := range list {
		if s == name {
			return true
		}
	}
	return false
}

// of returns the values of a row.
func (c *choice) of(r *row) []Value {
	for i, n := range c.chosen {
		c.values[i] = Value{Text: r[n]}
	}
	return c.values
}
