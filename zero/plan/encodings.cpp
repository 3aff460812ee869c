#include "zero/plan/encodings.h"

#include <vector>

namespace zero::detail {

namespace {

using comm::wire::Codec;
using comm::wire::Format;

bool encodes(const Codec& codec) {
  return codec.format != Format::none;
}

std::string text_of(const Codec& codec) {
  const std::string name = name_of(codec.format);
  return codec.format == Format::bf16 ? name
                                      : name + " in blocks of " + std::to_string(codec.block);
}

void append(std::string& text, const std::string& separator, const std::string& more) {
  text += (text.empty() ? "" : separator) + more;
}

// Lists the formats that every slice passes through.
std::string parameters_text(const WireFormats& wire) {
  std::string which;
  if (wire.gathers_trainable) append(which, " and ", "parameters");
  if (wire.gathers_matrices && !wire.gathers_trainable)
    append(which, " and ", "matrices of repeated units");
  if (wire.gathers_frozen_matrices) append(which, " and ", "frozen matrices of repeated units");
  std::string formats;
  if (wire.gather_hop > 0 && encodes(wire.gather)) append(formats, ", then ", text_of(wire.gather));
  const bool again = wire.gather_hop == 0 || wire.gather_inside != wire.gather;
  if (again && encodes(wire.gather_inside)) append(formats, ", then ", text_of(wire.gather_inside));
  return which.empty() || formats.empty() ? "" : which + " as " + formats;
}

// Each exchange encodes the sums of the previous exchange.
std::string gradients_text(const StatePolicy& policy) {
  struct Leg {
    Codec codec;
    int summed;  // number of ranks
  };
  const WireFormats& wire = policy.wire;
  std::vector<Leg> legs{{wire.reduce_inside, 1}};
  if (const int first = policy.first_sum_ranks(); first > 0) legs.push_back({wire.reduce, first});
  if (policy.grid.replicas() > 1) legs.push_back({wire.reduce, policy.grid.shard_ranks()});
  std::string text;
  for (const auto& [codec, summed] : legs)
    if (encodes(codec))
      append(text, ", then ",
             text_of(codec) + (summed == 1 ? " of each rank"
                                           : " of sums of " + std::to_string(summed) + " ranks"));
  if (text.empty()) return "";
  return "gradients as " + text;
}

}  // namespace

std::string describe_encodings(const StatePolicy& policy) {
  std::string text = parameters_text(policy.wire);
  if (const std::string gradients = gradients_text(policy); !gradients.empty())
    append(text, "; ", gradients);
  return text;
}

}  // namespace zero::detail
