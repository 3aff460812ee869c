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

#include "zero/plan/model.h"

namespace zero::detail {

class Messages {
 public:
  // Messages of all micro batches in flight; gradients have one place.
  explicit Messages(int in_flight) {
    for (int place = 0; place < in_flight; ++place)
      for (const std::string_view name : {input_name, output_name}) bytes_[{name, place}];
    for (const std::string_view name : {input_gradient_name, output_gradient_name})
      bytes_[{name, 0}];
  }

  // `name`: of the array that the message is instead of. `place`: of the micro batch in flight.
  std::span<std::byte> at(std::string_view name, int place) { return find(name, place); }
  std::span<std::byte> resize(std::string_view name, int place, std::size_t size) {
    std::vector<std::byte>& bytes = find(name, place);
    bytes.resize(size);
    return bytes;
  }

 private:
  std::vector<std::byte>& find(std::string_view name, int place) {
    const bool is_gradient = name == input_gradient_name || name == output_gradient_name;
    return bytes_.at({name, is_gradient ? 0 : place});
  }

  std::map<std::pair<std::string_view, int>, std::vector<std::byte>> bytes_;
};

}  // namespace zero::detail
