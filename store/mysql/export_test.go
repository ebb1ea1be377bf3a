package mysql

// For the tests.
var (
	Classify     = func(err error) error { return classify("ask", err) }
	CheckVersion = checkVersion
)
