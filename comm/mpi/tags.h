#pragma once

namespace zero::comm {

inline constexpr int tag_header = 1, tag_data = 2, tag_notice = 3;

}  // namespace zero::comm
