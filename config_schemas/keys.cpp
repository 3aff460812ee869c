#include "config_schemas/keys.h"

#include <algorithm>
#include <iterator>

#include "config_schemas/key_rows.h"

namespace zero::config_schemas {

const std::vector<Key>& keys() {
  static const std::vector<Key> table = [] {
    std::vector<Key> result;
    for (auto rows : {general_rows, precision_rows, zero_rows, offload_rows, optimizer_rows,
                      scheduler_rows, core_rows, diagnostic_rows, section_rows, removed_rows})
      std::ranges::move(rows(), std::back_inserter(result));
    return result;
  }();
  return table;
}

}  // namespace zero::config_schemas
