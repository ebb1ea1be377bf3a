// Package docs has the files of the documentation that programs print.
package docs

import _ "embed"

// ConfigSchema is the JSON Schema (draft 2020-12) of the config file, for editors and checks in CI.
//
//go:embed config.schema.json
var ConfigSchema []byte
