package mysql

import "github.com/headgate/headgate/law"

// For the tests.
var (
	Classify     = func(err error) error { return classify("ask", err) }
	CheckVersion = checkVersion
	CheckServer  = checkServer
	IsPlain      = func(ops []law.Op) bool { return newPlainPlan(ops) != nil }
)
