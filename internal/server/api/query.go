package api

import (
	"net/url"
	"reflect"
	"strconv"
)

// Values returns the parameters of a query, such as an [AuditQuery], by the tags of its fields. It leaves out fields
// that are zero, unless a flag beside the field, HasX or NoX for X, says that the zero is meant.
func Values(query any) url.Values {
	q := reflect.Indirect(reflect.ValueOf(query))
	out := url.Values{}
	for _, f := range reflect.VisibleFields(q.Type()) {
		name, v := f.Tag.Get("query"), q.FieldByIndex(f.Index)
		no, has := q.FieldByName("No"+f.Name), q.FieldByName("Has"+f.Name)
		switch {
		case name == "" || v.IsZero() && (!no.IsValid() || no.Bool()) && (!has.IsValid() || !has.Bool()):
		case v.Kind() == reflect.String:
			out.Set(name, v.String())
		case v.Kind() == reflect.Bool:
			out.Set(name, "true")
		case v.CanInt():
			out.Set(name, strconv.FormatInt(v.Int(), 10))
		default:
			out[name] = v.Interface().([]string)
		}
	}
	return out
}
