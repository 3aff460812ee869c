// The codecs of codec.h on a device - the host or a GPU - in the order of a stream: nothing here
// waits, and all pointers are to the device's memory. Every device gives the same bits (payloads of
// NaN excepted). Calls that take a residue are not concurrent with others of the same residue.
#pragma once

#include <cstdint>

#include "comm/wire/codec.h"
#include "zero/base/stream.h"

namespace zero::comm::wire {

struct DeviceCodec {
  void (*encode)(const Codec& codec, const Elements& from, void* encoded, Stream stream);
  void (*decode)(const Codec& codec, const void* encoded, std::int64_t count, void* to, DType dtype,
                 Stream stream);
  void (*decode_sum)(const Codec& codec, const Sources& sources, const ReduceGroups& groups,
                     std::int64_t count, void* to, DType dtype, Stream stream);
};

// On the calling thread, at once.
extern const DeviceCodec host_codec;
// On the current GPU. Throws TopologyError in a program that does not link ZeroCore::cuda.
const DeviceCodec& cuda_codec();

}  // namespace zero::comm::wire
