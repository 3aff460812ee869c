#include "comm/call.h"

#include "zero/base/error.h"

namespace zero::comm {
namespace {

std::string arguments_text(const Call& call) {
  if (call.operation == Operation::barrier) return "";
  std::string text =
      " with " + std::to_string(call.count) + " " + name_of(call.dtype) + " elements";
  if (call.operation == Operation::broadcast) text += " from rank " + std::to_string(call.root);
  if (call.groups != ReduceGroups()) text += " and reduce groups of " + text_of(call.groups);
  return text;
}

std::string posted_text(const PostedCall& posted) {
  return "rank " + std::to_string(posted.world_rank) + " called " +
         describe_call(posted.call.operation, posted.subject, posted.sequence) +
         arguments_text(posted.call);
}

}  // namespace

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
