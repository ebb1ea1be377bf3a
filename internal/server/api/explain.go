package api

// Explain describes an HTTP request, to learn which rule decides about it.
type Explain struct {
	Method  string   `json:"method"`
	Host    string   `json:"host,omitempty"`
	URI     string   `json:"uri"`               // a path with its query, a whole URL, or *
	Headers []string `json:"headers,omitempty"` // such as "X-Api-Key: k1"
	Client  string   `json:"client,omitempty"`  // its address; absent: not known
}

// MaxHeaders is how many headers an [Explain] or an [Observe] may have.
const MaxHeaders = 1000

// Explanation answers an Explain: what would become of the request now, and why. Nothing was charged.
type Explanation struct {
	Allowed bool   `json:"allowed"`
	Why     string `json:"why"`
	Rule    string `json:"rule,omitempty"`   // that decides; absent: none does
	At      string `json:"at,omitempty"`     // its place in the config file
	Mode    string `json:"mode,omitempty"`   // enforce, shadow or advise
	Listed  string `json:"listed,omitempty"` // allow or block: a list that has the client; absent: none

	Once     bool            `json:"once,omitempty"` // it has an id under which it is charged once
	Charges  []ExplainCharge `json:"charges"`
	Decision *Decision       `json:"decision,omitempty"` // about the charges, if there are any
	Problem  *Problem        `json:"problem,omitempty"`  // what the request lacks, so that it cannot be decided

	Rules []Verdict `json:"rules"` // all, in their order
}

// ExplainCharge is a charge that a rule makes.
type ExplainCharge struct {
	Charge
	Settle string `json:"settle,omitempty"` // where the response has the true cost, as the rule says it
}

// Verdict says why a rule decides about a request, or why not.
type Verdict struct {
	Rule    string `json:"rule"`
	At      string `json:"at,omitempty"`
	Matches bool   `json:"matches"`
	Why     string `json:"why"`
}

// ReadJSON reads the description of a request.
func (r *Explain) ReadJSON(data []byte) error {
	return read(data, func(s *scanner, name []byte) uint {
		switch string(name) {
		case "method":
			return s.string(&r.Method, 1<<0)
		case "host":
			return s.string(&r.Host, 1<<1)
		case "uri":
			return s.string(&r.URI, 1<<2)
		case "headers":
			return s.strings(&r.Headers, 1<<3)
		case "client":
			return s.string(&r.Client, 1<<4)
		}
		return 0
	})
}

// strings reads a list of strings and returns bit, or 0.
func (s *scanner) strings(to *[]string, bit uint) uint {
	if !s.array(func() bool {
		if len(*to) == MaxHeaders {
			return s.wrong(s.at, "are more than %d", MaxHeaders)
		}
		text, ok := s.text()
		*to = append(*to, string(text))
		return ok
	}) {
		return 0
	}
	return bit
}
