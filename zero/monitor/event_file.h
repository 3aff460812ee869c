// A TensorBoard event file: TFRecord framing around protobuf events, scalars only. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "zero/base/output_file.h"

namespace zero::detail {

// The checksum of TFRecord: CRC-32C (Castagnoli).
std::uint32_t crc32c(std::string_view bytes);

// Encodes an event; seconds since 1970.
std::string scalar_event(double seconds, std::int64_t step, std::string_view tag, float value);
std::string version_event(double seconds);
// Adds length and checksums around the event.
std::string framed(std::string_view event);

class EventFile {
 public:
  // Creates the folder and a new file in it. Throws ConfigError if that fails.
  explicit EventFile(const std::string& folder);

  void add(std::string_view tag, double value, std::int64_t step);
  // Writes all added events to the file. Throws SaveError.
  void flush();

 private:
  std::string path_;
  std::string pending_;  // added, and not written yet
  GrowingFile out_;
};

}  // namespace zero::detail
