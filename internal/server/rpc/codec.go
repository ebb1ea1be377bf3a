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

// maxObjects is how many messages and elements of lists a message may contain, at all depths: five for each charge
// or descriptor that a request may have, such as a descriptor with three entries and its hits.
//
// They are counted before the message is decoded, because an object takes two bytes on the wire and about 100 in
// memory. Decoded without a bound, 4 MiB of empty charges take 208 MiB, and allocate 276 MiB on the way; 4 MiB of empty
// requests of a batch take 240 and 308 MiB. With the bound the most is about 6 MiB beside the message.
const maxObjects = 5 * api.MaxCharges

// maxNested is how deep messages may be in each other.
const maxNested = 32

// bounded is the codec of the wire format, which does not decode a message with more than maxObjects objects.
type bounded struct{ encoding.CodecV2 }

func newCodec() encoding.CodecV2 { return bounded{encoding.GetCodecV2(protocodec.Name)} }

// Unmarshal implements encoding.CodecV2.
func (c bounded) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(proto.Message)
	if !ok || data.Len() <= 2*maxObjects { // an object has at least a tag and a length
		return c.CodecV2.Unmarshal(data, v)
	}
	whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer whole.Free()
	room := maxObjects
	if err := count(whole.ReadOnlyData(), m.ProtoReflect().Descriptor(), &room, 0); err != nil {
		return err
	}
	return c.CodecV2.Unmarshal(mem.BufferSlice{whole}, v)
}

// count takes the objects of a message from room. It returns an error when there is no room, and leaves it to the
// decoder to find that the message is wrong otherwise.
func count(b []byte, d protoreflect.MessageDescriptor, room *int, nested int) error {
	if nested > maxNested {
		return fmt.Errorf("messages are nested more than %d deep", maxNested)
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
			if *room--; *room < 0 {
				return fmt.Errorf("the message contains more than %d objects", maxObjects)
			}
			if f.Message() != nil {
				inner, _ := protowire.ConsumeBytes(b)
				if err := count(inner, f.Message(), room, nested+1); err != nil {
					return err
				}
			}
		}
		b = b[size:]
	}
	return nil
}
