package rules

import (
	"fmt"
	"net/netip"
	"strings"
	"unicode"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/httpkey"
)

// Text is a text with its place in a file.
type Text struct {
	Value string
	At    string // such as headgate.yaml:12:5; it begins messages
}

// Definitions has the rules of a file. docs/rules.md has the syntax of all texts.
type Definitions struct {
	Rules        []Definition
	Allow, Block []Text // addresses and CIDRs, for all requests
	// LimitExists reports whether there is a limit of a name. Nil: names are not checked.
	LimitExists func(limit string) bool
}

// Definition is a rule in a file. An empty text stands for the default.
type Definition struct {
	At        string // place of the rule
	Name      Text
	Methods   []Text // none: all methods
	Hosts     []Text // none: all hosts
	Path      Text
	Headers   []Condition
	Allow     []Text
	Block     []Text
	Mode      Text
	Missing   Text
	Limits    []Charge
	ID        Text
	IDLife    Text
	IDReplays bool

	EncodedSlash bool // %2f in a path belongs to its segment, and is not an error
}

// Condition is a condition on a header.
type Condition struct{ Name, Value Text }

// Charge is a limit of a rule.
type Charge struct {
	At          string
	Limit       Text
	Key         []Text
	Cost        Text
	CostMissing Text
	Keep        Text
	Settle      Text
}

// errorAt returns an error at a place in a file.
func errorAt(at, field, format string, args ...any) error {
	return headgate.Invalid(at, "%s: %s", field, fmt.Sprintf(format, args...))
}

// maxWarnings is how many overlaps Warnings lists one by one.
const maxWarnings = 20

// New returns the rules of a file. A rule that can never match is an error. Errors are headgate.ErrInvalid and begin
// with the place of the mistake.
func New(d *Definitions) (*Rules, error) {
	if len(d.Rules) > MaxRules {
		return nil, errorAt(d.Rules[MaxRules].At, "rules", "are %d, more than %d", len(d.Rules), MaxRules)
	}
	r := &Rules{}
	if err := r.lists.read("", d.Allow, d.Block); err != nil {
		return nil, err
	}
	names := map[string]string{}
	for i := range d.Rules {
		def := &d.Rules[i]
		next, err := newRule(def, d.LimitExists)
		if err != nil {
			return nil, err
		}
		if at, twice := names[next.name]; twice {
			return nil, errorAt(def.Name.At, "rules."+next.name, "there is a rule of that name at %s", at)
		}
		names[next.name] = def.At
		if err := r.checkReachable(next); err != nil {
			return nil, err
		}
		r.warnOverlaps(next)
		r.list = append(r.list, next)
		r.enforces = r.enforces || next.mode == Enforce
		if len(next.headers) > 0 {
			r.headerRules = append(r.headerRules, i)
		}
	}
	if more := len(r.warnings) - maxWarnings; more > 0 {
		r.warnings = append(r.warnings[:maxWarnings], fmt.Sprintf("and %d more rules whose paths overlap", more))
	}
	return r, nil
}

func (l *lists) read(field string, allow, block []Text) error {
	for as, list := range [...][]Text{Allowed: allow, Blocked: block} {
		for _, text := range list {
			p, err := parsePrefix(text.Value)
			if err != nil {
				return errorAt(text.At, field+Listed(as).String(), "%v", err)
			}
			if *l == nil {
				*l = lists{}
			}
			(*l)[p] = max((*l)[p], Listed(as)) // an address on both lists is blocked
		}
	}
	return nil
}

// parsePrefix reads an address or a CIDR.
func parsePrefix(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return p, fmt.Errorf("%.100q is neither an address nor a CIDR such as 192.0.2.0/24", text)
	case p.Addr().Is4In6():
		return p, fmt.Errorf("%.100q is an IPv4 address in IPv6; write it as IPv4", text)
	case p != p.Masked():
		return p, fmt.Errorf("%.100q has bits after its prefix; write %s", text, p.Masked())
	}
	return p, nil
}

func newRule(d *Definition, limitExists func(string) bool) (*rule, error) {
	r := &rule{at: d.At, name: d.Name.Value, replays: d.IDReplays, encodedSlash: d.EncodedSlash}
	if r.name == "" {
		return nil, errorAt(d.At, "rules", "a rule has no name")
	}
	if err := headgate.ValidName(r.name); err != nil {
		return nil, errorAt(d.Name.At, "rules", "%v", err)
	}
	field := "rules." + r.name + "."
	if err := r.readConditions(d, field); err != nil {
		return nil, err
	}
	if err := r.lists.read(field, d.Allow, d.Block); err != nil {
		return nil, err
	}
	var err error
	if r.mode, err = choice[Mode](d.Mode, field+"mode", modes[:]...); err != nil {
		return nil, err
	}
	if r.missing, err = choice[missingAction](d.Missing, field+"missing", missingActions[:]...); err != nil {
		return nil, err
	}
	if len(d.Limits) > MaxCharges {
		return nil, errorAt(d.Limits[MaxCharges].At, field+"limits", "are %d, more than %d", len(d.Limits), MaxCharges)
	}
	if len(d.Limits) == 0 && len(d.Allow) == 0 && len(d.Block) == 0 && d.ID.Value != "" {
		return nil, errorAt(d.ID.At, field+"id", "does not go without limits")
	}
	for i := range d.Limits {
		c, err := r.readCharge(&d.Limits[i], field+"limits", limitExists)
		if err != nil {
			return nil, err
		}
		r.charges = append(r.charges, c)
	}
	return r, r.readID(d, field+"id")
}

// choice returns the index of a word among words; an empty text is the first word.
func choice[T ~int](text Text, field string, words ...string) (T, error) {
	for i, word := range words {
		if text.Value == word || text.Value == "" {
			return T(i), nil
		}
	}
	return 0, errorAt(text.At, field, "%.100q is not known; there are %s", text.Value, strings.Join(words, ", "))
}

// readConditions reads the methods, hosts, path and headers of a rule.
func (r *rule) readConditions(d *Definition, field string) error {
	for _, m := range d.Methods {
		if !isToken(m.Value) || m.Value != strings.ToUpper(m.Value) {
			return errorAt(m.At, field+"method", "%.100q can never match; methods are words in capitals", m.Value)
		}
		r.methods = append(r.methods, m.Value)
	}
	for _, h := range d.Hosts {
		if err := validHost(h.Value); err != nil {
			return errorAt(h.At, field+"host", "%v", err)
		}
		r.hosts = append(r.hosts, strings.ToLower(h.Value))
	}
	if r.anyPath = d.Path.Value == ""; !r.anyPath {
		var err error
		if r.path, err = parsePattern(d.Path.Value); err != nil {
			return errorAt(d.Path.At, field+"path", "%v", err)
		}
	}
	for _, c := range d.Headers {
		name, err := headerName(c.Name.Value)
		if err != nil {
			return errorAt(c.Name.At, field+"header", "%v", err)
		}
		if strings.TrimSpace(c.Value.Value) != c.Value.Value || strings.ContainsAny(c.Value.Value, "\r\n\x00") {
			return errorAt(c.Value.At, field+"header."+name, "%.100q can never match: no header begins or ends with a "+
				"space, or has a line break", c.Value.Value)
		}
		value, prefix := strings.CutSuffix(c.Value.Value, "*") // a star at the end matches any text
		r.headers = append(r.headers, headerCondition{name, value, prefix})
	}
	return nil
}

// validHost returns an error if no request can have the host of a rule.
func validHost(host string) error {
	name, _ := strings.CutPrefix(host, "*.")
	switch {
	case strings.Contains(name, "*"):
		return fmt.Errorf("%.100q has a star that does not stand at the beginning, before a point", host)
	case strings.ContainsFunc(name, func(c rune) bool { return c > unicode.MaxASCII }):
		return fmt.Errorf("%.100q can never match; browsers send such a name in ASCII, which begins with xn--", host)
	case name == "" || name != httpkey.HostName(strings.ToLower(name)) || strings.ContainsAny(name, "/ @?#[]"):
		return fmt.Errorf("%.100q can never match; a host is a name or an address without a port, such as example.org "+
			"or *.example.org", host)
	}
	return nil
}

func (r *rule) readCharge(d *Charge, field string, limitExists func(string) bool) (c charge, err error) {
	limit := d.Limit.Value
	switch {
	case limit == "":
		return c, errorAt(d.At, field, "a limit has no name")
	case limitExists != nil && !limitExists(limit):
		return c, errorAt(d.Limit.At, field, "there is no limit %.100q in the file", limit)
	}
	if c.limit, err = headgate.Named(limit); err != nil {
		return c, errorAt(d.Limit.At, field, "%v", err)
	}
	field += "." + limit + "."
	if len(d.Key) == 0 {
		return c, errorAt(d.At, field+"key", "is missing; write key: text:all for one key that all requests share")
	}
	if len(d.Key) > MaxCharges {
		return c, errorAt(d.At, field+"key", "has more than %d parts", MaxCharges)
	}
	for _, text := range d.Key {
		s, err := r.readSource(text, field+"key")
		if err != nil {
			return c, err
		}
		c.key = append(c.key, s)
	}
	if err := r.readCost(d, &c, field); err != nil {
		return c, err
	}
	if d.Keep.Value != "" {
		if c.keep, err = headgate.ParseHeadroom(d.Keep.Value); err != nil {
			return c, errorAt(d.Keep.At, field+"keep", "%v", err)
		}
	}
	return c, c.readSettle(d.Settle, field+"settle")
}

// readSource reads a source, which may use the wildcards of the rule's path.
func (r *rule) readSource(text Text, field string) (source, error) {
	s, err := parseSource(text.Value)
	if err != nil {
		return s, errorAt(text.At, field, "%v", err)
	}
	if (s.lower || s.trim) && !strings.HasSuffix(field, "key") {
		return s, errorAt(text.At, field, "%.100q: lower and trim are for the parts of a key", text.Value)
	}
	if s.from == fromPath && !r.path.hasWildcard(s.name) {
		return s, errorAt(text.At, field, "the path of the rule has no wildcard {%s}", s.name)
	}
	return s, nil
}

// sizeHeader contains the length of the body of the original request. The request to /v1/auth has no body, so its
// Content-Length cannot be used.
const sizeHeader = "X-Forwarded-Content-Length"

// readCost reads a cost, which is a number, size, or a source, and the cost if the source is missing.
func (r *rule) readCost(d *Charge, c *charge, field string) (err error) {
	text := d.Cost
	switch {
	case text.Value == "":
	case text.Value == "size":
		c.costFrom = &source{from: fromHeader, name: sizeHeader}
		c.size = true
	case strings.Contains(text.Value, ":"):
		s, err := r.readSource(text, field+"cost")
		if err != nil {
			return err
		}
		if s.from == fromText || s.from == fromPath {
			return errorAt(text.At, field+"cost", "%.100q cannot be a cost; write a number, size, header:NAME, "+
				"query:NAME or cookie:NAME", text.Value)
		}
		c.costFrom = &s
	default:
		if c.cost, err = headgate.ParseCost(text.Value); err != nil {
			return errorAt(text.At, field+"cost", "%v; or write size, or a source such as header:NAME", err)
		}
	}
	if d.CostMissing.Value == "" {
		return nil
	}
	if c.costFrom == nil || c.size {
		return errorAt(d.CostMissing.At, field+"cost_missing", "goes only with a cost that a source such as header:NAME says")
	}
	if c.cost, err = headgate.ParseCost(d.CostMissing.Value); err != nil {
		return errorAt(d.CostMissing.At, field+"cost_missing", "%v", err)
	}
	return nil
}

// readSettle reads the place of the actual cost in a response.
func (c *charge) readSettle(text Text, field string) (err error) {
	if text.Value == "" {
		return nil
	}
	word, name, _ := strings.Cut(text.Value, ":")
	switch word {
	case "header":
		if c.settle.Header, err = headerName(name); err != nil {
			return errorAt(text.At, field, "%v", err)
		}
		if c.settle.Header == "Authorization" { // it is the proxy's, and an error about a cost would reveal it
			return errorAt(text.At, field, "the header Authorization has no cost")
		}
		return nil
	case "json":
		for member := range strings.SplitSeq(name, ".") {
			if member == "" {
				return errorAt(text.At, field, "%.100q has an empty member", text.Value)
			}
		}
		c.settle.JSON = name
		return nil
	}
	return errorAt(text.At, field, "%.100q is not known; there are header:NAME and json:PATH", text.Value)
}

// readID reads the source and the life of a rule's id.
func (r *rule) readID(d *Definition, field string) (err error) {
	if d.ID.Value == "" {
		return nil
	}
	s, err := r.readSource(d.ID, field)
	if err != nil {
		return err
	}
	if s.from != fromHeader {
		return errorAt(d.ID.At, field, "%.100q is not header:NAME", d.ID.Value)
	}
	r.id = &s
	if d.IDLife.Value != "" {
		if r.life, err = headgate.ParsePeriod(d.IDLife.Value); err != nil {
			return errorAt(d.IDLife.At, field+"_life", "%v", err)
		}
	}
	return nil
}
