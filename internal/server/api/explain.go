package api

// Explain describes an HTTP request, to learn which rule decides about it.
type Explain struct {
	Method  string   `json:"method"`
	Host    string   `json:"host,omitempty"`
	URI     string   `json:"uri"`               // a path with its query, a whole URL, or *
	Headers []string `json:"headers,omitempty"` // such as "X-Api-Key: k1"
	Client  string   `json:"client,omitempty"`  // its address; absent: not known
}

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
