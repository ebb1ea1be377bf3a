package api

import _ "embed"

// OpenAPI describes the HTTP interface: OpenAPI 3.1, as YAML. A server serves it at /openapi.yaml.
//
//go:embed openapi.yaml
var OpenAPI []byte
