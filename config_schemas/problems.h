// All problems of a config, collected and reported together.
#pragma once

#include <string>
#include <vector>

#include "config_schemas/document.h"

namespace zero::config_schemas {

class ProblemList {
 public:
  explicit ProblemList(std::string file) : file_(std::move(file)) {}

  void add(Position position, std::string text);
  void unknown_key(Position position, const std::string& path);
  // A ConfigError with one line per problem, in the order of the file.
  void throw_if_any() const;

 private:
  std::string file_;
  std::vector<Problem> problems_;
  std::size_t not_kept_ = 0;
};

}  // namespace zero::config_schemas
