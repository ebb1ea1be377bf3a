package metrics

import (
	"math"
	"sort"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// A histogram has native buckets of schema 3: eight for each doubling, so a value is known to 9 %. They reach from
// 2^lowest to 2^highest seconds, 60 ns to 64 s. What is shorter counts as zero, what is longer in the last bucket.
//
// The library's own native histogram takes four times as long as its classic one to observe a value; this one adds
// to two numbers. Its classic buckets end where native buckets end, so they need no counts of their own.
const (
	schema  = 3
	octave  = 1 << schema
	lowest  = -24
	highest = 6
	buckets = (highest - lowest) * octave
)

// fractions are the ends of the buckets from 0.5 to 1.
var fractions = func() (list [octave]float64) {
	for i := range list {
		list[i] = math.Exp2(float64(i)/octave - 1)
	}
	return list
}()

// classic are the ends of the classic buckets, as powers of two of a second.
var classic = []int{-20, -18, -16, -14, -13, -12, -11, -10, -9, -8, -7, -6, -5, -4, -3, -2, -1, 0, 2}

// histogram counts durations. It is safe for concurrent use.
type histogram struct {
	sum    atomic.Int64 // nanoseconds
	counts [1 + buckets]atomic.Uint64
}

func (h *histogram) observe(d time.Duration) {
	h.sum.Add(int64(d))
	h.counts[bucketOf(d)].Add(1)
}

// bucketOf returns the place of a duration in counts; 0 is that of what counts as zero.
func bucketOf(d time.Duration) int {
	fraction, exp := math.Frexp(d.Seconds())
	if d <= 0 || exp <= lowest {
		return 0
	}
	i := (exp - 1 - lowest) * octave
	for k := 0; k < octave && fraction > fractions[k]; k++ {
		i++
	}
	return min(i, buckets)
}

// timed is a histogram at the time of a scrape.
type timed struct {
	of     *histogram
	desc   *prometheus.Desc
	labels []*dto.LabelPair
	since  time.Time
}

// Desc implements prometheus.Metric.
func (t *timed) Desc() *prometheus.Desc { return t.desc }

// Write implements prometheus.Metric.
func (t *timed) Write(to *dto.Metric) error {
	sum := t.of.sum.Load()
	var counts [1 + buckets]uint64
	total := uint64(0)
	below := make([]uint64, len(classic))
	for i := range counts {
		counts[i] = t.of.counts[i].Load()
		total += counts[i]
		// A classic bucket ends with the native one that ends at the same power of two.
		end := lowest + i/octave
		if k := sort.SearchInts(classic, end); i%octave == 0 && k < len(classic) && classic[k] == end {
			below[k] = total
		}
	}
	h := &dto.Histogram{
		SampleCount: &total, SampleSum: new(time.Duration(sum).Seconds()), CreatedTimestamp: timestamppb.New(t.since),
		Schema: new(int32(schema)), ZeroThreshold: new(math.Exp2(lowest)), ZeroCount: &counts[0],
	}
	for k, power := range classic {
		h.Bucket = append(h.Bucket, &dto.Bucket{UpperBound: new(math.Exp2(float64(power))), CumulativeCount: &below[k]})
	}
	next, last := math.MinInt32, int64(0) // the bucket after the last one in a span, and its count
	for i := 1; i <= buckets; i++ {
		if counts[i] == 0 {
			continue
		}
		at := i + lowest*octave
		if at != next {
			offset := at
			if len(h.PositiveSpan) > 0 {
				offset = at - next
			}
			h.PositiveSpan = append(h.PositiveSpan, &dto.BucketSpan{Offset: new(int32(offset)), Length: new(uint32(0))})
		}
		*h.PositiveSpan[len(h.PositiveSpan)-1].Length++
		h.PositiveDelta = append(h.PositiveDelta, int64(counts[i])-last)
		next, last = at+1, int64(counts[i])
	}
	if len(h.PositiveSpan) == 0 { // a span of nothing marks a native histogram
		h.PositiveSpan = []*dto.BucketSpan{{Offset: new(int32(0)), Length: new(uint32(0))}}
	}
	to.Histogram, to.Label = h, t.labels
	return nil
}
