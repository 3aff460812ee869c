// All problems of a config, collected and reported together.
#pragma once

#include <string>
#include <vector>

#include "config_schemas/document.h"
#include "config_schemas/keys.h"

namespace zero::config_schemas {

class ProblemList {
 public:
  explicit ProblemList(std::string file) : file_(std::move(file)) {}

  void add(Position position, std::string text);
  void unknown_key(Position position, const std::string& path);
  // The same, with a guess that is already made.
  void unknown_key(Position position, const std::string& path, const Guess& guess);
  // "ds_config.json:3:14"
  std::string place(Position position) const;
  // A ConfigError with one line per problem, in the order of the file.
  void throw_if_any() const;

 private:
  std::string file_;
  std::vector<Problem> problems_;
  std::size_t not_kept_ = 0;
};

}  // namespace zero::config_schemas
