#include "comm/wire/device_codec.h"

namespace zero::comm::wire {
namespace {

class HostCodec final : public DeviceCodec {
 public:
  void encode(const Codec& codec, const Elements& from, void* encoded, Stream) override {
    wire::encode(codec, from, encoded);
  }
  void decode(const Codec& codec, const void* encoded, std::int64_t count, void* to, DType dtype,
              Stream) override {
    wire::decode(codec, encoded, count, to, dtype);
  }
  void decode_sum(const Codec& codec, const Sources& sources, const ReduceGroups& groups,
                  std::int64_t count, void* to, DType dtype, Stream) override {
    wire::decode_sum(codec, sources, groups, count, to, dtype);
  }
};

}  // namespace

std::unique_ptr<DeviceCodec> create_host_codec() {
  return std::make_unique<HostCodec>();
}

}  // namespace zero::comm::wire
