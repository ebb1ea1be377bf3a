package api

// Explain describes an HTTP request, for which the rule that decides is to be found.
type Explain struct {
	Method  string   `json:"method"`
	Host    string   `json:"host,omitempty"`
	URI     string   `json:"uri"`               // a path with its query, a whole URL, or *
	Headers []string `json:"headers,omitempty"` // such as "X-Api-Key: k1"
	Client  string   `json:"client,omitempty"`  // address; absent: unknown
}

// Explanation answers an Explain with the decision that the request would get now, and why. Nothing was charged.
type Explanation struct {
	Allowed bool   `json:"allowed"`
	Why     string `json:"why"`
	Rule    string `json:"rule,omitempty"`   // the rule that decides; absent: none
	At      string `json:"at,omitempty"`     // place of the rule in the config file
	Mode    string `json:"mode,omitempty"`   // enforce, shadow or advise
	Listed  string `json:"listed,omitempty"` // allow or block: the list that the client is on; absent: none

	Once     bool            `json:"once,omitempty"` // the request has an id, so it is charged only once
	Charges  []ExplainCharge `json:"charges"`
	Decision *Decision       `json:"decision,omitempty"` // about the charges, if there are any
	Problem  *Problem        `json:"problem,omitempty"`  // why the request cannot be decided: it lacks something

	Rules []Verdict `json:"rules"` // one for each rule, in the order of the file
}

// ExplainCharge is a charge that a rule makes.
type ExplainCharge struct {
	Charge
	Settle string `json:"settle,omitempty"` // where the response has the actual cost, in the rule's syntax
}

// Verdict says why a rule decides a request, or why not.
type Verdict struct {
	Rule    string `json:"rule"`
	At      string `json:"at,omitempty"`
	Matches bool   `json:"matches"`
	Why     string `json:"why"`
}
