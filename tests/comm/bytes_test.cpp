#include "comm/bytes.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

namespace zero::comm::testing {

TEST_CASE("large copies are whole at every alignment") {
  const std::int64_t bytes = streaming_bytes + 777;
  std::vector<unsigned char> from(static_cast<std::size_t>(bytes) + 200), to(from.size());
  for (std::size_t i = 0; i < from.size(); ++i)
    from[i] = static_cast<unsigned char>(i * 2654435761u >> 13);
  for (const std::int64_t source : {0, 1, 64})
    for (const std::int64_t target : {0, 3, 63, 64}) {
      std::fill(to.begin(), to.end(), static_cast<unsigned char>(0xa5));
      copy_bytes(to.data() + target, from.data() + source, bytes);
      CHECK(std::memcmp(to.data() + target, from.data() + source,
                        static_cast<std::size_t>(bytes)) == 0);
      for (std::int64_t i = 0; i < target; ++i) CHECK(to[static_cast<std::size_t>(i)] == 0xa5);
      CHECK(to[static_cast<std::size_t>(target + bytes)] == 0xa5);
    }
}

}  // namespace zero::comm::testing
