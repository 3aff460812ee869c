#include "comm/wire/device_codec.h"
#include "zero/base/error.h"

namespace zero::comm::wire {

const DeviceCodec& cuda_codec() {
  throw TopologyError("the codecs of wire formats for GPUs are missing: link ZeroCore::cuda");
}

}  // namespace zero::comm::wire
