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

// parameters reads the query of a URL into a query of package api, by the tags of its fields: the name of the
// parameter, and the range of a number. What is not said stays as it is. Texts are names of limits, or keys.
func parameters(raw string, query any) error {
	q := reflect.ValueOf(query).Elem()
	var known []string
	named := map[string]reflect.StructField{}
	for _, f := range reflect.VisibleFields(q.Type()) {
		name := f.Tag.Get("query")
		if name == "" {
			continue
		}
		named[name] = f
		if f.Type.Kind() == reflect.Slice {
			name += "..."
		}
		known = append(known, name)
		if no := q.FieldByName("No" + f.Name); no.IsValid() {
			no.SetBool(true)
		}
	}
	values, err := edge.Query(raw, known...)
	if err != nil {
		return err
	}
	for name, texts := range values {
		f := named[name]
		if err := parameter(name, texts, f.Tag.Get("range"), q.FieldByIndex(f.Index)); err != nil {
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

// parameter reads a parameter. A number without a range is that of a version.
func parameter(name string, texts []string, within string, to reflect.Value) (err error) {
	switch to.Kind() {
	case reflect.Bool:
		is, err := strconv.ParseBool(texts[0])
		if err != nil {
			return headgate.Invalid(name, "%+.40q is not true or false", texts[0])
		}
		to.SetBool(is)
	case reflect.Int:
		var least, most int64
		_, _ = fmt.Sscanf(within, "%d-%d", &least, &most) // which stands in the source
		n, err := strconv.ParseInt(texts[0], 10, 64)
		if err != nil || n < least || n > most {
			return headgate.Invalid(name, "%+.40q is not a number from %d to %d", texts[0], least, most)
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
			if err := valid(name, text); err != nil {
				return err
			}
		}
		to.Set(reflect.ValueOf(texts))
	default:
		to.SetString(texts[0])
		return valid(name, texts[0])
	}
	return nil
}

// valid returns what is wrong with a parameter that names a limit or a key.
func valid(name, text string) error {
	c := law.Cell{Limit: text}
	if strings.HasSuffix(name, "key") {
		c = law.Cell{Key: text}
	}
	return service.InField(name, c.ValidText())
}
