package config

import (
	"encoding/json"
	"strings"

	"github.com/headgate/headgate/law"
)

// Schema returns the JSON Schema (draft 2020-12) of the config file, for editors and checks in CI.
func Schema() ([]byte, error) {
	type object = map[string]any
	scalar := []string{"string", "integer"}
	notation := object{
		"type": scalar, "maxLength": law.MaxName,
		"description": "a limit in one line, such as token-bucket 100/s burst 200",
		"examples":    []string{"token-bucket 100/s burst 200", "sliding-log 5/15m", "100 per minute", "unlimited"},
	}
	name := object{"pattern": "^[a-z][a-z0-9_.-]{0,63}$", "not": object{"const": "unlimited"}}
	properties := object{
		"allow_notations": object{
			"type": "boolean", "description": "accept limits in one line in requests; without a file they are",
		},
		"revision": object{
			"type": "integer", "minimum": 1,
			"description": "says at a start which of two files is newer; without it, the one that was applied last is",
		},
		"plans": object{
			"type": []string{"object", "null"}, "description": "sets of limits for the keys that have the plan",
			"propertyNames": name,
			"additionalProperties": object{
				"type": "object", "minProperties": 1, "propertyNames": name, "additionalProperties": notation,
			},
		},
		"limits": object{
			"type": []string{"object", "null"}, "description": "the named limits, applied to the store's catalogue",
			"propertyNames": name,
			"additionalProperties": object{"oneOf": []object{notation, {
				"type": "object", "required": []string{"limit"}, "additionalProperties": false,
				"properties": object{
					"limit":       notation,
					"description": object{"type": "string"},
				},
			}}},
		},
	}
	properties["rules"] = ruleSchema(name)
	for name, about := range map[string]string{
		"allow": "addresses and CIDRs that pass and are not charged, for all requests that rules decide about",
		"block": "addresses and CIDRs that are refused and not charged, for all requests that rules decide about",
	} {
		properties[name] = textOrList(about)
	}
	for _, s := range Settings {
		if s.NotFile {
			continue
		}
		about := strings.ReplaceAll(s.Help, "`", "")
		if s.Default != "" {
			about += "; default " + s.Default
		}
		p := object{"type": scalar, "description": about}
		if s.Switch {
			p["type"] = "boolean"
		}
		if s.Number {
			p["type"] = []string{"string", "number"}
		}
		if s.List {
			p = object{"description": about, "oneOf": []object{
				{"type": scalar}, {"type": "array", "items": object{"type": "string"}},
			}}
		}
		properties[s.Name] = p
	}
	text, err := json.MarshalIndent(object{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "The config file of headgate",
		"type": []string{"object", "null"}, "additionalProperties": false, "properties": properties,
	}, "", "  ")
	return append(text, '\n'), err
}
