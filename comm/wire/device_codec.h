// The codecs of codec.h on a device - the host or a GPU - in the order of a stream: nothing here
// waits, and all pointers are to the device's memory. Every device gives the same bits (payloads of
// NaN excepted). Calls that take a residue are not concurrent with others of the same residue.
#pragma once

#include <cstdint>
#include <memory>

#include "comm/wire/codec.h"
#include "zero/base/stream.h"

namespace zero::comm::wire {

class DeviceCodec {
 public:
  virtual ~DeviceCodec() = default;

  virtual void encode(const Codec& codec, const Elements& from, void* encoded, Stream stream) = 0;
  virtual void decode(const Codec& codec, const void* encoded, std::int64_t count, void* to,
                      DType dtype, Stream stream) = 0;
  virtual void decode_sum(const Codec& codec, const Sources& sources, const ReduceGroups& groups,
                          std::int64_t count, void* to, DType dtype, Stream stream) = 0;
};

// On the calling thread, at once.
std::unique_ptr<DeviceCodec> create_host_codec();
// On the current GPU. Throws TopologyError in a program that does not link ZeroCore::cuda.
std::unique_ptr<DeviceCodec> create_cuda_codec();

}  // namespace zero::comm::wire
