package rest

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/edge"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/law"
)

// parseQuery parses the query of a URL into a query of package api. The tags of its fields have the name of the
// parameter, and the range of a number. Fields of missing parameters do not change. Flags beside a field X, NoX and
// HasX, say whether its parameter is missing or there. Texts are names of limits, or keys.
func parseQuery(raw string, query any) error {
	q := reflect.ValueOf(query).Elem()
	var names []string
	fields := map[string]reflect.StructField{}
	for _, f := range reflect.VisibleFields(q.Type()) {
		name := f.Tag.Get("query")
		if name == "" {
			continue
		}
		fields[name] = f
		if f.Type.Kind() == reflect.Slice {
			name += "..."
		}
		names = append(names, name)
		if no := q.FieldByName("No" + f.Name); no.IsValid() {
			no.SetBool(true)
		}
	}
	values, err := edge.ParseQuery(raw, names...)
	if err != nil {
		return err
	}
	for name, texts := range values {
		f := fields[name]
		if err := parseParameter(name, texts, f.Tag.Get("range"), q.FieldByIndex(f.Index)); err != nil {
			return err
		}
		if no := q.FieldByName("No" + f.Name); no.IsValid() {
			no.SetBool(false)
		}
		if has := q.FieldByName("Has" + f.Name); has.IsValid() {
			has.SetBool(true)
		}
	}
	return nil
}

// parseParameter parses a parameter into a field. An int has a range such as "1-100"; an int64 is a version.
func parseParameter(name string, texts []string, valueRange string, to reflect.Value) (err error) {
	switch to.Kind() {
	case reflect.Bool:
		value, err := strconv.ParseBool(texts[0])
		if err != nil {
			return headgate.Invalid(name, "%+.40q is not true or false", texts[0])
		}
		to.SetBool(value)
	case reflect.Int:
		var minValue, maxValue int64
		_, _ = fmt.Sscanf(valueRange, "%d-%d", &minValue, &maxValue) // a constant of the source
		n, err := strconv.ParseInt(texts[0], 10, 64)
		if err != nil || n < minValue || n > maxValue {
			return headgate.Invalid(name, "%+.40q is not a number from %d to %d", texts[0], minValue, maxValue)
		}
		to.SetInt(n)
	case reflect.Int64:
		n, err := strconv.ParseInt(texts[0], 10, 64)
		if err != nil || n < 0 {
			return headgate.Invalid(name, "%+.40q is not the number of a version", texts[0])
		}
		to.SetInt(n)
	case reflect.Slice:
		for _, text := range texts {
			if err := validateText(name, text); err != nil {
				return err
			}
		}
		to.Set(reflect.ValueOf(texts))
	default:
		to.SetString(texts[0])
		return validateText(name, texts[0])
	}
	return nil
}

// validateText checks a parameter that is the name of a limit or a key.
func validateText(name, text string) error {
	c := law.Cell{Limit: text}
	if strings.HasSuffix(name, "key") {
		c = law.Cell{Key: text}
	}
	return service.InField(name, c.ValidText())
}
