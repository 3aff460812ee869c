#include "comm/call.h"

#include "zero/base/error.h"

namespace zero::comm {
namespace {

std::string arguments_text(const Call& call) {
  if (call.operation == Operation::barrier) return "";
  std::string text =
      " with " + std::to_string(call.count) + " " + name_of(call.dtype) + " elements";
  if (call.operation == Operation::broadcast) text += " from rank " + std::to_string(call.root);
  if (call.reduce_group > 0) text += " and reduce group " + std::to_string(call.reduce_group);
  return text;
}

std::string posted_text(const PostedCall& posted) {
  return "rank " + std::to_string(posted.world_rank) + " called " +
         describe_call(posted.call.operation, posted.subject, posted.sequence) +
         arguments_text(posted.call);
}

}  // namespace

std::uint64_t Call::packed() const {
  return static_cast<std::uint64_t>(operation) | static_cast<std::uint64_t>(dtype) << 8 |
         static_cast<std::uint64_t>(root & 0xffffff) << 16 |
         static_cast<std::uint64_t>(reduce_group & 0xffffff) << 40;
}

Call Call::unpack(std::uint64_t packed, std::int64_t count) {
  return {static_cast<Operation>(packed & 0xff), static_cast<DType>(packed >> 8 & 0xff), count,
          static_cast<int>(packed >> 16 & 0xffffff), static_cast<int>(packed >> 40 & 0xffffff)};
}

std::string describe_call(Operation operation, std::string_view subject, std::int64_t sequence) {
  std::string text = name_of(operation);
  if (!subject.empty()) text.append(" of ").append(subject);
  return text + " (call " + std::to_string(sequence) + ")";
}

void throw_disagreement(const PostedCall& one, const PostedCall& other) {
  throw DisagreementError("the ranks disagree: " + posted_text(one) + ", but " +
                          posted_text(other) +
                          "; all ranks must make the same calls in the same order");
}

std::string duration_text(std::chrono::milliseconds duration) {
  const auto count = duration.count();
  return count % 1000 == 0 ? std::to_string(count / 1000) + " s" : std::to_string(count) + " ms";
}

}  // namespace zero::comm
