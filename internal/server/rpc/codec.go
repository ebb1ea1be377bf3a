package rpc

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/headgate/headgate/internal/server/api"
)

// maxObjects is how many objects, messages and elements of lists, a message may contain at all depths: five for each
// charge or descriptor that a request may have, such as a descriptor with three entries and its hits.
//
// They are counted before the message is decoded, because an object takes two bytes on the wire and about 100 in
// memory. Without a bound, 4 MiB of empty charges take 208 MiB when decoded, and allocate 276 MiB in total; 4 MiB of
// empty requests of a batch take 240 and 308 MiB. The bound keeps this to about 6 MiB beside the message.
const maxObjects = 5 * api.MaxCharges

// maxDepth is how deep messages may be nested.
const maxDepth = 32

// boundedCodec is the codec of the wire format with a bound: it rejects a message with more than maxObjects objects.
type boundedCodec struct{ encoding.CodecV2 }

func newCodec() encoding.CodecV2 { return boundedCodec{encoding.GetCodecV2(protocodec.Name)} }

// Unmarshal implements encoding.CodecV2.
func (c boundedCodec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(proto.Message)
	if !ok || data.Len() <= 2*maxObjects { // an object has at least a tag and a length
		return c.CodecV2.Unmarshal(data, v)
	}
	buffer := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buffer.Free()
	budget := maxObjects
	if err := countObjects(buffer.ReadOnlyData(), m.ProtoReflect().Descriptor(), &budget, 0); err != nil {
		return err
	}
	return c.CodecV2.Unmarshal(mem.BufferSlice{buffer}, v)
}

// countObjects subtracts the objects of a message from budget. It returns an error if the budget is exceeded, and no
// error if the message is malformed, which the decoder reports.
func countObjects(b []byte, d protoreflect.MessageDescriptor, budget *int, nested int) error {
	if nested > maxDepth {
		return fmt.Errorf("messages are nested more than %d deep", maxDepth)
	}
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil
		}
		b = b[n:]
		size := protowire.ConsumeFieldValue(number, kind, b)
		if size < 0 {
			return nil
		}
		f := d.Fields().ByNumber(number)
		if f != nil && kind == protowire.BytesType && (f.IsList() || f.Message() != nil) {
			if *budget--; *budget < 0 {
				return fmt.Errorf("the message contains more than %d objects", maxObjects)
			}
			if f.Message() != nil {
				inner, _ := protowire.ConsumeBytes(b)
				if err := countObjects(inner, f.Message(), budget, nested+1); err != nil {
					return err
				}
			}
		}
		b = b[size:]
	}
	return nil
}
