//go:build ignore

// This program writes the messages of Envoy that Headgate reads and writes: `go generate ./internal/server/envoy/envoypb`.
//
// It takes the descriptions out of go-control-plane, leaves out what is not needed, and gives the rest to protoc-gen-go.
package main

import (
	"bytes"
	"fmt"
	"go/format"
	"log"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"

	_ "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

// files are what is needed of which file, those first on which others depend. Fields go with their types.
var files = []struct {
	name string
	keep []string // messages and enums; nil: all
}{
	{"google/protobuf/any.proto", nil},
	{"google/protobuf/duration.proto", nil},
	{"google/protobuf/struct.proto", nil},
	{"google/protobuf/timestamp.proto", nil},
	{"google/protobuf/wrappers.proto", nil},
	{"google/rpc/status.proto", nil},
	{"envoy/type/v3/ratelimit_unit.proto", nil},
	{"envoy/config/core/v3/base.proto", []string{"HeaderValue", "Node", "ControlPlane"}},
	{"envoy/extensions/common/ratelimit/v3/ratelimit.proto", []string{"RateLimitDescriptor"}},
	{"envoy/service/ratelimit/v3/rls.proto", nil},
	{"envoy/service/discovery/v3/discovery.proto", []string{"DiscoveryRequest", "DiscoveryResponse"}},
}

const here = "github.com/headgate/headgate/internal/server/envoy/envoypb"

func main() {
	request := &pluginpb.CodeGeneratorRequest{}
	kept := map[string]bool{} // names of types, as fields have them
	var parameters []string
	for _, f := range files {
		d, err := protoregistry.GlobalFiles.FindFileByPath(f.name)
		must(err)
		file := protodesc.ToFileDescriptorProto(d)
		keep := func(name string) bool { return f.keep == nil || slices.Contains(f.keep, name) }
		file.MessageType = slices.DeleteFunc(file.MessageType, func(m *descriptorpb.DescriptorProto) bool { return !keep(m.GetName()) })
		file.EnumType = slices.DeleteFunc(file.EnumType, func(e *descriptorpb.EnumDescriptorProto) bool { return !keep(e.GetName()) })
		for _, e := range file.EnumType {
			kept["."+file.GetPackage()+"."+e.GetName()] = true
			e.Options = nil
		}
		for _, m := range file.MessageType {
			learn(kept, "."+file.GetPackage(), m)
		}
		if strings.HasPrefix(f.name, "envoy/") {
			used := map[string]bool{}
			for _, m := range file.MessageType {
				trim(kept, used, m)
			}
			file.Options, file.SourceCodeInfo = nil, nil
			file.Dependency = slices.DeleteFunc(file.Dependency, func(dep string) bool {
				on, err := protoregistry.GlobalFiles.FindFileByPath(dep)
				must(err)
				of := "." + string(on.Package()) + "."
				for name := range used {
					top, _, _ := strings.Cut(strings.TrimPrefix(name, of), ".")
					if strings.HasPrefix(name, of) && (on.Messages().ByName(protoreflect.Name(top)) != nil || on.Enums().ByName(protoreflect.Name(top)) != nil) {
						return false
					}
				}
				return true
			})
			file.PublicDependency, file.WeakDependency = nil, nil
			request.FileToGenerate = append(request.FileToGenerate, f.name)
			parameters = append(parameters, "M"+f.name+"="+here)
		}
		request.ProtoFile = append(request.ProtoFile, file)
	}
	request.Parameter = proto.String(strings.Join(append(parameters, "paths=source_relative"), ","))
	in, err := proto.Marshal(request)
	must(err)
	generator := exec.Command("go", "run", "google.golang.org/protobuf/cmd/protoc-gen-go")
	generator.Stdin, generator.Stderr = bytes.NewReader(in), os.Stderr
	out, err := generator.Output()
	must(err)
	response := &pluginpb.CodeGeneratorResponse{}
	must(proto.Unmarshal(out, response))
	if response.Error != nil {
		log.Fatal(response.GetError())
	}
	for _, f := range response.File {
		text := f.GetContent()
		for was, is := range map[string]string{
			"protoimpl.DescBuilder{":      "protoimpl.DescBuilder{\nFileRegistry: Files,",
			"protoimpl.TypeBuilder{":      "protoimpl.TypeBuilder{\nTypeRegistry: types,",
			"// 	protoc        (unknown)": "// 	by gen/main.go, out of github.com/envoyproxy/go-control-plane",
		} {
			text = strings.Replace(text, was, is, 1)
		}
		tidy, err := format.Source([]byte(text))
		must(err)
		must(os.WriteFile(path.Base(f.GetName()), tidy, 0o644))
		fmt.Println(path.Base(f.GetName()), len(tidy), "bytes")
	}
}

// learn notes the names of a message and of what is in it.
func learn(kept map[string]bool, in string, m *descriptorpb.DescriptorProto) {
	name := in + "." + m.GetName()
	kept[name] = true
	for _, e := range m.EnumType {
		kept[name+"."+e.GetName()] = true
	}
	for _, n := range m.NestedType {
		lost := func(f *descriptorpb.FieldDescriptorProto) bool {
			return f.GetTypeName() != "" && !kept[f.GetTypeName()]
		}
		if n.Options.GetMapEntry() && slices.ContainsFunc(n.Field, lost) {
			continue
		}
		learn(kept, name, n)
	}
}

// trim takes the options out of a message, and the fields whose types are not there. used gets those that are.
func trim(kept, used map[string]bool, m *descriptorpb.DescriptorProto) {
	m.Options = keepMapEntry(m.Options)
	fields := m.Field[:0]
	for _, f := range m.Field {
		if name := f.GetTypeName(); name != "" {
			if !kept[name] {
				continue
			}
			used[name] = true
		}
		if f.Options.GetDeprecated() {
			f.Options = &descriptorpb.FieldOptions{Deprecated: proto.Bool(true)}
		} else {
			f.Options = nil
		}
		fields = append(fields, f)
	}
	m.Field = fields
	for i := len(m.OneofDecl) - 1; i >= 0; i-- {
		m.OneofDecl[i].Options = nil
		if !slices.ContainsFunc(m.Field, func(f *descriptorpb.FieldDescriptorProto) bool {
			return f.OneofIndex != nil && int(f.GetOneofIndex()) == i
		}) {
			m.OneofDecl = slices.Delete(m.OneofDecl, i, i+1)
			for _, f := range m.Field {
				if f.OneofIndex != nil && int(f.GetOneofIndex()) > i {
					*f.OneofIndex--
				}
			}
		}
	}
	for _, e := range m.EnumType {
		e.Options = nil
	}
	m.NestedType = slices.DeleteFunc(m.NestedType, func(n *descriptorpb.DescriptorProto) bool {
		return n.Options.GetMapEntry() && !slices.ContainsFunc(m.Field, func(f *descriptorpb.FieldDescriptorProto) bool {
			return strings.HasSuffix(f.GetTypeName(), "."+m.GetName()+"."+n.GetName())
		})
	})
	for _, n := range m.NestedType {
		trim(kept, used, n)
	}
}

func keepMapEntry(o *descriptorpb.MessageOptions) *descriptorpb.MessageOptions {
	if o.GetMapEntry() {
		return &descriptorpb.MessageOptions{MapEntry: proto.Bool(true)}
	}
	return nil
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
