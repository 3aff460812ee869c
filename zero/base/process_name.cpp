#include "zero/base/process_name.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

namespace zero {
namespace {

std::string space_named(const char* name) {
  std::error_code hidden;
  return std::filesystem::read_symlink(std::string("/proc/self/ns/") + name, hidden).string();
}

}  // namespace

std::string process_name() {
  return std::to_string(getpid()) + " " + std::to_string(start_of_process(getpid())) + " " +
         process_home();
}

std::string process_home() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return boot + " " + space_named("pid") + " " + space_named("net");
}

// "PID (NAME) STATE ...": the name may contain any character, and the start is field 22.
std::uint64_t start_of_process(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t end = text.rfind(") ");
  if (end == std::string::npos) return 0;
  std::istringstream fields(text.substr(end + 2));
  std::string field;
  fields >> field;
  if (field == "Z" || field == "X") return 0;
  constexpr int of_start = 22, of_state = 3;
  for (int i = of_state; i < of_start; ++i) fields >> field;
  return std::strtoull(field.c_str(), nullptr, 10);
}

}  // namespace zero
