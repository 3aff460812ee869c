#include "tools/zero/output_file.h"

#include <fstream>

#include "zero/base/error.h"

namespace zero::tool {

void write_output(const std::string& option, const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  if (!out) throw SaveError(option + " " + path + " could not be written");
}

}  // namespace zero::tool
