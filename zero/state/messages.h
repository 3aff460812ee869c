// Messages between the stages of a pipeline, if the program says their sizes, for each micro batch
// (UnitSpec::output() without a shape). In host memory, which grows and is used again. The
// program's thread and that of communication use different messages at a time, as the plan of the
// step orders them.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "zero/plan/step_plan.h"

namespace zero::detail {

class Messages {
 public:
  // `name`: of the unit's array that the message is instead of.
  struct Key {
    int unit = 0;
    std::string_view name;
    int micro_batch = 0;
  };

  explicit Messages(const PlanInputs& inputs) {
    for (int unit = 0; unit < std::ssize(inputs.model->units); ++unit)
      for (const KeptDeclaration& kept : inputs.model->units[unit].kept)
        if (kept.sized_by_program) bytes_[{unit, kept.name}].resize(inputs.uses_of(unit, kept));
  }

  std::span<std::byte> at(const Key& key) { return find(key); }
  std::span<std::byte> resize(const Key& key, std::size_t size) {
    std::vector<std::byte>& bytes = find(key);
    bytes.resize(size);
    return bytes;
  }

 private:
  std::vector<std::byte>& find(const Key& key) {
    auto& uses = bytes_.at({key.unit, key.name});
    return uses[key.micro_batch % uses.size()];
  }

  // For each unit and array as many as PlanInputs::uses_of().
  std::map<std::pair<int, std::string_view>, std::vector<std::vector<std::byte>>> bytes_;
};

}  // namespace zero::detail
