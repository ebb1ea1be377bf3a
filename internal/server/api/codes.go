package api

import "strconv"

// Domain is the domain in the ErrorInfo of problems over gRPC.
const Domain = "headgate"

// problemKinds has the gRPC code of a problem, and the reason in its ErrorInfo. The first match counts; "" is any type.
//
// Clients and proxies of gRPC retry after UNAVAILABLE, so only problems that charged nothing have it. No problem has
// RESOURCE_EXHAUSTED, since a refusal is a decision.
var problemKinds = []struct {
	Type   string
	Status int // of HTTP; 0: any
	code   uint32
	reason string
}{
	{Unavailable, 0, 14, "UNAVAILABLE"},
	{Busy, 0, 14, "BUSY"},
	{Full, 0, 9, "FULL"},
	{OutcomeUnknown, 504, 4, "OUTCOME_UNKNOWN"},
	{OutcomeUnknown, 0, 2, "OUTCOME_UNKNOWN"},
	{IDReused, 0, 6, "ID_REUSED"},
	{IDSettled, 0, 9, "ID_SETTLED"},
	{IDUnknown, 0, 5, "ID_UNKNOWN"},
	{"", 400, 3, "INVALID"},
	{"", 409, 10, "CONFLICT"},
	{"", 413, 3, "TOO_LARGE"},
	{"", 401, 16, "NOT_AUTHENTICATED"},
	{"", 403, 7, "NOT_PERMITTED"},
	{"", 501, 12, "NOT_SUPPORTED"},
	{"", 0, 2, "OTHER"},
}

// Code returns the code of gRPC for a problem: a google.rpc.Code.
func (p *Problem) Code() uint32 { return problemKinds[p.kind()].code }

// Reason returns the reason in the ErrorInfo of a problem.
func (p *Problem) Reason() string { return problemKinds[p.kind()].reason }

func (p *Problem) kind() int {
	for i, k := range problemKinds {
		if (k.Type == "" || k.Type == p.Type) && (k.Status == 0 || k.Status == p.Status) {
			return i
		}
	}
	return len(problemKinds) - 1
}

// Text returns the message of a problem over gRPC: the title and the detail.
func (p *Problem) Text() string {
	if p.Detail == "" {
		return p.Title
	}
	return p.Title + ": " + p.Detail
}

// Metadata returns the metadata of an ErrorInfo for a problem. [ParseMetadata] reads them.
func (p *Problem) Metadata() map[string]string {
	m := map[string]string{"title": p.Title, "status": strconv.Itoa(p.Status)}
	for name, text := range map[string]string{"type": p.Type, "detail": p.Detail, "field": p.Field} {
		if text != "" {
			m[name] = text
		}
	}
	return m
}

// ParseMetadata returns the problem that metadata describe, or nil.
func ParseMetadata(m map[string]string) *Problem {
	status, _ := strconv.Atoi(m["status"]) // 0 if it is not a number
	if status == 0 || m["title"] == "" {
		return nil
	}
	return &Problem{Type: m["type"], Title: m["title"], Status: status, Detail: m["detail"], Field: m["field"]}
}
