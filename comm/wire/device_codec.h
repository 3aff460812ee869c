// Codecs of codec.h on a device (the host or a GPU), in the order of a stream: no call waits, and
// all pointers are to the device's memory. Every device gives bitwise identical results (payloads
// of NaN excepted).
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

// Runs on the calling thread, at once.
extern const DeviceCodec host_codec;
// Returns the codec of the current GPU. Throws TopologyError if the program does not link
// ZeroCore::cuda.
const DeviceCodec& cuda_codec();

}  // namespace zero::comm::wire
