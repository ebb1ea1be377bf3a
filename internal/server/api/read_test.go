package api_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/testing/leaktest"
	"github.com/headgate/headgate/law"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// newRequests has functions that return a new value, each of another type of request.
var newRequests = []func() any{
	func() any { return new(api.Batch) },
	func() any { return new(api.Request) },
	func() any { return new(api.Reserve) },
	func() any { return new(api.Settle) },
	func() any { return new(api.Leases) },
	func() any { return new(api.InspectRequest) },
	func() any { return new(api.Block) },
	func() any { return new(api.ResetRequest) },
	func() any { return new(api.Explain) },
	func() any { return new(api.Override) },
	func() any { return new(api.SetLimit) },
	func() any { return new(api.Rollback) },
	func() any { return new(api.Refund) },
	func() any { return new(api.SetPlan) },
}

// memberNames are the names of members that readStrictly knows: those of the types of newRequests.
var memberNames = []string{
	"requests", "limit", "key", "cost", "charges", "check", "id", "life", "wait", "held", "number",
	"for", "reason", "keep", "method", "host", "uri", "headers", "client", "count", "model", usageName, "attempts",
	"override", "remove", "name", "description", "seen", "dry_run", "version", "limits", "plan",
}

// usageName is the member that Read does not look into, since its format is that of a model's provider.
const usageName = "usage"

const leaseText = `{"held":[{"limit":"l","key":"k","number":1}]}`

// requestTexts are valid and invalid requests.
var requestTexts = []struct {
	text    string
	request int    // index of the type in newRequests
	wantErr string // part of the error; "" if the text is valid
}{
	{`{"requests":[{"limit":"login","key":"alice"}]}`, 0, ""},
	{" {\t\"requests\" :\r\n[ { \"key\" : \"\" , \"limit\" : \"l\" } , {\"limit\":\"l\"} ] } \n", 0, ""},
	{`{"requests":[{"limit":"l","key":"ключ","cost":2.50,"check":true,"id":"i","life":"1h"},{"limit":"l","check":false}]}`, 0, ""},
	{`{"requests":[{"charges":[{"limit":"a","key":"k","cost":0},{"limit":"b","cost":-0.1}],"check":true}]}`, 0, ""},
	{`{"requests":[{"limit":"a","charges":[{"key":"k"}]}]}`, 0, ""},
	{`{"requests":[]}`, 0, ""},
	{`{"requests":[{}]}`, 0, ""},
	{`{"requests":null}`, 0, ""},
	{`{"requests":[{"limit":null,"key":null,"cost":null,"charges":null,"check":null,"id":null}]}`, 0, ""},
	{`{"requests":[{"limit":"a","cost":"1.5"}]}`, 0, ""},
	{`{"requests":[{"limit":"a","cost":1e3},{"cost":-2.5E-7},{"cost":0e+1}]}`, 0, ""},
	{`{"requests":[{"limit":"a\u0062\n\"\\\/\b\f\r\t\u00e9\ud83d\ude00é😀"}]}`, 0, ""},
	{`{"r\u0065quests":[{"\u006bey":"\ufffd\u0000"}]}`, 0, ""},
	{`{"limit":"login","key":""}`, 1, ""},
	{`{"limit":"login","key":"k","keep":"10%"}`, 1, ""},
	{`{"charges":[{"limit":"login","key":"k","keep":"2.5","cost":3}],"id":"x"}`, 1, ""},
	{`{"limit":"login","key":"k","keep":10}`, 1, `keep: must be text, not a number`},
	{`{"keep":"10%","keep":"10%"}`, 1, `keep: stands twice`},
	{`{"limit":"login","key":"k","wait":"3s","id":"x"}`, 2, ""},
	{`{"method":"GET","host":"h","uri":"/a?b","headers":["A: b","A: c"],"client":"192.0.2.1"}`, 8, ""},
	{`{"method":"GET","uri":"/","headers":null,"client":null}`, 8, ""},
	{`{"uri":"/","uri":"/"}`, 8, `uri: stands twice`},
	{`{"headers":{"A":"b"}}`, 8, `headers: must be an array, not an object`},
	{`{"headers":[1]}`, 8, `headers: must be text, not a number`},
	{`{"url":"/"}`, 8, `body: has an unknown field "url"`},
	{`{"charges":[{"limit":"login","key":"k","cost":0}],"id":"x"}`, 3, ""},
	{leaseText, 4, ""},
	{`{"held":[]}`, 4, ""},
	{`{"limit":"login","key":"k"}`, 5, ""},
	{`{"limit":"login","key":"k","for":"1h","reason":"r"}`, 6, ""},
	{`{}`, 5, ""},
	{`{"name":"n","limit":"l","description":"","seen":7,"dry_run":true}`, 10, ""},
	{`{"name":"n","description":null,"seen":null}`, 10, ""},
	{`{"version":0,"limits":["a","b"],"seen":0}`, 11, ""},
	{`{"version":null,"limits":[]}`, 11, ""},
	{`{"seen":-1}`, 10, `seen: must be a whole number`},
	{`{"limits":[["a"]]}`, 11, `limits: must be text, not an array`},
	{`{"limit":"l","key":"k","attempts":20}`, 5, ""},
	{`{"attempts":-1}`, 5, `attempts: must be a whole number`},
	{`{"limit":"l","key":"k","cost":2,"reason":"r"}`, 12, ""},
	{`{"key":"k","plan":"p","for":"1h","remove":false,"reason":"r"}`, 13, ""},
	{`{"plan":"p","limit":"l"}`, 13, `body: has an unknown field "limit"`},

	// The usage of a model, of which only the end is found.
	{`{"limit":"l","key":"k","count":"tokens","model":"m","usage":{"Total": 1, "a":[{}, "}"] }}`, 1, ""},
	{`{"requests":[{"usage":{"a":1,"a":2}},{"usage":{"<":"\ud800"},"model":"m"}]}`, 0, ""},
	{`{"charges":[{"count":"money"}],"id":"x","usage":{}}`, 3, ""},
	{`{"usage":null,"count":null,"model":null}`, 1, ""},
	{`{"usage":{},"usage":{}}`, 1, `usage: stands twice`},
	{`{"usage":[{}]}`, 1, `usage: must be an object, not an array`},
	{`{"usage":"{}"}`, 1, `usage: must be an object, not text`},
	{`{"usage":{a:1}}`, 1, `body: is not JSON (at byte 10)`},
	{`{"charges":[{"usage":{}}]}`, 1, `unknown field "usage"`},

	// Names.
	{`{"requests":[{"limit":"a"}],"requests":[{"key":"b"}]}`, 0, `requests: stands twice in one object (at byte 29)`},
	{`{"requests":[{"limit":"a","limit":"b"}]}`, 0, `limit: stands twice in one object (at byte 27)`},
	{`{"requests":[{"key":"a","\u006bey":"b"}]}`, 0, `key: stands twice`},
	{`{"requests":[{"key":"a","key":null}]}`, 0, `key: stands twice`},
	{`{"requests":[{"charges":[{"key":"a","cost":1,"key":"b"}]}]}`, 0, `key: stands twice`},
	{`{"key":"a","KEY":"c","limit":"l"}`, 1, `body: has an unknown field "KEY"; names are in lower case (at byte 12)`},
	{`{"charges":[{"Key":"a"}]}`, 1, `body: has an unknown field "Key"; names`},
	{"{\"\u212aey\":\"a\"}", 1, `body: has an unknown field "\u212aey"`},
	{`{"requests":[{"limit":"a","kye":"k"}]}`, 0, `body: has an unknown field "kye" (at byte 27)`},
	{`{"held":[{"key":"k","key":"k"}]}`, 4, `key: stands twice`},
	{`{"limit":"login","key":"k","wait":"3s"}`, 1, `unknown field "wait"`},
	{"{\"k\xff\":1}", 1, `body: is not valid UTF-8 (at byte 4)`},

	// Text that is not Unicode, in each member that is text.
	{"{\"limit\":\"l\",\"key\":\"ab\xff\"}", 1, `key: is not valid UTF-8 (at byte 23)`},
	{"{\"limit\":\"l\",\"key\":\"\\n\xff\"}", 1, `key: is not valid UTF-8 (at byte 23)`},
	{`{"limit":"l","key":"\ud800"}`, 1, `key: is not valid Unicode: \ud800 is half of a character (at byte 21)`},
	{`{"limit":"l","key":"\ud800\u0041"}`, 1, `key: is not valid Unicode: \ud800 is half`},
	{`{"limit":"l","key":"\uDC00\uD800"}`, 1, `key: is not valid Unicode: \uDC00 is half`},
	{`{"limit":"l","key":"\ud800\n"}`, 1, `key: is not valid Unicode: \ud800 is half`},
	{`{"limit":"\ud800"}`, 1, `limit: is not valid Unicode`},
	{`{"id":"\ud800"}`, 1, `id: is not valid Unicode`},
	{`{"life":"\ud800"}`, 1, `life: is not valid Unicode`},
	{`{"wait":"\ud800"}`, 2, `wait: is not valid Unicode`},
	{`{"charges":[{"key":"\ud800"}]}`, 3, `key: is not valid Unicode`},
	{`{"id":"\ud800"}`, 3, `id: is not valid Unicode`},
	{`{"held":[{"key":"\ud800"}]}`, 4, `key: is not valid Unicode`},
	{`{"held":[{"limit":"\ud800"}]}`, 4, `limit: is not valid Unicode`},
	{`{"key":"\ud800"}`, 5, `key: is not valid Unicode`},
	{"{\"reason\":\"\xc3\"}", 6, `reason: is not valid UTF-8`},
	{"{\"for\":\"\xed\xa0\x80\"}", 6, `for: is not valid UTF-8 (at byte 9)`},

	// Other kinds.
	{`{"limit":"l","key":7}`, 1, `key: must be text, not a number (at byte 20)`},
	{`{"limit":{"key":"k"}}`, 1, `limit: must be text, not an object`},
	{`{"requests":[{"charges":{"key":"k"}}]}`, 0, `charges: must be an array, not an object`},
	{`{"requests":[null]}`, 0, `requests: must be an object, not null`},
	{`{"charges":[7]}`, 1, `charges: must be an object, not a number`},
	{`{"check":"true"}`, 1, `check: must be true or false, not text`},
	{`{"cost":true}`, 1, `cost: must be a number, not true or false`},
	{`{"cost":"1x"}`, 1, `cost: "1x" is not a number (at byte 9)`},
	{`{"cost":""}`, 1, `cost: "" is not a number`},
	{`{"held":[{"number":-1}]}`, 4, `number: must be a whole number`},
	{`{"held":[{"number":1.0}]}`, 4, `number: must be a whole number`},
	{`{"held":[{"number":9223372036854775808}]}`, 4, `number: must be a whole number`},
	{`[]`, 1, `body: must be an object, not an array`},
	{`null`, 1, `body: must be an object, not null`},

	// No JSON.
	{``, 1, `body: is empty`},
	{" \n", 1, `body: is empty`},
	{`{`, 1, `body: ends in the middle (after byte 1)`},
	{`{"limit":"login","key":"al`, 1, `body: ends in the middle (after byte 26)`},
	{`{"limit":"login","key":"al\`, 1, `body: ends in the middle (after byte 27)`},
	{`{"limit":"login","key":"al\u00`, 1, `body: ends in the middle (after byte 30)`},
	{`{"limit":"login","key":"al\ud800\u`, 1, `body: ends in the middle`},
	{`{"limit":"login","key"`, 1, `body: ends in the middle`},
	{`{"limit":"login","key":`, 1, `body: ends in the middle`},
	{`{"limit":"login","key":"k"`, 1, `body: ends in the middle`},
	{`{"limit":"login",`, 1, `body: ends in the middle`},
	{`{"limit":"login","check":tr`, 1, `body: ends in the middle`},
	{`{"limit":"login","cost":1`, 1, `body: ends in the middle`},
	{`{"limit":"login","cost":-`, 1, `body: ends in the middle`},
	{`{"requests":[{"limit":"a"}]`, 0, `body: ends in the middle`},
	{`{"requests":[{"limit":"a"},`, 0, `body: ends in the middle`},
	{`{"requests":[{"limit":"a"}]} {}`, 0, `body: something follows the JSON value (at byte 30)`},
	{"{\"requests\":[{\"limit\":\"a\"}]}\x00", 0, `body: something follows the JSON value (at byte 29)`},
	{`{"requests":[{"limit":"a"},]}`, 0, `body: is not JSON (at byte 28): found "]", want an object`},
	{`{"requests":[{"limit":"a",}]}`, 0, `body: is not JSON (at byte 27): found "}", want the name of a member`},
	{`{"requests" [{"limit":"a"}]}`, 0, `body: is not JSON (at byte 13): found "[", want ":"`},
	{`{"limit":"a" "key":"k"}`, 1, `body: is not JSON (at byte 14): found "\"", want "," or "}"`},
	{`{limit:"a"}`, 1, `body: is not JSON (at byte 2): found "l", want the name`},
	{`{'limit':'a'}`, 1, `body: is not JSON (at byte 2): found "'"`},
	{`{"cost":NaN}`, 1, `body: is not JSON (at byte 9): found "N", want a number`},
	{`{"cost":01}`, 1, `body: is not JSON (at byte 10): found "1", want a number without leading zeros`},
	{`{"cost":1.}`, 1, `body: is not JSON (at byte 11): found "}", want a digit`},
	{`{"cost":.5}`, 1, `body: is not JSON (at byte 9)`},
	{`{"cost":-}`, 1, `body: is not JSON`},
	{`{"cost":+1}`, 1, `body: is not JSON`},
	{`{"cost":1e}`, 1, `body: is not JSON`},
	{`{"check":trues}`, 1, `body: is not JSON (at byte 14): found "s"`},
	{`{"key":"\x41"}`, 1, `body: is not JSON (at byte 10): found "x", want an escape`},
	{`{"key":"\u00g0"}`, 1, `body: is not JSON (at byte 13): found "g"`},
	{"{\"key\":\"a\nb\"}", 1, `body: is not JSON (at byte 10): found "\n", want text without control characters`},
	{"\ufeff{}", 1, `body: is not JSON (at byte 1): found "\ufeff"`},
}

// TestRequestsAreReadStrictly compares Read with readStrictly, and checks the errors.
func TestRequestsAreReadStrictly(t *testing.T) {
	t.Parallel()
	for _, tt := range requestTexts {
		err := api.Read([]byte(tt.text), newRequests[tt.request]())
		switch valid := compareStrict(t, []byte(tt.text), newRequests[tt.request]); {
		case valid != (tt.wantErr == ""):
			t.Errorf("%q: got valid %v, %v, want %v", tt.text, valid, err, !valid)
		case !valid && !strings.HasPrefix(err.Error(), tt.wantErr) && !strings.Contains(err.Error(), ": "+tt.wantErr) &&
			!strings.Contains(err.Error(), "an "+tt.wantErr):
			t.Errorf("%q: %v, want %s", tt.text, err, tt.wantErr)
		}
	}
}

// TestObservedHeadersAreReadStrictly checks that headers may have any name, and which headers are errors.
func TestObservedHeadersAreReadStrictly(t *testing.T) {
	t.Parallel()
	var members strings.Builder
	for i := range api.MaxTexts + 1 {
		fmt.Fprintf(&members, `"%d":"",`, i)
	}
	for text, wantErr := range map[string]string{
		`{"limit":"l","key":"k","status":429,"headers":{"A":"b","a":"c"}}`: "",
		`{"headers":null}`:                             "headers: must be an object, not null",
		`{"headers":{"A":1}}`:                          "A: must be text, not a number",
		`{"headers":{"A":"b","A":"c"}}`:                "A: stands twice",
		`{"headers":{` + members.String() + `"b":""}}`: "is one of more than 1000",
	} {
		var o api.Observe
		err := api.Read([]byte(text), &o)
		if got := fmt.Sprint(err); (err == nil) != (wantErr == "") || err != nil && !strings.Contains(got, wantErr) {
			t.Errorf("%.80s: got %+v, %v, want the error %q", text, o, err, wantErr)
		}
		if err == nil && (len(o.Headers) != 2 || o.Headers["a"] != "c" || o.Status != 429 || o.NoKey) {
			t.Errorf("%s: got %+v, want 2 headers and the status 429", text, o)
		}
	}
}

// TestReadOfACutOffText checks the errors about each valid text, cut off after each of its bytes.
func TestReadOfACutOffText(t *testing.T) {
	t.Parallel()
	for _, tt := range requestTexts {
		if tt.wantErr != "" {
			continue
		}
		text := strings.TrimRight(tt.text, " \n")
		for i := 1; i < len(text); i++ {
			err := api.Read([]byte(text[:i]), newRequests[tt.request]())
			if err == nil || !strings.Contains(err.Error(), "ends in the middle") &&
				!strings.Contains(err.Error(), "empty") && !strings.Contains(err.Error(), "UTF-8") &&
				!strings.HasSuffix(err.Error(), "unexpected EOF") { // encoding/json's words for the end within a usage
				t.Errorf("%q: got %v, want that it ends in the middle", text[:i], err)
			}
		}
	}
}

// TestOversizedBodiesAreRefusedEarly checks that 4 MiB of the shortest elements are refused after at most 16 MiB of
// memory, and that as many elements as are allowed are read.
func TestOversizedBodiesAreRefusedEarly(t *testing.T) {
	const maxAlloc = 16 << 20
	for _, tt := range []struct {
		prefix, element, suffix string
		request                 int
		field                   string
	}{
		{`{"requests":[`, `{},`, `{}]}`, 0, "requests"},
		{`{"requests":[{"charges":[`, `{},`, `{}]}]}`, 0, "charges"},
		{`{"requests":[`, `{"charges":[{},{},{},{},{},{},{},{},{},{}]},`, `{}]}`, 0, "requests"},
		{`{"charges":[`, `{},`, `{}]}`, 1, "charges"},
		{`{"charges":[`, `{},`, `{}]}`, 2, "charges"},
		{`{"charges":[`, `{},`, `{}]}`, 3, "charges"},
		{`{"held":[`, `{},`, `{}]}`, 4, "held"},
		{`{"headers":[`, `"",`, `""]}`, 8, "headers"},
		{`{"limits":[`, `"",`, `""]}`, 11, "limits"},
	} {
		bound := api.MaxCharges
		if strings.Contains(tt.element, `"",`) {
			bound = api.MaxTexts
		}
		text := []byte(tt.prefix + strings.Repeat(tt.element, 4<<20/len(tt.element)) + tt.suffix)
		var err error
		var memBefore, memAfter runtime.MemStats
		runtime.ReadMemStats(&memBefore)
		err = api.Read(text, newRequests[tt.request]())
		runtime.ReadMemStats(&memAfter)
		allocated := memAfter.TotalAlloc - memBefore.TotalAlloc
		var invalid *law.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != tt.field ||
			!strings.Contains(invalid.Problem, strconv.Itoa(bound)) {
			t.Errorf("%s: got %v, want an error of %s that names %d", tt.prefix, err, tt.field, bound)
		}
		if allocated > maxAlloc {
			t.Errorf("%s: %d bytes were allocated, want at most %d", tt.prefix, allocated, maxAlloc)
		}
		n := bound / max(1, strings.Count(tt.element, "{}"))
		text = []byte(tt.prefix + strings.TrimSuffix(strings.Repeat(tt.element, n), ",") + tt.suffix[2:])
		if err := api.Read(text, newRequests[tt.request]()); err != nil {
			t.Errorf("%s: %d elements: %v, want no error", tt.prefix, n, err)
		}
	}
}

// TestALongTextIsRefusedBeforeItTakesMemory checks that a text or number of 4 MiB is refused after at most 64 KiB of
// memory. Quoted copies of it in messages once took a hundred times its length.
func TestALongTextIsRefusedBeforeItTakesMemory(t *testing.T) {
	const size, maxAlloc = 4 << 20, 64 << 10
	repeat := func(s string) string { return strings.Repeat(s, size/len(s)) }
	for _, tt := range []struct{ prefix, unit, suffix, field, wantErr string }{
		{`{"limit":"`, `<`, `","key":"k"}`, "limit", "longer"},
		{`{"limit":"`, `\u0001`, `","key":"k"}`, "limit", "longer"},
		{`{"limit":"`, "\u00e9", `","key":"k"}`, "limit", "longer"},
		{`{"key":"`, `\"`, `"}`, "key", "longer"},
		{`{"id":"`, `x`, `"}`, "id", "longer"},
		{`{"life":"`, "\x7f", `"}`, "life", "longer"},
		{`{"charges":[{"limit":"`, `x`, `"}]}`, "limit", "longer"},
		{`{"cost":`, `9`, `}`, "cost", "longer"},
		{`{"cost":0.`, `0`, `1}`, "cost", "longer"},
		{`{"cost":1e`, `9`, `}`, "cost", "longer"},
		{`{"cost":"`, `9`, `"}`, "cost", "longer"},
		{`{"`, `x`, `":1}`, "body", "longer"},
		{`{"key"`, `x`, ``, "body", "not JSON"},
		{`{"key":"k"}`, `x`, ``, "body", "follows"},
		{`{"key":"k" `, ` `, ``, "body", "ends in the middle"},
	} {
		text := []byte(tt.prefix + repeat(tt.unit) + tt.suffix)
		var memBefore, memAfter runtime.MemStats
		runtime.ReadMemStats(&memBefore)
		err := api.Read(text, new(api.Request))
		runtime.ReadMemStats(&memAfter)
		var invalid *law.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != tt.field || !strings.Contains(invalid.Problem, tt.wantErr) ||
			len(invalid.Problem) > 200 {
			t.Errorf("%s: got %.300s, want an error of %s with %q", tt.prefix, fmt.Sprint(err), tt.field, tt.wantErr)
		}
		if allocated := memAfter.TotalAlloc - memBefore.TotalAlloc; allocated > maxAlloc {
			t.Errorf("%s%.6s: %d bytes were allocated, want at most %d", tt.prefix, tt.unit, allocated, maxAlloc)
		}
	}
	for _, text := range []string{
		`{"key":"` + strings.Repeat("k", 4096) + `"}`,
		`{"key":"` + strings.Repeat(`\u0001`, 4096) + `"}`, `{"cost":0.` + strings.Repeat("0", 4094) + `}`,
	} {
		if err := api.Read([]byte(text), new(api.Request)); err != nil {
			t.Errorf("%.20s: %v, want no error", text, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, tt := range requestTexts {
		f.Add([]byte(tt.text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, newValue := range newRequests {
			compareStrict(t, data, newValue)
		}
		// A batch that is written must be read as the same batch.
		var b, reread api.Batch
		if api.Read(data, &b) != nil {
			return
		}
		for i := range b.Requests {
			r := &b.Requests[i]
			r.NoKey = false // a key is always written
			if r.Usage != nil {
				r.Usage = compact(t, r.Usage) // encoding/json writes it without spaces, and escapes HTML
			}
			for k := range r.Charges {
				r.Charges[k].NoKey = false
			}
		}
		text, err := json.Marshal(&b)
		if err != nil {
			t.Fatal(err)
		}
		if err := api.Read(text, &reread); err != nil || !equal(&reread, &b) {
			t.Errorf("%+v was written %s and read %+v, %v", b, text, reread, err)
		}
	})
}

// compact returns JSON as encoding/json writes it.
func compact(t *testing.T, text json.RawMessage) json.RawMessage {
	t.Helper()
	out, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
