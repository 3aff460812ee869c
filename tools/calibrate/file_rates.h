// Rates of the disk that offload would use.
#pragma once

#include <string>

namespace zero::calibrate {

struct FileRates {
  double read = 0, write = 0;  // bytes per second
};

// Writes and reads a file of 256 MiB in the directory, without the page cache if the file system
// permits O_DIRECT, then removes the file. Throws ConfigError with the directory.
FileRates measure_file(const std::string& directory);

}  // namespace zero::calibrate
